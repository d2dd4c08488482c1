"""All mutations: of one instruction, and of the order of several.

A mutation of one instruction names the instructions it applies to and their replacements. Some need to know how a
register's value is used, in an address in shared memory, a descriptor or neither: `Facts` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from warploom.asm.nodes import (
    Address,
    Block,
    Instruction,
    Integer,
    Label,
    Operand,
    Register,
    RegisterDeclaration,
    Statement,
)

Rewrite: TypeAlias = "tuple[Statement, ...]"
"""The replacement of an instruction."""
TEMPORARY = "%mutant"
BYTES = 16
"""By how much a byte count is wrong: the smallest amount that a bulk copy can move."""
LOOP = 12
"""Most statements of a loop around a wait."""


# -- where values go ---------------------------------------------------------------------------------------------

_ARITHMETIC = ("add.", "sub.", "mul.", "mad.", "shl.", "shr.", "and.", "or.", "xor.", "cvt.", "mov.", "mapa.", "rem.")
_SCALING = ("mad.", "mul.", "shl.")


@dataclass(frozen=True)
class Facts:
    """How a kernel uses its registers.

    Attributes:
        carried: registers that count stages or iterations: each iteration computes them from the previous one.
        addresses: registers whose values end in an address in shared memory, or in a descriptor.
        descriptors: registers whose values end in a descriptor of a wgmma.
    """

    carried: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    descriptors: frozenset[str] = frozenset()

    @classmethod
    def of(cls, statements: Iterable[Statement]) -> Facts:
        """The facts of a kernel's body."""
        instructions = [statement for statement in statements if isinstance(statement, Instruction)]
        sources: dict[str, set[str]] = {}
        carried: set[str] = set()
        for instruction in instructions:
            if instruction.opcode.startswith(_ARITHMETIC) and isinstance(instruction.operands[0], Register):
                name = instruction.operands[0].name
                read = {operand.name for operand in instruction.operands[1:] if isinstance(operand, Register)}
                sources.setdefault(name, set()).update(read)
                if name in read:
                    carried.add(name)
        for instruction in instructions * 2:  # twice: a copy may stand before what it copies is found
            if _follows(instruction) and instruction.operands[1].name in carried:  # type: ignore[union-attr]
                carried.add(instruction.operands[0].name)  # type: ignore[union-attr]
        descriptors = _closure(sources, {name for i in instructions for name in _descriptors(i)})
        addresses = _closure(sources, {name for i in instructions for name in _shared_addresses(i)})
        return cls(frozenset(carried), frozenset(addresses | descriptors), frozenset(descriptors))


def _follows(instruction: Instruction) -> bool:
    """True if it computes a stage from a counter: a copy, or a remainder by a constant."""
    operands = instruction.operands
    if not instruction.opcode.startswith(("mov.b32", "mov.u32", "and.b32", "rem.u32")):
        return False
    return all(isinstance(operand, Register) for operand in operands[:2])


def _closure(sources: dict[str, set[str]], names: set[str]) -> set[str]:
    """The registers and all registers that they are computed from."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += sources.get(name, ())
    return found


def _descriptors(instruction: Instruction) -> list[str]:
    if not instruction.opcode.startswith("wgmma.mma_async"):
        return []
    return [operand.name for operand in instruction.operands[1:3] if isinstance(operand, Register)]


def _shared_addresses(instruction: Instruction) -> list[str]:
    """Registers that an instruction takes as addresses in shared memory."""
    opcode, operands = instruction.opcode, list(instruction.operands)
    if opcode.startswith("cp.async.bulk"):
        here = operands[1:2] if ".global.shared" in opcode else operands[:1] + operands[2:]
    elif opcode.startswith("cp.async."):
        here = operands[:1]
    elif opcode.startswith(("mbarrier.", "ldmatrix", "stmatrix")) or ".shared" in opcode:
        here = operands
    else:
        return []
    return [
        operand.base.name for operand in here if isinstance(operand, Address) and isinstance(operand.base, Register)
    ]


# -- mutations of one instruction ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutation:
    """A kind of mutation: the instructions it applies to, and their replacements."""

    kind: str
    takes: Callable[[Instruction], bool]
    make: Callable[[Instruction, Facts], list[Rewrite]]

    def apply(self, instruction: Instruction, facts: Facts) -> list[Rewrite]:
        """All ways to go wrong here."""
        return self.make(instruction, facts) if self.takes(instruction) else []


def _starts(*prefixes: str) -> Callable[[Instruction], bool]:
    return lambda instruction: instruction.opcode.startswith(prefixes)


def _drop(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    return [()]


def _pass_at_once(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A wait in a loop: its predicate is true without waiting."""
    done = instruction.operands[0]
    return [(replace(instruction, opcode="setp.eq.u32", operands=(done, Integer(0), Integer(0))),)]


def _flip_phase(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    return _change_operand(instruction, 2, "xor.b32", 1, lambda value: value ^ 1)


def _change_bytes(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    at = len(instruction.operands) - 1
    more = _change_operand(instruction, at, "add.u32", BYTES, lambda value: value + BYTES)
    less = _change_operand(instruction, at, "sub.u32", BYTES, lambda value: value - BYTES)
    return more + less


def _change_count(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    count = instruction.operands[1]
    if not isinstance(count, Integer):
        return []
    values = [count.value + 1] + ([count.value - 1] if count.value > 1 else [])
    return [(_with(instruction, 1, Integer(value)),) for value in values]


def _wait_for_less(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    newest = instruction.operands[0]
    return [(_with(instruction, 0, Integer(newest.value + 1)),)] if isinstance(newest, Integer) else []


def _read_only(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    return [(replace(instruction, opcode=instruction.opcode + ".read"),)]


def _weaken(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    words = [word for word in instruction.opcode.split(".") if word not in ("release", "acquire", "cluster")]
    return [(replace(instruction, opcode=".".join(words)),)]


def _swizzle(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """The layout code in bits 62 and 63 of a descriptor (PTX ISA 9.7.15.5.1.2.2)."""
    made: list[Rewrite] = []
    if not instruction.operands or getattr(instruction.operands[0], "name", "") not in facts.descriptors:
        return made
    for at, operand in enumerate(instruction.operands):
        if isinstance(operand, Integer) and operand.value >> 62 & 3 and 0 < operand.value < 1 << 64:
            code = operand.value >> 62
            other = 1 if code != 1 else 2
            made.append((_with(instruction, at, Integer(operand.value & (1 << 62) - 1 | other << 62)),))
    return made


def _change_mask(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """Without the first CTA, without the second, with one that may not exist (PTX ISA 9.7.9.27.1.2)."""
    at = 3 if ".tensor" in instruction.opcode else 4
    made: list[Rewrite] = []
    for bit in (1, 2, 4):
        made += _change_operand(instruction, at, "xor.b16", bit, lambda value, bit=bit: value ^ bit, "b16")  # type: ignore[misc]
    return made


def _next_stage(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """An address of the stage after the right one."""
    operands = instruction.operands
    names = [getattr(operand, "name", "") for operand in operands[:2]]
    if names[0] in facts.addresses and names[1] in facts.carried and names[0] not in facts.carried:
        return _change_operand(instruction, 1, "add.u32", 1, lambda value: value + 1)
    return []


def _ring_length(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A ring of one stage too many or too few: the wrap-around of its index."""
    counter, length = instruction.operands[1:3]
    index = getattr(counter, "name", "")
    if not isinstance(length, Integer) or length.value < 2 or index not in facts.carried & facts.addresses:
        return []
    return [(_with(instruction, 2, Integer(length.value + by)),) for by in (1, -1)]


def _with(instruction: Instruction, at: int, operand: Integer | Register) -> Instruction:
    operands: tuple[Operand, ...] = (*instruction.operands[:at], operand, *instruction.operands[at + 1 :])
    return replace(instruction, operands=operands)


def _change_operand(
    instruction: Instruction, at: int, opcode: str, by: int, value: Callable[[int], int], type_: str = "b32"
) -> list[Rewrite]:
    """An integer operand with another value: changed in place, or computed into a register of its own."""
    operand = instruction.operands[at]
    if isinstance(operand, Integer):
        return [(_with(instruction, at, Integer(value(operand.value))),)]
    temporary = Register(TEMPORARY)
    computed = Instruction(opcode, (temporary, operand, Integer(by)), location=instruction.location)
    declared = RegisterDeclaration(type_, (TEMPORARY,))
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
        "drop-fence",
        _starts("fence.acq_rel", "fence.sc", "membar", "fence.proxy.tensormap", "fence.proxy.alias"),
        _drop,
    ),
    Mutation(
        "drop-commit", _starts("wgmma.commit_group", "cp.async.commit_group", "cp.async.bulk.commit_group"), _drop
    ),
    Mutation("drop-wgmma-wait", _starts("wgmma.wait_group"), _drop),
    Mutation("drop-copy-wait", _starts("cp.async.wait_group", "cp.async.wait_all"), _drop),
    Mutation("drop-store-wait", _starts("cp.async.bulk.wait_group"), _drop),
    Mutation("drop-barrier", _starts("bar.sync", "barrier.sync", "bar.warp.sync"), _drop),
    Mutation("drop-turn", _starts("bar.arrive", "barrier.arrive"), _drop),
    Mutation("drop-cluster-arrival", _starts("barrier.cluster.arrive"), _drop),
    Mutation("drop-cluster-wait", _starts("barrier.cluster.wait"), _drop),
    Mutation("drop-grid-wait", _starts("griddepcontrol.wait"), _drop),
    Mutation("drop-arrival", _is_arrival, _drop),
    Mutation("drop-expect", _starts("mbarrier.arrive.expect_tx"), _drop),
    Mutation("drop-wait", _starts("mbarrier.try_wait", "mbarrier.test_wait"), _pass_at_once),
    Mutation("flip-phase", _starts("mbarrier.try_wait.parity", "mbarrier.test_wait.parity"), _flip_phase),
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
    Mutation("change-mask", lambda i: i.opcode.startswith("cp.async.bulk") and ".multicast" in i.opcode, _change_mask),
    Mutation("change-swizzle", _starts("or.b64", "mov.b64", "mov.u64", "add.u64", "add.s64"), _swizzle),
    Mutation("next-stage", _starts(*_SCALING), _next_stage),
    Mutation("ring-length", _starts("setp.eq"), _ring_length),
)
"""All mutations of single instructions; those of order are `ORDERS`."""


# -- mutations of order --------------------------------------------------------------------------------------------


def _release_before_wait(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """The first arrival after a wgmma.wait_group, moved before it."""
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
    """A commit and the wait after it, swapped."""
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


def _commit_too_early(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """A commit, moved before the last operation that it should cover."""
    commit = body[at]
    assert isinstance(commit, Instruction)
    if not commit.opcode.endswith("commit_group") and ".commit_group." not in commit.opcode:
        return None
    unit = commit.opcode.partition("commit_group")[0]
    operation = {"wgmma.": "wgmma.mma_async", "cp.async.bulk.": "cp.async.bulk.", "cp.async.": "cp.async.c"}[unit]
    for before in range(at - 1, max(at - 40, -1), -1):
        statement = body[before]
        if isinstance(statement, Instruction) and statement.opcode.startswith(operation):
            if "group" in statement.opcode.replace("bulk_group", ""):
                return None
            return (*body[:before], commit, *body[before:at], *body[at + 1 :])
    return None


def _drop_wait_loop(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """The branch back to a try_wait that has not succeeded, removed."""
    wait = body[at]
    assert isinstance(wait, Instruction)
    if not wait.opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait")):
        return None
    above = {statement.name for statement in body[max(at - LOOP, 0) : at] if isinstance(statement, Label)}
    for later in range(at + 1, min(at + LOOP, len(body))):
        statement = body[later]
        if isinstance(statement, Instruction) and statement.opcode.startswith("bra"):
            target = statement.operands[0]
            if isinstance(target, Register) and target.name in above:
                return (*body[:later], *body[later + 1 :])
    return None


def _drop_cluster_barrier(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """A cluster barrier's arrival and the wait after it, removed."""
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
    "commit-too-early": ("the commit comes before the last operation it was to cover", _commit_too_early),
    "drop-wait-loop": ("asked once, whatever the answer", _drop_wait_loop),
    "drop-cluster-barrier": ("arrival and wait left out", _drop_cluster_barrier),
}
"""Mutations of several instructions: words, and a function of a body and the index of the first of them."""
