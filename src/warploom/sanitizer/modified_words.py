"""Stores of a value that was computed from the previous contents of the same address, a few instructions before.

    ld.volatile.global.u32 %r1, [%rd1];
    add.s32 %r2, %r1, 1;
    st.volatile.global.u32 [%rd1], %r2;

Load and store are in one straight run of instructions, so the store depends on the loaded value only as data: no
thread has checked whether it may store.
"""

from __future__ import annotations

from ..asm.nodes import Address
from ..emulator.machine.image import Image
from ..emulator.machine.operation import PLAIN, Operation
from ..emulator.machine.scopes import rows_named
from .undefined_reads import read_and_written


def modified_words(code: Image) -> dict[int, int]:
    """The stores (pc) -> their loads."""
    entered = {target for operation in code.operations for target in operation.targets}
    found = {}
    for operation in code.operations:
        if operation.instruction.modifiers[0] == "st" and operation.kind == PLAIN:
            load = _loaded_for(code, operation, entered)
            if load is not None:
                found[operation.pc] = load
    return found


def _loaded_for(code: Image, store: Operation, entered: set[int]) -> int | None:
    place = _address(store)
    if place is None:
        return None
    wanted = rows_named(store.scope, store.instruction.operands[-1])
    base = rows_named(store.scope, place)
    for pc in range(store.pc - 1, -1, -1):
        operation = code.operations[pc]
        if pc + 1 in entered or operation.kind != PLAIN or operation.guard >= 0:
            return None
        read, written = read_and_written(operation)
        if wanted.isdisjoint(written):
            if not base.isdisjoint(written):
                return None
        elif operation.instruction.modifiers[0] == "ld":
            return pc if _address(operation) == place else None
        else:
            wanted = wanted.difference(written).union(row for row, _ in read)
    return None


def _address(operation: Operation) -> Address | None:
    return next((one for one in operation.instruction.operands if isinstance(one, Address)), None)
