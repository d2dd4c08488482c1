"""The subroutines of exact f32 divisions, reciprocals and square roots, which a warp calls for unusual operands.

ptxas computes div.rn, rcp.rn and sqrt.rn in place, but calls a subroutine if a thread's operand is zero, denormal,
infinite or NaN. So a transform that divides an index by a length takes the long way for index 0. The arrays of a
recording hold zeros where those of a real launch need not, so only operands that depend on no loaded value count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..emulator.machine.operation import Operation
from ..emulator.machine.registers import WARP, Row
from ..emulator.machine.scopes import rows_named
from .instructions import ALU, CONTROL, LSU, MUFU, TENSOR, Facts
from .machine_code import IMAD

if TYPE_CHECKING:
    from ..emulator.machine.frame import Frame

CALLED: Mapping[str, tuple[tuple[str, float], ...]] = {
    "div": ((ALU, 16.0), (IMAD, 6.0), (CONTROL, 8.0)),
    "rcp": ((ALU, 3.0), (IMAD, 4.0), (MUFU, 1.0), (CONTROL, 5.0)),
    "sqrt": ((ALU, 1.0), (IMAD, 4.0), (CONTROL, 4.0)),
}
"""Machine instructions from the call to the return for an operand of zero, by pipe, in the code of ptxas 13."""
EXPONENT = 0x7F800000


@dataclass(frozen=True)
class Subroutine:
    """The subroutine of one instruction: its facts, and the registers that hold the operands that decide."""

    facts: Facts
    operands: tuple[Row, ...]

    def callers(self, frame: Frame) -> list[int]:
        """The warps of a frame that call the subroutine at the instruction that they have reached."""
        operation, unusual = frame.operation, np.zeros(frame.lanes, np.bool_)
        for row in self.operands:
            exponent = frame.registers.bank_as(row.bits, np.dtype(np.uint32))[row.index, frame.columns] & EXPONENT
            unusual |= (exponent == 0) | (exponent == EXPONENT)
        unusual &= frame.active
        if operation.guard >= 0:
            unusual &= frame.values[operation.guard] != operation.guard_negated
        return [at for at in range(frame.warps) if unusual[at * WARP : (at + 1) * WARP].any()]


def subroutines(operations: Sequence[Operation], facts: Mapping[int, Facts]) -> dict[int, Subroutine]:
    """Return the subroutines that instructions may call, by program counter. A subroutine's own is past the last."""
    found: dict[int, Subroutine] = {}
    loaded: set[int] | None = None
    for operation in operations:
        words = operation.instruction.opcode.split(".")
        if words[0] not in CALLED or words[1:2] != ["rn"] or words[-1] != "f32" or operation.bound is None:
            continue
        if loaded is None:
            loaded = _loaded(facts)
        named = (operation.bound.operands[name] for name in ("a", "b") if name in operation.bound.operands)
        operands = (row for one in named for row in sorted(rows_named(operation.scope, one)))
        rows = tuple(row for row in operands if hash(row) not in loaded)
        if rows:
            one, called = facts[operation.pc], f"{words[0]}_called"
            number = len(operations) + len(found)
            found[operation.pc] = Subroutine(
                replace(one, pc=number, pipe=ALU, latency=called, reads=one.writes, machine=CALLED[words[0]]), rows
            )
    return found


def _loaded(facts: Mapping[int, Facts]) -> set[int]:
    """Return the registers whose values depend on loads, on other warps or on products."""
    loaded: set[int] = set()
    for one in facts.values():
        if one.pipe in (LSU, TENSOR) or one.collective or one.starts:
            loaded |= one.writes
    before = -1
    while len(loaded) != before:
        before = len(loaded)
        for one in facts.values():
            if not loaded.isdisjoint(one.reads):
                loaded |= one.writes
    return loaded
