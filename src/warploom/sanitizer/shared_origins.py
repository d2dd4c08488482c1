"""The shared arrays that an address may be based on, derived from the text alone.

An address register starts as the address of a variable, and indices are added to it. Each register gets the arrays
that any instruction in the text may have based it on, regardless of order: nvcc, Triton and `warploom` write nearly
every register once. A register that may also hold something else, such as a pointer from memory, gets none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ..asm.nodes import Address, Integer, Operand, Register, Symbol, Vector
from ..emulator.machine.registers import Row
from ..emulator.machine.scopes import DeclaredRegister, DeclaredVariable
from .undefined_reads import read_and_written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..emulator.machine.image import Image
    from ..emulator.machine.operation import Operation

MOST = 4
"""Offsets in one variable that are followed: a pointer that a loop moves has one per iteration."""
COPIES = ("mov", "cvta", "cvt", "mapa", "shfl")
SUMS = ("add", "or", "xor", "and", "lop3", "sub", "mad")
"""Operations that keep an address within its array: adding an index, permuting bits (a swizzle), clearing bits
(an alignment)."""
FOLLOWED = frozenset((*COPIES, *SUMS, "selp"))


@dataclass(frozen=True)
class Origin:
    """A position in a shared variable on which an address is based.

    Attributes:
        variable, start: its name, and its offset in the CTA's shared memory.
        offset: the constants added to its address before anything else; `exact` until something else is added.
        moved: the constants added since: they may lead to another array, or be part of an index.
    """

    variable: str
    start: int
    offset: int = 0
    exact: bool = True
    moved: int = 0

    def plus(self, amount: int) -> Origin:
        """The position that many bytes further."""
        if self.exact:
            return replace(self, offset=self.offset + amount)
        return replace(self, moved=self.moved + amount)


Origins: TypeAlias = "frozenset[Origin | None]"
"""If it contains None, the value may not be based on a shared variable."""
NOTHING: Origins = frozenset((None,))
UNKNOWN: Origins = frozenset()


def address_origins(code: Image) -> dict[int, dict[str, Origins]]:
    """What the addresses of instructions are based on, by pc and operand; omitted if unknown."""
    known: dict[Row, Origins] = {}
    users: dict[Row, list[Operation]] = {}
    for operation in code.operations:
        for row, _ in read_and_written(operation)[0] if _follows(operation) else ():
            users.setdefault(row, []).append(operation)
    work = list(reversed(code.operations))
    while work:
        operation = work.pop()
        for row, origins in _results(operation, known):
            before = known.get(row, UNKNOWN)
            after = before if origins is before else _joined(before, origins)
            if after is not before and after != before:
                known[row] = after
                work.extend(users.get(row, ()))
    found: dict[int, dict[str, Origins]] = {}
    for operation in code.operations:
        if operation.bound is None:
            continue
        for name, operand in operation.bound.operands.items():
            if isinstance(operand, Address):
                origins = _of(operation, operand, known)
                if origins and None not in origins:
                    found.setdefault(operation.pc, {})[name] = origins
    return found


def _joined(before: Origins, more: Origins) -> Origins:
    """The possible contents of a register that several instructions write."""
    new = more - before
    if None in new or not before or not new:
        return before | more
    kept = set(before)
    for origin in new:
        same = [one for one in kept if one and origin and one.variable == origin.variable]
        if len(same) < MOST:
            kept.add(origin)
        else:  # a pointer that a loop moves
            kept.difference_update(same)
            kept.update(replace(one, exact=False) for one in same if one)
    return frozenset(kept)


def _results(operation: Operation, known: dict[Row, Origins]) -> Iterable[tuple[Row, Origins]]:
    """The registers that an operation writes, and what they are based on."""
    written = read_and_written(operation)[1]
    if not written:
        return ()
    made = _made(operation, known) if _follows(operation) else NOTHING
    return [(row, made) for row in written]


def _follows(operation: Operation) -> bool:
    """True if what an operation writes may be based on what it reads."""
    return operation.bound is not None and operation.instruction.opcode.split(".", 1)[0] in FOLLOWED


def _made(operation: Operation, known: dict[Row, Origins]) -> Origins:
    word = operation.instruction.opcode.split(".", 1)[0]
    sources = operation.instruction.operands[1:]
    values = [_of(operation, operand, known) for operand in sources]
    if word == "selp":
        return values[0] | values[1]
    if word in COPIES:
        return values[0]
    if not all(values):  # an operand that is still unknown
        return UNKNOWN
    if word == "mad":
        return NOTHING if any(_shared(value) for value in values[:2]) else _moved(values[2])
    if word == "sub":
        return NOTHING if _shared(values[1]) else _sum(word, sources, values[:1])
    return _sum(word, sources, values)


def _sum(word: str, sources: tuple[Operand, ...], values: list[Origins]) -> Origins:
    """The sum of an address and numbers; the sum of two addresses is unknown."""
    bases = [value for value in values if _shared(value)]
    if len(bases) != 1:
        return NOTHING
    numbers = [operand for operand in sources if isinstance(operand, Integer)]
    if word in ("add", "sub") and len(numbers) == 1:
        amount = numbers[0].value if word == "add" else -numbers[0].value
        amount = (amount + (1 << 31)) % (1 << 32) - (1 << 31)
        return frozenset(one and one.plus(amount) for one in bases[0])
    return _moved(bases[0])


def _moved(origins: Origins) -> Origins:
    return frozenset(one and replace(one, exact=False) for one in origins)


def _shared(origins: Origins) -> bool:
    return any(origin is not None for origin in origins)


def _of(operation: Operation, operand: Operand, known: dict[Row, Origins]) -> Origins:
    """What an operand is based on; empty if still unknown."""
    if isinstance(operand, Address):
        base = _of(operation, operand.base, known)
        return frozenset(one and one.plus(operand.offset) for one in base) if operand.offset else base
    if isinstance(operand, (Symbol, Register)):
        found = operation.scope.find(operand.name)
        if isinstance(found, DeclaredRegister):
            return known.get(found.row, UNKNOWN)
        if isinstance(found, DeclaredVariable) and found.space.split("::")[0] == "shared":
            return frozenset((Origin(operand.name, found.offset),))
    if isinstance(operand, Vector):
        values = [_of(operation, element, known) for element in operand.elements]
        bases = [value for value in values if _shared(value)]
        return bases[0] if len(bases) == 1 else NOTHING
    return NOTHING
