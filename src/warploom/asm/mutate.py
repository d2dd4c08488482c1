"""Mutants: a kernel with one thing wrong, to see whether a checker notices.

    for mutant in mutants(module):
        report = emulate(mutant.module …)

Each mutation is what a person might have done: left a fence, a wait or an arrival out, waited for the wrong parity,
announced the wrong number of bytes, released a buffer before the wait. A mutant keeps the source locations, so what is
found in it names the author's lines. A mutant may be equivalent to its kernel: then some other edge does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..errors import SourceLocation
from .nodes import Block, Function, Instruction, Integer, Module, Register, RegisterDeclaration, Statement

Rewrite: TypeAlias = "tuple[Statement, ...]"
"""What stands in an instruction's place."""
TEMPORARY = "%mutant"
BYTES = 16
"""By how much a byte count is wrong: the smallest amount that a bulk copy can move."""


@dataclass(frozen=True)
class Mutant:
    """One mutant.

    Attributes:
        kind: name of the mutation: "drop-proxy-fence", "flip-phase", …
        location: the instruction that was changed.
        what: the change in words.
    """

    kind: str
    location: SourceLocation | None
    what: str
    module: Module

    def __str__(self) -> str:
        return f"{self.kind} at {self.location}: {self.what}"


def mutants(module: Module, kinds: Sequence[str] | None = None) -> Iterator[Mutant]:
    """All mutants of a module's kernels, in the order of the text; only some kinds if `kinds` says so."""
    for at, item in enumerate(module.items):
        if isinstance(item, Function) and item.kind == "entry" and item.body is not None:
            for kind, location, what, body in _of_body(item.body, kinds):
                items = (*module.items[:at], replace(item, body=body), *module.items[at + 1 :])
                yield Mutant(kind, location, what, replace(module, items=items))


Change: TypeAlias = "tuple[str, SourceLocation | None, str, tuple[Statement, ...]]"


def _of_body(body: tuple[Statement, ...], kinds: Sequence[str] | None) -> Iterator[Change]:
    for at, statement in enumerate(body):
        if isinstance(statement, Block):
            for kind, location, what, inner in _of_body(statement.statements, kinds):
                yield kind, location, what, (*body[:at], replace(statement, statements=inner), *body[at + 1 :])
        elif isinstance(statement, Instruction):
            for mutation in MUTATIONS:
                if kinds is None or mutation.kind in kinds:
                    for new in mutation.apply(statement):
                        yield (
                            mutation.kind,
                            statement.location,
                            _words(statement, new),
                            (*body[:at], *new, *body[at + 1 :]),
                        )
            for kind, (what, reorder) in ORDERS.items():
                if kinds is None or kind in kinds:
                    moved = reorder(body, at)
                    if moved is not None:
                        yield kind, statement.location, what, moved


def _words(old: Instruction, new: Rewrite) -> str:
    if not new:
        return f"{old.opcode} left out"
    last = next((item for item in new if isinstance(item, Instruction)), None)
    if isinstance(new[0], Block):
        last = next((item for item in new[0].statements if isinstance(item, Instruction)), last)
    return f"{old.opcode} {_operands(old)} became {last.opcode if last else '?'} {_operands(last) if last else ''}"


def _operands(instruction: Instruction) -> str:
    return ", ".join(str(getattr(operand, "value", getattr(operand, "name", "…"))) for operand in instruction.operands)


# -- mutations of one instruction ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutation:
    """A kind of mutation: which instructions it takes, and what may stand in their place."""

    kind: str
    takes: Callable[[Instruction], bool]
    make: Callable[[Instruction], list[Rewrite]]

    def apply(self, instruction: Instruction) -> list[Rewrite]:
        return self.make(instruction) if self.takes(instruction) else []


def _starts(*prefixes: str) -> Callable[[Instruction], bool]:
    return lambda instruction: instruction.opcode.startswith(prefixes)


def _drop(instruction: Instruction) -> list[Rewrite]:
    return [()]


def _pass_at_once(instruction: Instruction) -> list[Rewrite]:
    """A wait in a loop: its predicate is true without waiting."""
    done = instruction.operands[0]
    return [(replace(instruction, opcode="setp.eq.u32", operands=(done, Integer(0), Integer(0))),)]


def _flip_phase(instruction: Instruction) -> list[Rewrite]:
    return _change_operand(instruction, 2, "xor.b32", 1, lambda value: value ^ 1)


def _change_bytes(instruction: Instruction) -> list[Rewrite]:
    at = len(instruction.operands) - 1
    more = _change_operand(instruction, at, "add.u32", BYTES, lambda value: value + BYTES)
    less = _change_operand(instruction, at, "sub.u32", BYTES, lambda value: value - BYTES)
    return more + less


def _change_count(instruction: Instruction) -> list[Rewrite]:
    count = instruction.operands[1]
    if not isinstance(count, Integer):
        return []
    values = [count.value + 1] + ([count.value - 1] if count.value > 1 else [])
    return [(_with(instruction, 1, Integer(value)),) for value in values]


def _wait_for_less(instruction: Instruction) -> list[Rewrite]:
    newest = instruction.operands[0]
    return [(_with(instruction, 0, Integer(newest.value + 1)),)] if isinstance(newest, Integer) else []


def _read_only(instruction: Instruction) -> list[Rewrite]:
    return [(replace(instruction, opcode=instruction.opcode + ".read"),)]


def _weaken(instruction: Instruction) -> list[Rewrite]:
    words = [word for word in instruction.opcode.split(".") if word not in ("release", "acquire", "cluster")]
    return [(replace(instruction, opcode=".".join(words)),)]


def _swizzle(instruction: Instruction) -> list[Rewrite]:
    """The layout code in bits 62 and 63 of a descriptor (PTX ISA 9.7.15.5.1.2.2)."""
    made: list[Rewrite] = []
    for at, operand in enumerate(instruction.operands):
        if isinstance(operand, Integer) and operand.value >> 62 & 3 and 0 < operand.value < 1 << 64:
            code = operand.value >> 62
            other = 1 if code != 1 else 2
            made.append((_with(instruction, at, Integer(operand.value & (1 << 62) - 1 | other << 62)),))
    return made


def _with(instruction: Instruction, at: int, operand: Integer | Register) -> Instruction:
    operands = (*instruction.operands[:at], operand, *instruction.operands[at + 1 :])
    return replace(instruction, operands=operands)


def _change_operand(
    instruction: Instruction, at: int, opcode: str, by: int, value: Callable[[int], int]
) -> list[Rewrite]:
    """An integer operand with another value: changed in place, or computed into a register of its own."""
    operand = instruction.operands[at]
    if isinstance(operand, Integer):
        return [(_with(instruction, at, Integer(value(operand.value))),)]
    temporary = Register(TEMPORARY)
    computed = Instruction(opcode, (temporary, operand, Integer(by)), location=instruction.location)
    declared = RegisterDeclaration("b32", (TEMPORARY,))
    return [(Block((declared, computed, _with(instruction, at, temporary))),)]


def _is_arrival(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("mbarrier.arrive") and "expect_tx" not in instruction.opcode


def _scoped(instruction: Instruction) -> bool:
    words = instruction.opcode.split(".")
    return words[0] == "mbarrier" and "cluster" in words and ("release" in words or "acquire" in words)


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("drop-proxy-fence", _starts("fence.proxy.async"), _drop),
    Mutation("drop-init-fence", _starts("fence.mbarrier_init"), _drop),
    Mutation("drop-wgmma-fence", _starts("wgmma.fence"), _drop),
    Mutation(
        "drop-commit", _starts("wgmma.commit_group", "cp.async.commit_group", "cp.async.bulk.commit_group"), _drop
    ),
    Mutation("drop-wgmma-wait", _starts("wgmma.wait_group"), _drop),
    Mutation("drop-copy-wait", _starts("cp.async.wait_group", "cp.async.wait_all"), _drop),
    Mutation("drop-store-wait", _starts("cp.async.bulk.wait_group"), _drop),
    Mutation("drop-barrier", _starts("bar.sync", "barrier.sync"), _drop),
    Mutation("drop-arrival", _is_arrival, _drop),
    Mutation("drop-expect", _starts("mbarrier.arrive.expect_tx"), _drop),
    Mutation("drop-wait", _starts("mbarrier.try_wait", "mbarrier.test_wait"), _pass_at_once),
    Mutation("flip-phase", lambda i: i.opcode.startswith("mbarrier.try_wait.parity"), _flip_phase),
    Mutation("change-bytes", _starts("mbarrier.arrive.expect_tx", "mbarrier.expect_tx"), _change_bytes),
    Mutation("change-count", _starts("mbarrier.init"), _change_count),
    Mutation(
        "wait-for-less", _starts("wgmma.wait_group", "cp.async.wait_group", "cp.async.bulk.wait_group"), _wait_for_less
    ),
    Mutation(
        "wait-for-reads-only",
        lambda i: i.opcode.startswith("cp.async.bulk.wait_group") and not i.opcode.endswith(".read"),
        _read_only,
    ),
    Mutation("narrow-scope", _scoped, _weaken),
    Mutation("change-swizzle", _starts("or.b64", "mov.b64", "mov.u64", "add.u64", "add.s64"), _swizzle),
)
"""All mutations of single instructions; those of order are `ORDERS`."""


# -- mutations of order --------------------------------------------------------------------------------------------


def _release_before_wait(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """The first arrival behind a wgmma.wait_group, moved in front of it."""
    wait = body[at]
    assert isinstance(wait, Instruction)
    if not wait.opcode.startswith("wgmma.wait_group"):
        return None
    for later in range(at + 1, min(at + 400, len(body))):
        statement = body[later]
        if isinstance(statement, Instruction):
            if statement.opcode.startswith("wgmma.mma_async"):
                return None
            if _is_arrival(statement):
                return (*body[:at], *body[at + 1 : later + 1], wait, *body[later + 1 :])
    return None


def _wait_before_commit(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """A commit and the wait behind it, exchanged."""
    commit = body[at]
    assert isinstance(commit, Instruction)
    if not commit.opcode.startswith("wgmma.commit_group"):
        return None
    for later in range(at + 1, min(at + 4, len(body))):
        statement = body[later]
        if isinstance(statement, Instruction) and statement.opcode.startswith("wgmma.wait_group"):
            return (*body[:at], statement, *body[at + 1 : later], commit, *body[later + 1 :])
        if isinstance(statement, Instruction):
            return None
    return None


def _drop_cluster_barrier(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """A cluster barrier's arrival and the wait behind it, left out."""
    arrive = body[at]
    assert isinstance(arrive, Instruction)
    if not arrive.opcode.startswith("barrier.cluster.arrive"):
        return None
    for later in range(at + 1, len(body)):
        statement = body[later]
        if isinstance(statement, Instruction) and statement.opcode.startswith("barrier.cluster.wait"):
            return (*body[:at], *body[at + 1 : later], *body[later + 1 :])
    return None


Reorder: TypeAlias = "Callable[[tuple[Statement, ...], int], tuple[Statement, ...] | None]"
ORDERS: dict[str, tuple[str, Reorder]] = {
    "release-before-wait": ("the arrival comes before the wait", _release_before_wait),
    "wait-before-commit": ("the wait comes before the commit", _wait_before_commit),
    "drop-cluster-barrier": ("arrival and wait left out", _drop_cluster_barrier),
}
"""Mutations of several instructions: words, and a function of a body and the place of the first of them."""
