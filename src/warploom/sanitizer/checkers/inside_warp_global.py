"""Lanes of one warp that access the same bytes of global memory without synchronising in between.

As `inside_warp`, which enters what orders lanes into the same journal. The buffers' shadow shows whether the warp
itself accessed these bytes since its lanes synchronised; only then the journal is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...emulator.engines.boxes import Box
from ...emulator.engines.bulk import Bytes, Scattered
from ...emulator.machine.events import Observer
from ...emulator.machine.places import Lanes
from ...emulator.machine.units import WARPGROUP_MMA
from ...isa import effects
from ..happens_before.journal import WARP, Entry, GlobalEntry, Journals
from ..happens_before.lane_order import LaneConflict, clashes
from ..report.lanes import apart, holder_of
from ..report.words import actor
from ..shadow.global_shadow import ACTOR_SHIFT, GlobalShadow, pack
from ..shadow.storing import Storing

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ..context import Context
    from ..happens_before.clocks import WarpClock
    from ..happens_before.state import ClusterState


class InsideWarpGlobal(Observer):
    """See the module's docstring. Comes before the checker that fills the shadows of buffers, and before
    `InsideWarp`: what a strong access orders follows it in the journal."""

    rules = ("global-lane-race",)
    ignores = (WARPGROUP_MMA,)

    def __init__(self, context: Context) -> None:
        self.context = context

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if place.space == "global" and how != "changes":
            storing = None if frame.operation.order.strong else Storing.of(place, values, 0)
            self._accessed(frame, how != effects.READS, place, storing)

    def issued(self, operation: AsyncOperation) -> None:
        """cp.async reads global memory as ld does; a bulk copy accesses it for the lane that starts it."""
        by = operation.issuer
        for target in operation.targets:
            place = self.context.origins(target) if isinstance(target, Scattered) else None
            if place is not None:
                self._accessed(by.frame, False, place, None)
        for writes, places in ((False, operation.sources), (True, operation.targets)):
            for area in places if by.lane is not None else ():
                region = self.context.region_of(self.context.state(by.frame.cta), area)
                if region is not None and isinstance(area, Bytes | Box):
                    self._copies(by.frame, by.lane or 0, writes, self.context.buffer(region), area)

    def _copies(self, frame: Frame, lane: int, writes: bool, shadow: GlobalShadow, area: Bytes | Box) -> None:
        state = self.context.state(frame.cta)
        clocks = state.of_frame(frame)
        clock = clocks[lane // WARP]
        if not shadow.written and not (writes and shadow.was_read):
            return
        for before in shadow.views(area, self.context.machine)[: 2 if writes else 1]:
            hits = self._own(state, clock, before)
            if hits.any():
                granules = shadow.granules_in(before, hits)
                lanes = np.full(granules.shape, lane)
                entry = Entry(shadow, granules, lanes, clocks[0].me, writes, False, frame.operation)
                for clash in clashes(state.notes(Journals).of(clock), clock.me, entry):
                    self._report(state, frame, clock, entry, clash)

    def _accessed(self, frame: Frame, writes: bool, place: Lanes, storing: Storing | None) -> None:
        state, shadow = self.context.state(frame.cta), self.context.buffer(place.region)
        clocks, journals = state.of_frame(frame), state.notes(Journals)
        epochs = tuple([clock.epoch for clock in clocks])
        entry = GlobalEntry(shadow, place, clocks[0].me, writes, frame.operation, epochs)
        for clock in self._touched_before(state, shadow, place, clocks, writes):
            for clash in clashes(journals.of(clock), clock.me, entry):
                both, codes = writes and clash.entry.writes, (clash.entry.code, frame.operation)
                if self.context.guessed(*codes) or self.context.guessed(*codes[::-1]):
                    continue
                if not (both and storing is not None and storing.changes_nothing(clash.granules, shadow.granule)):
                    self._report(state, frame, clock, entry, clash)
        for clock in clocks:
            journals.of(clock).append(entry)

    @staticmethod
    def _touched_before(
        state: ClusterState, shadow: GlobalShadow, place: Lanes, clocks: list[WarpClock], writes: bool
    ) -> list[WarpClock]:
        """The warps that were the last to write or read some of these bytes, since their lanes synchronised."""
        if not shadow.written and not (writes and shadow.was_read):
            return []
        (granules, last), found = shadow.before(place), []
        kept = [last] if shadow.written else []
        kept += [shadow.reads[granules]] if writes and shadow.was_read else []
        kept = [before for before in kept if np.count_nonzero(before)]
        for clock in clocks if kept else ():
            if any(np.count_nonzero(InsideWarpGlobal._own(state, clock, each)) for each in kept):
                found.append(clock)
        return found

    @staticmethod
    def _own(state: ClusterState, clock: WarpClock, before: np.ndarray) -> np.ndarray:
        """Which of these accesses the warp itself made since its lanes synchronised."""
        me = state.actor(clock.me)
        own: np.ndarray = (before >= pack(me, clock.floor, 0, 0)) & (before < (me + 1) << ACTOR_SHIFT)
        return own

    def _report(
        self, state: ClusterState, frame: Frame, clock: WarpClock, now: Entry | GlobalEntry, clash: LaneConflict
    ) -> None:
        """All lanes that race count for `loose`, but one is named."""
        entry, first = clash.entry, clock.me % state.per_cta
        if now.writes == entry.writes:
            self.context.loose.note_other()
        else:
            code, lanes = (entry.code, clash.owners) if now.writes else (now.code, clash.lanes)
            self.context.loose.note_lanes(code.pc, frame.cta.index, first, lanes)
        one, held, severity = holder_of(self.context, state, clock, now, clash)
        codes = (now.code, entry.code)
        if self.context.findings.seen("global-lane-race", codes, severity):
            return
        place = f"`{now.shadow.region.name}` at byte {int(clash.granules[one]) * now.shadow.granule}"
        told = apart(now, entry, place, int(clash.lanes[one]), int(clash.owners[one]), held)
        self.context.findings.add(
            "global-lane-race", f"{actor(frame.cta, first)} {told}", codes, frame.cta, first, severity
        )
