"""Lanes that access data whose mbarrier, or flag in global memory, only other lanes of their warp have waited for.

A wait makes data known only to the threads that wait (PTX ISA 9.7.13.15.16, 8.9.5). Warp-wide instructions (ldmatrix,
wgmma) are not checked, because their lanes converge. In global memory only the accesses of other clusters count;
`GlobalMemory`, which knows them, calls this checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.places import Lanes
from ...isa import effects
from ..happens_before.access import BARRIER
from ..happens_before.partial_waits import LaneWait, PartialWaits
from ..report.unwaited import lanes_in, report_untold
from ..shadow.shadow import distinct

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.clocks import WarpClock
    from ..happens_before.state import ClusterState
    from ..shadow.shadow import Shadow


class UnwaitedLanes(Observer):
    """See the module's docstring."""

    rules = ("lane-not-waited",)

    def __init__(self, context: Context) -> None:
        self.context = context

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        state = self.context.state(frame.cta)
        ahead = state.notes(PartialWaits).ahead
        if not ahead or frame.operation.order.strong:
            return
        shadow = state.shadows.get(place.region)
        row = effects.accesses(frame.operation.effects)
        if shadow is None or (row and row[0].lanes == "any"):
            return
        granules = shadow.elements(place.index, place.size, place.count)
        for number, clock in enumerate(state.of_frame(frame)):
            waits = ahead.get(clock.me)
            of_warp = place.lanes >> 5 == number
            if waits and of_warp.any():
                self._check(state, shadow, frame, clock, granules[..., of_warp], place.lanes[of_warp], how)

    def _check(
        self, state: ClusterState, shadow: Shadow, frame: Frame, clock: WarpClock, granules: np.ndarray,
        lanes: np.ndarray, how: str,
    ) -> None:  # fmt: skip
        behind = state.notes(PartialWaits)
        last = shadow.last[granules]
        for number in distinct(last):
            earlier = state.accesses[number] if number else None
            if (
                earlier is None
                or earlier.proxy == BARRIER
                or earlier.strong
                or (earlier.me == clock.me and not earlier.bit)
            ):
                continue
            mask = lanes_in(lanes, last == number)
            found = behind.untold(clock.me, mask, earlier.me, earlier.epoch, earlier.bit)
            if found is not None:
                self._report(state, frame, clock, mask & ~found.lanes, found, earlier.code, "wrote")
        if how == effects.READS:
            return
        for number in distinct(shadow.readers[granules]) if shadow.read_async else ():
            mask = lanes_in(lanes, shadow.readers[granules] == number)
            for access in state.readers.sets[number]:
                earlier = state.accesses[access]
                found = behind.untold(clock.me, mask, earlier.me, earlier.epoch, earlier.bit)
                if found is not None:
                    self._report(state, frame, clock, mask & ~found.lanes, found, earlier.code, "read")
        for row, me in enumerate(shadow.warps):
            epochs = shadow.epochs[row][granules]
            latest = int(epochs.max(initial=0))
            if me == clock.me or not latest:
                continue
            mask = lanes_in(lanes, epochs == latest)
            found = behind.untold(clock.me, mask, me, latest, 0)
            if found is not None:
                code = self.context.machine.code.operations[int(shadow.codes[row][granules][epochs == latest].flat[0])]
                self._report(state, frame, clock, mask & ~found.lanes, found, code, "read")

    def _report(
        self,
        state: ClusterState,
        frame: Frame,
        clock: WarpClock,
        mask: int,
        wait: LaneWait,
        earlier: Operation,
        did: str,
    ) -> None:
        report_untold(self.context, frame, clock.me % state.per_cta, mask, wait, earlier, did)
