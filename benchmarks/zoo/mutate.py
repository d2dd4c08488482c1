"""Mutants: a kernel with one bug, to see whether a checker finds it.

    for mutant in mutants(module):
        report = emulate(mutant.module …)

Each mutation is a plausible mistake: a missing fence, wait or arrival, the wrong parity, the wrong number of expected
bytes, a buffer released before the wait. `mutations` has them all. A mutant keeps the source locations, so findings
name the author's lines. A mutant may be equivalent to its kernel, if another edge provides the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from warploom.asm.nodes import Block, Function, Instruction, Module, Statement, walk
from warploom.errors import SourceLocation

from .mutations import MUTATIONS, ORDERS, Facts, Mutation, Reorder, Rewrite


@dataclass(frozen=True)
class Mutant:
    """One mutant.

    Attributes:
        kind: name of the mutation: "drop-proxy-fence", "flip-phase", …
        instruction: the instruction that was changed, as it was.
        number: index among the kernel's instructions with its opcode, in the order of the text, from 0.
        variant: index of the way to change it, from 0.
        what: the change in words.
    """

    kind: str
    instruction: Instruction
    number: int
    variant: int
    what: str
    module: Module = field(repr=False)

    @property
    def location(self) -> SourceLocation | None:
        """Where the changed instruction was written."""
        return self.instruction.location

    @property
    def site(self) -> str:
        """The changed instruction, in a form that is stable under changes elsewhere: "bar.sync#3"."""
        return f"{self.instruction.opcode}#{self.number}"

    def __str__(self) -> str:
        return f"{self.kind} at {self.location}: {self.what}"


def mutants(
    module: Module, kinds: Sequence[str] | None = None, mutations: Sequence[Mutation] = MUTATIONS,
    orders: Mapping[str, tuple[str, Reorder]] = ORDERS,
) -> Iterator[Mutant]:  # fmt: skip
    """All mutants of a module's kernels, in the order of the text; `kinds`: only these kinds.

    mutations: of single instructions; orders: of several.
    """
    for at, item in enumerate(module.items):
        if isinstance(item, Function) and item.kind == "entry" and item.body is not None:
            numbers: dict[str, int] = {}
            for change in _of_body(item.body, Facts.of(walk(item.body)), numbers, kinds, mutations, orders):
                items = (*module.items[:at], replace(item, body=change.body), *module.items[at + 1 :])
                yield Mutant(
                    change.kind, change.instruction, change.number, change.variant, change.what,
                    replace(module, items=items),
                )  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A changed body; the other fields are as in `Mutant`."""

    kind: str
    instruction: Instruction
    number: int
    variant: int
    what: str
    body: tuple[Statement, ...]


def _of_body(
    body: tuple[Statement, ...],
    facts: Facts,
    numbers: dict[str, int],
    kinds: Sequence[str] | None,
    mutations: Sequence[Mutation],
    orders: Mapping[str, tuple[str, Reorder]],
) -> Iterator[Change]:
    for at, statement in enumerate(body):
        if isinstance(statement, Block):
            for inner in _of_body(statement.statements, facts, numbers, kinds, mutations, orders):
                block = replace(statement, statements=inner.body)
                yield replace(inner, body=(*body[:at], block, *body[at + 1 :]))
        elif isinstance(statement, Instruction):
            number = numbers.get(statement.opcode, 0)
            numbers[statement.opcode] = number + 1
            for mutation in mutations:
                if kinds is None or mutation.kind in kinds:
                    for variant, new in enumerate(mutation.apply(statement, facts)):
                        changed = (*body[:at], *new, *body[at + 1 :])
                        yield Change(mutation.kind, statement, number, variant, _words(statement, new), changed)
            for kind, (what, reorder) in orders.items():
                if kinds is None or kind in kinds:
                    moved = reorder(body, at)
                    if moved is not None:
                        yield Change(kind, statement, number, 0, what, moved)


def _words(old: Instruction, new: Rewrite) -> str:
    if not new:
        return f"{old.opcode} left out"
    if isinstance(new[0], Block):
        inside = [item for item in new[0].statements if isinstance(item, Instruction)]
        computed = inside[0]
        if len(computed.operands) < 3:
            return f"{old.opcode} became " + ", ".join(item.opcode for item in inside)
        source, by = (_operand(operand) for operand in computed.operands[1:3])
        return f"{old.opcode} uses {source} {computed.opcode.partition('.')[0]} {by} instead of {source}"
    last = new[0]
    assert isinstance(last, Instruction)
    return f"{old.opcode} {_operands(old)} became {last.opcode} {_operands(last)}"


def _operands(instruction: Instruction) -> str:
    return ", ".join(_operand(operand) for operand in instruction.operands)


def _operand(operand: object) -> str:
    return str(getattr(operand, "value", getattr(operand, "name", "…")))
