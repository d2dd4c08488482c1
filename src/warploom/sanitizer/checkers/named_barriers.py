"""Named barriers that groups of warps use one after the other without synchronisation in between.

A barrier counts arrivals, not warps (PTX ISA 9.7.13.1). If the warps of the next use may arrive before the last use is
complete, they can be counted in place of others, and either group passes too early or waits for ever. So a warp that
arrives for a new use must know of all arrivals of the previous one: it took part and waited, or synchronised later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import BarrierUse, Observer
from ...emulator.machine.mbarrier import Event, MBarrier
from ...emulator.ops.barriers import BarrierGeneration
from ..report.findings import at
from ..report.words import actor

if TYPE_CHECKING:
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.operation import Operation
    from ..context import Context


class BarrierUses:
    """One barrier: its current use, and the epochs in which warps arrived for it and for the previous one (0: none)."""

    def __init__(self, warps: int) -> None:
        self.round: BarrierUse | None = None
        self.code: Operation | None = None
        self.now = np.zeros(warps, np.int32)
        self.before = np.zeros(warps, np.int32)

    def begin(self, use: BarrierUse) -> None:
        self.round, self.before = use, self.now
        self.now = np.zeros_like(self.before)


@dataclass(eq=False)
class UsesOfCluster:
    """By the rank of the CTA and the barrier's number."""

    by_barrier: dict[tuple[int, int], BarrierUses] = field(default_factory=dict)


class NamedBarriers(Observer):
    """See the module's docstring."""

    rules = ("barrier-reused-too-early",)

    def __init__(self, context: Context) -> None:
        self.context = context

    def arrived(self, on: MBarrier | BarrierUse, event: Event) -> None:
        if not isinstance(on, BarrierGeneration):
            return
        frame = event.by.frame
        state = self.context.state(frame.cta)
        every, key = state.notes(UsesOfCluster).by_barrier, (frame.cta.rank, on.number)
        uses = every.get(key)
        if uses is None:
            uses = every[key] = BarrierUses(state.count)
        if uses.round is not on:
            uses.begin(on)
        for clock, _ in state.active(frame):
            unknown = np.flatnonzero(clock.weak < uses.before)
            unknown = unknown[unknown != clock.me]
            if unknown.size and uses.code is not None:
                self._report(frame.cta, clock.me % state.per_cta, int(unknown[0]) % state.per_cta, on.number,
                             (frame.operation, uses.code))  # fmt: skip
            uses.now[clock.me] = clock.epoch
        uses.code = frame.operation

    def _report(self, cta: Cta, warp: int, other: int, number: int, codes: tuple[Operation, ...]) -> None:
        if self.context.findings.seen("barrier-reused-too-early", codes):
            return
        self.context.findings.add(
            "barrier-reused-too-early",
            f"{actor(cta, warp)} arrives at barrier {number} with {at(codes[0])} and does not know that warp {other} "
            f"arrived for its last use with {at(codes[1])}: it may be counted there in place of another warp",
            codes, cta, warp,
        )  # fmt: skip
