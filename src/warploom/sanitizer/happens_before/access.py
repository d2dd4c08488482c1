"""Accesses and asynchronous operations as the clocks see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...emulator.engines.matrix_operands import OperandPlace
from ...isa import effects

if TYPE_CHECKING:
    import numpy as np

    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.operation import Operation

GENERIC, ASYNC, COPY, BARRIER = "generic", "async", "copy", "barrier"
"""What an access was made by: the generic proxy, the async proxy, an asynchronous copy of the generic side
(cp.async, st.async), or mbarrier.init, whose bytes then belong to the barrier."""


@dataclass(eq=False, slots=True)
class Flight:
    """An asynchronous operation as the clocks see it; of one that each warp makes for itself, one warp's part.

    Attributes:
        read, done: one bit each: "it has read its sources", "it is done" (which implies the first).
        me: the component of the warp that issued it.
        starts: what its row says about it.
        phase: of the barrier that it signals, when it was issued; -1 without one.
        weak: of an operation of a warpgroup, what its warps had done when they issued it.
        waiting: of a warp's operation, the lanes that have a part in it and have not waited for it.
        landed: of a warp's operation, the warp's epoch when a lane has waited for its part.
        used: the warp's epoch when it first read a register that the operation loads, or -1.
    """

    read: int
    done: int
    operation: AsyncOperation
    cta: Cta
    warp: int
    me: int
    starts: effects.Starts
    phase: int = -1
    weak: np.ndarray | None = None
    waiting: int = 0
    landed: int = 0
    used: int = -1

    @property
    def all(self) -> int:
        return self.read | self.done

    @property
    def number(self) -> int:
        """Counted from 0 within its cluster."""
        return (self.read.bit_length() - 1) // 2

    @property
    def code(self) -> Operation:
        return self.operation.issuer.operation

    @property
    def committed_in(self) -> str:
        """The family whose commit covers it, by a group or by an arrival; "" where there is none."""
        return self.starts.committed_in

    @property
    def family(self) -> str:
        """The family of groups in which it is waited for; "" where bytes on a barrier tell that it is done."""
        return self.starts.group


def flights_of(operation: AsyncOperation) -> tuple[Flight, ...]:
    """The flights of an operation, one for each warp that makes its own part; () for an arrival."""
    return operation.mark if isinstance(operation.mark, tuple) else ()


@dataclass(eq=False, slots=True)
class Access:
    """One access, or all equal ones of a warp in one epoch. Never changed.

    Attributes:
        proxy: one of the four above; writes: whether it writes; strong: relaxed or stronger, atomics too.
        cta, warp: who (the warp's number in its CTA); me: the warp's component in the cluster's clocks.
        epoch: of a warp's access; bit: what must be known of an asynchronous one.
        code: the instruction; flight: the asynchronous operation; lane: that issued it.
    """

    proxy: str
    writes: bool
    cta: Cta
    warp: int
    me: int
    epoch: int
    code: Operation
    strong: bool = False
    bit: int = 0
    flight: Flight | None = None
    lane: int | None = None


def by_rows(source: object) -> bool:
    """Whether each warp of a warpgroup reads a quarter of a wgmma's operand for itself: of A, its own 16 rows.

    The ISA does not say so (9.7.15.4); FlashAttention-3 relies on it, which hands P over inside a warp.
    """
    return isinstance(source, OperandPlace) and source.name == "a"


def in_order(earlier: Flight | None, later: Flight) -> bool:
    """Whether a wait that proves the later operation done proves the earlier one done."""
    if earlier is None or earlier.me != later.me or earlier.family != later.family:
        return False
    return earlier.operation.issuer.lane_of_warp == later.operation.issuer.lane_of_warp


def writing_proxy(flight: Flight) -> str:
    """By which proxy an operation writes, as its row says."""
    writes = (one for one in effects.accesses(flight.code.effects, effects.RUN) if one.how != effects.READS)
    return ASYNC if any(one.proxy == effects.ASYNC for one in writes) else COPY
