"""Warp-wide instructions between an access by the lanes of a warp and the instruction by which one lane signals.

bar.warp.sync orders the lanes' accesses. shfl.sync, mma.sync, ldmatrix, wgmma and similar instructions order nothing,
but when one lane continues, all lanes have issued everything before them (PTX ISA 9.7.9.6, 9.7.15.1), and published
kernels rely on it. Only those for the whole warp count here; for the others see `happens_before.kept_lanes`.
"""

from __future__ import annotations

import numpy as np

from ..emulator.machine.control_flow import links, reached, successors
from ..emulator.machine.image import Image
from ..emulator.machine.operation import Operation
from ..isa.effects import Synchronises

WHOLE_WARP = 0xFFFFFFFF


def held_between(code: Image, first: int, second: int) -> bool:
    """True if a warp-wide instruction is on some path from one pc to another, or is the first."""
    return code.fact(("held between", first, second), lambda: _held(code, first, second))


def _held(code: Image, first: int, second: int) -> bool:
    operations = code.operations
    if _is_wide(code, operations[first]):
        return True
    onward, back = links(operations)
    ends = {first, second}
    between = reached(onward, onward[first], ends) & reached(back, back.get(second, ()), ends)
    return any(_is_wide(code, operations[pc]) for pc in between)


def always_held(code: Image, first: int, second: int) -> Operation | None:
    """The shuffle, vote or reduction of the whole warp that is on every path from one pc to another."""
    return code.fact(("always held", first, second), lambda: _always_held(code, first, second))


def _always_held(code: Image, first: int, second: int) -> Operation | None:
    operations, found = code.operations, None
    todo, seen = list(successors(operations[first], len(operations))), set[int]()
    while todo:
        here = todo.pop()
        if here == second:
            return None
        if here in seen:
            continue
        seen.add(here)
        operation = operations[here]
        if _holds(code, operation):
            found = operation
        else:
            todo += successors(operation, len(operations))
    return found


def held_together(code: Image, earlier: Operation, later: Operation) -> Operation | None:
    """A shuffle, vote or reduction of the whole warp between two instructions, in the text or on every path. The first
    has been issued for all lanes when the second is, and cooperative groups rely on that for reads."""
    between = code.operations[earlier.pc + 1 : later.pc]
    return next((one for one in between if _holds(code, one)), None) or always_held(code, earlier.pc, later.pc)


def _holds(code: Image, operation: Operation) -> bool:
    """Whether all lanes of a warp wait for each other at an instruction."""
    meets = (one for one in operation.effects if isinstance(one, Synchronises))
    return (
        operation.instruction.guard is None and any(one.kind == "lanes" for one in meets) and _is_wide(code, operation)
    )


def _is_wide(code: Image, operation: Operation) -> bool:
    """Whether an instruction is executed by whole warps together, whatever their registers hold."""
    if operation.members < 0:
        return operation.converged
    mask = code.layout.slots[operation.members]
    return isinstance(mask, np.generic) and int(mask) == WHOLE_WARP
