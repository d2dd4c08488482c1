"""Accesses and asynchronous operations, as the clocks represent them."""

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
"""The source of an access: the generic proxy, the async proxy, an asynchronous copy of the generic side
(cp.async, st.async), or mbarrier.init, whose bytes then belong to the barrier."""


@dataclass(eq=False, slots=True)
class InFlight:
    """An asynchronous operation, as the clocks represent it; if each warp performs its own part, one warp's part.

    Attributes:
        read, done: one bit each: "has read its sources", "is complete" (which implies the first).
        me: the component of the warp that issued it.
        starts: what its table row says about it.
        phase: of the barrier that it signals, when it was issued; -1 without one.
        weak: for a warpgroup operation, what its warps had done when they issued it.
        heard: with a barrier, how far its warp knew other warps to have got when it issued it, by component; of its
            own warp, the epoch of the latest access.
        waiting: for a warp's operation, the lanes that take part in it and have not waited for it.
        landed: for a warp's operation, the warp's epoch when a lane has waited for its part.
        used: True once the warp has read a register that the operation loads.
        stored: the warp's epoch when all loaded values that it stores had been stored, or -1.
        replaced: True if another load took the same registers before one was read.
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
    heard: np.ndarray | None = None
    waiting: int = 0
    landed: int = 0
    used: bool = False
    stored: int = -1
    replaced: bool = False

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
        """The family whose commit covers it, by a group or by an arrival; "" if there is none."""
        return self.starts.committed_in

    @property
    def family(self) -> str:
        """The family of groups in which it is waited for; "" if bytes on a barrier signal its completion."""
        return self.starts.group


def flights_of(operation: AsyncOperation) -> tuple[InFlight, ...]:
    """The flights of an operation, one for each warp that makes its own part; () for an arrival."""
    return operation.mark if isinstance(operation.mark, tuple) else ()


@dataclass(eq=False, slots=True)
class Access:
    """One access, or all equal accesses of a warp in one epoch. Immutable.

    Attributes:
        proxy: one of the four above; writes: True for a write; strong: relaxed or stronger, including atomics.
        cta, warp: the issuer (the warp's index in its CTA); me: the warp's component in the cluster's clocks.
        epoch: of a warp's access; bit: for an asynchronous access, the bit that must be known.
        code: the instruction; flight: the asynchronous operation; lane: the issuing lane.
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
    flight: InFlight | None = None
    lane: int | None = None


def by_rows(source: object) -> bool:
    """True if each warp of a warpgroup reads its own quarter of a wgmma's operand: for A, its own 16 rows.

    The ISA does not say so (9.7.15.4); FlashAttention-3 relies on it when it passes P within a warp.
    """
    return isinstance(source, OperandPlace) and source.name == "a"


def in_order(earlier: InFlight | None, later: InFlight) -> bool:
    """True if a wait that proves the later operation complete also proves the earlier one complete."""
    if earlier is None or earlier.me != later.me or earlier.family != later.family:
        return False
    return earlier.operation.issuer.lane_of_warp == later.operation.issuer.lane_of_warp


def writing_proxy(flight: InFlight) -> str:
    """The proxy through which an operation writes, from its table row."""
    writes = (one for one in effects.accesses(flight.code.effects, effects.RUN) if one.how != effects.READS)
    return ASYNC if any(one.proxy == effects.ASYNC for one in writes) else COPY
