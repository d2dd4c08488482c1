"""Plain loads whose value goes to a compare-and-swap, which fails if the value is stale.

    ld.global.u32 %old, [p]
    again: … %new from %old …
    atom.global.cas.b32 %seen, [p], %old, %new      if it fails, once more with %seen as %old

Such a loop turns any function into an atomic, and compilers start it with a plain load (LLVM's AtomicExpand; CUDA C++
Programming Guide, "Atomic Functions"). Formally the load races with the atomics of others (PTX ISA 8.7.1), but nothing
depends on how recent its value is. The text shows which loads these are: their value reaches the compared operand,
copied from register to register, or stored and reloaded at the same address.
"""

from __future__ import annotations

from ..asm.nodes import Address
from ..emulator.machine.image import Image
from ..emulator.machine.operation import Operation
from ..emulator.machine.registers import Row
from ..emulator.machine.scopes import rows_named
from .undefined_reads import read_and_written

COPYING = ("mov", "cvt")
"""Opcodes that copy a value."""


def first_guesses(code: Image) -> frozenset[int]:
    """The indices (pc) of these loads."""
    rows: set[Row] = set()
    for operation in code.operations:
        modifiers = operation.instruction.modifiers
        if modifiers[0] == "atom" and "cas" in modifiers and operation.bound is not None:
            rows.update(rows_named(operation.scope, operation.bound.operands["b"]))
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
    """Go from registers and memory that hold the value to those that it came from."""
    opcode = operation.instruction.modifiers[0]
    if opcode not in (*COPYING, "ld", "st") or operation.bound is None:
        return
    address = next((one for one in operation.instruction.operands if isinstance(one, Address)), None)
    if opcode == "st" and address in places:
        rows.update(rows_named(operation.scope, operation.instruction.operands[-1]))
    elif opcode != "st":
        read, written = read_and_written(operation)
        if not rows.isdisjoint(written):
            if address is not None:
                places.add(address)
            else:
                rows.update(row for row, _ in read)
