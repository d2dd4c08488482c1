"""Plain loads whose value goes to a compare-and-swap, which fails where the value is an old one.

    ld.global.u32 %old, [p]
    again: … %new from %old …
    atom.global.cas.b32 %seen, [p], %old, %new      if it fails, once more with %seen as %old

Such a loop makes an atomic of any function, and compilers begin it with a plain load (LLVM's AtomicExpand; CUDA C++
Programming Guide, "Atomic Functions"). The load races with the atomics of others by the letter (PTX ISA 8.7.1), but
nothing depends on how new its value is. Which loads these are follows from the text: their value reaches the operand
that is compared, copied from register to register, or stored and loaded again at a place that is named alike.
"""

from __future__ import annotations

from ..asm.nodes import Address
from ..emulator.machine.image import Image
from ..emulator.machine.operation import Operation
from .undefined_reads import Row, collect, read_and_written

COPYING = ("mov", "cvt")
"""Opcodes that hand a value on."""


def first_guesses(code: Image) -> frozenset[int]:
    """The places (pc) of these loads."""
    rows: set[Row] = set()
    for operation in code.operations:
        modifiers = operation.instruction.modifiers
        if modifiers[0] == "atom" and "cas" in modifiers and operation.bound is not None:
            rows.update(_named(operation, operation.bound.operands["b"]))
    if not rows:
        return frozenset()
    places: set[Address] = set()
    before = -1
    while before != len(rows) + len(places):
        before = len(rows) + len(places)
        for operation in code.operations:
            _go_back(operation, rows, places)
    return frozenset(
        operation.pc
        for operation in code.operations
        if operation.instruction.modifiers[0] == "ld" and not rows.isdisjoint(read_and_written(operation)[1])
    )


def _go_back(operation: Operation, rows: set[Row], places: set[Address]) -> None:
    """From registers and places in memory that hold the value to those from which they got it."""
    opcode = operation.instruction.modifiers[0]
    if opcode not in (*COPYING, "ld", "st") or operation.bound is None:
        return
    address = next((one for one in operation.instruction.operands if isinstance(one, Address)), None)
    if opcode == "st" and address in places:
        rows.update(_named(operation, operation.instruction.operands[-1]))
    elif opcode != "st":
        read, written = read_and_written(operation)
        if not rows.isdisjoint(written):
            if address is not None:
                places.add(address)
            else:
                rows.update(row for row, _ in read)


def _named(operation: Operation, operand: object) -> set[Row]:
    named: list[tuple[Row, str]] = []
    collect(operation.scope, operand, named)  # type: ignore[arg-type]
    return {row for row, _ in named}
