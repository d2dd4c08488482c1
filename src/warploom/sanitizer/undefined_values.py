"""Registers that may be read before they are written on some path, and values computed from them.

Compilers let undefined values pass through instructions whose results do not matter, so a read alone is not an error.
`Slice` lists the instructions through which such a value may reach an address, a branch or memory. Registers are
followed byte by byte if an instruction only moves bytes, or computes a packed type element by element: a compiler
packs a value with an undefined one, and continues with the half that is defined.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..asm.nodes import Address, Integer, TensorAddress
from ..emulator.machine.operation import BRANCH, INDEXED_BRANCH
from ..emulator.machine.registers import Row
from ..emulator.machine.scopes import registers_named, rows_named
from ..isa import dtypes, effects
from .undefined_bytes import element, moves
from .undefined_reads import reaching, read_and_written

if TYPE_CHECKING:
    from ..emulator.machine.image import Image
    from ..emulator.machine.operation import Operation


@dataclass
class Step:
    """How one instruction uses registers that may be undefined, as row numbers in `Slice.rows`.

    Attributes:
        reads, writes: all of them; guard: the guard predicate, or -1.
        addresses: registers in an address; decides: in a branch condition; stored: those whose value goes to memory.
        word, sources: for `selp` and logic on predicates, whose results may be defined although a source is not: for
            each source its number or -1, and the slot of a predicate's value or -1. For `shfl`, whose result is
            another lane's value: for a, b and c.
        mode: for `shfl`.
        moves: for instructions that only move bytes: (read, first byte, written, first byte there, count) for each
        piece.
        element: bytes of an element if elements of the result depend only on those of the sources; 0: all on all.
    """

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    guard: int = -1
    addresses: tuple[int, ...] = ()
    decides: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    word: str = ""
    sources: tuple[tuple[int, int], ...] = ()
    mode: str = ""
    moves: tuple[tuple[int, int, int, int, int], ...] = ()
    element: int = 0


@dataclass
class Slice:
    """The instructions by pc, and the registers, (bank, row), in numerical order."""

    steps: dict[int, Step] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def undefined_values(code: Image) -> Slice:
    """The slice of a kernel; empty if every path writes the registers that it reads."""
    uses = [read_and_written(operation) for operation in code.operations]
    tainted = _maybe_undefined(code, uses)
    if not tainted:
        return Slice()
    work = list(tainted)
    readers: dict[Row, list[int]] = {}
    for pc, (read, _) in enumerate(uses):
        for row, _name in read:
            readers.setdefault(row, []).append(pc)
    while work:
        for pc in readers.get(work.pop(), ()):
            for row in uses[pc][1]:
                if row not in tainted and _passes_on(code.operations[pc]):
                    tainted[row] = ""
                    work.append(row)
    numbers = {row: at for at, row in enumerate(tainted)}
    found = Slice(rows=list(tainted), names=[""] * len(tainted))
    for operation, (read, written) in zip(code.operations, uses, strict=True):
        names = {row: name for row, name in read if row in numbers}
        writes = tuple(numbers[row] for row in written if row in numbers)
        if names or writes:
            step = found.steps[operation.pc] = _step(operation, names, writes, numbers)
            step.word, step.sources = _chosen_by_value(code, operation, numbers)
            step.moves, step.element = moves(operation, numbers), element(operation)
            step.mode = operation.instruction.opcode.split(".")[2] if step.word == "shfl" else ""
            for row, name in names.items():
                found.names[numbers[row]] = name
    return found


def _passes_on(operation: Operation) -> bool:
    """True if the result depends on the registers read; a value loaded from memory does not."""
    return operation.bound is not None and not effects.accesses(operation.effects)


def _step(operation: Operation, names: dict[Row, str], writes: tuple[int, ...], numbers: dict[Row, int]) -> Step:
    guard = operation.instruction.guard
    rows: list[tuple[Row, str]] = []
    if guard is not None:
        found = next((row for row, name in names.items() if name == guard.register), None)
        guard_number = numbers[found] if found is not None else -1
    else:
        guard_number = -1
    if operation.bound is None:
        branches = operation.kind in (BRANCH, INDEXED_BRANCH)
        return Step((), writes, guard_number, decides=tuple(numbers[row] for row in names) if branches else ())
    for operand in operation.bound.operands.values():
        if isinstance(operand, (Address, TensorAddress)):
            rows += registers_named(operation.scope, operand)
    addresses = tuple(numbers[row] for row, _ in rows if row in numbers)
    touches = [one for one in effects.accesses(operation.effects) if one.space != "register"]
    reads = tuple(numbers[row] for row in names if numbers[row] != guard_number)
    changes = any(one.how != effects.READS for one in touches)
    stored = tuple(number for number in reads if number not in addresses) if changes else ()
    decides = (guard_number,) if guard_number >= 0 and (touches or not writes) else ()
    return Step(reads if _passes_on(operation) else (), writes, guard_number, addresses, decides, stored)


def _chosen_by_value(
    code: Image, operation: Operation, numbers: dict[Row, int]
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """See `Step.word`."""
    word, _, kind = operation.instruction.opcode.partition(".")
    if word == "shfl":
        return word, tuple(_moved(code, operation, name, numbers) for name in "abc")
    if word != "selp" and (word not in ("and", "or") or kind != "pred"):
        return "", ()
    sources = []
    for operand in operation.instruction.operands[1:]:
        row = next(iter(rows_named(operation.scope, operand)), None)
        slot = code.layout.slot(row, dtypes.pred) if row is not None and row.bits == 1 else -1
        sources.append((numbers.get(row, -1) if row is not None else -1, slot))
    return word, tuple(sources)


def _moved(code: Image, operation: Operation, name: str, numbers: dict[Row, int]) -> tuple[int, int]:
    """The number of a shuffle's operand, or -1, and the slot of its value."""
    assert operation.bound is not None
    operand = operation.bound.operands[name]
    if isinstance(operand, Integer):
        return -1, code.layout.constant(np.uint32(operand.value & 0xFFFFFFFF))
    (row,) = rows_named(operation.scope, operand)
    return numbers.get(row, -1), code.layout.slot(row, dtypes.b32)


def _maybe_undefined(code: Image, uses: list[tuple[list[tuple[Row, str]], list[Row]]]) -> dict[Row, str]:
    """Registers that some path reads before it writes them, with their names."""
    numbers: dict[Row, int] = {}
    for read, written in uses:
        for row in (*written, *(row for row, _ in read)):
            numbers.setdefault(row, len(numbers))
    masks = []
    for operation, (_, written) in zip(code.operations, uses, strict=True):
        mask = 0
        if operation.guard < 0:  # otherwise it may not write
            for row in written:
                mask |= 1 << numbers[row]
        masks.append(mask)
    found: dict[Row, str] = {}
    for (read, _), defined in zip(uses, reaching(code, masks, on_all=True), strict=True):
        for row, name in read if defined is not None else ():
            if not defined >> numbers[row] & 1:  # type: ignore[operator]
                found.setdefault(row, name)
    return found
