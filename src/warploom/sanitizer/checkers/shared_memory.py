"""Data races in shared memory, across the generic and the async proxy.

Each access is compared with the last write of its granules, and a write also with the reads since. What must have
happened in between depends on both sides: `gaps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..core import Storing, deed, side, who
from ..happens_before.clocks import View
from ..happens_before.gaps import PENDING, epoch_gap, gap
from ..happens_before.state import ClusterState, Flight, lane_masks
from ..report.explain import Conflict, classify, history_of
from ..shadow.shadow import ASYNC, BARRIER, GENERIC, Access, Shadow, distinct
from .global_memory import GlobalRaces

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.memory import Region
    from ...emulator.program.code import Operation

Granules: TypeAlias = "np.ndarray | slice"


class Races(GlobalRaces):
    """The part of the sanitizer that watches memory."""

    # -- generic accesses ------------------------------------------------------------------------------------------

    def generic_read(
        self, frame: Frame, space: str, region: Region, index: np.ndarray, size: int, count: int, lanes: np.ndarray
    ) -> None:
        if space == "shared":
            self._generic(frame, region, index, size, count, lanes, writes=False)
        elif space == "global":
            self.global_access(frame, region, index, size, count, lanes, writes=False)

    def generic_write(
        self, frame: Frame, space: str, region: Region, index: np.ndarray, size: int, count: int, lanes: np.ndarray,
        values: np.ndarray,
    ) -> None:  # fmt: skip
        self.storing = Storing(region, index, size, lanes, values)
        if space == "shared":
            self._generic(frame, region, index, size, count, lanes, writes=True)
        elif space == "global":
            self.global_access(frame, region, index, size, count, lanes, writes=True)

    def atomic(self, frame: Frame, region: Region, index: np.ndarray, size: int, count: int, lanes: np.ndarray) -> None:
        state = self.state(frame.cta)
        self.storing = None
        if region in state.shadows:
            self._generic(frame, region, index, size, count, lanes, writes=True, atomic=True)
        else:
            self.global_access(frame, region, index, size, count, lanes, writes=True, atomic=True)

    def _generic(
        self,
        frame: Frame,
        region: Region,
        index: np.ndarray,
        size: int,
        count: int,
        lanes: np.ndarray,
        writes: bool,
        atomic: bool = False,
    ) -> None:
        state = self.state(frame.cta)
        shadow = state.shadows[region]
        code = frame.operation
        strong = atomic or code.order.strong
        granules = shadow.elements(index, size, count)
        view = state.view(frame)
        suspect = False
        for number in distinct(shadow.last[granules]):
            if number not in view.ordered:
                if self._suspect(state, number, view, writes, strong):
                    suspect = True
                elif number and not strong:
                    view.ordered.add(number)
        if suspect or (writes and self._readers_suspect(state, shadow, granules, view, False)):
            self._check_warps(state, shadow, frame, granules, lanes, writes, strong)
        clocks = state.of_frame(frame)
        masks = lane_masks(frame, lanes)
        if writes:
            self._note_writes(state, shadow, frame, granules, lanes, strong)
        else:
            self._note_reads(state, shadow, frame, granules, lanes)
        for clock, mask in zip(clocks, masks, strict=True):
            if mask:
                clock.touch(mask)
        if region is not frame.cta.shared:
            for clock, mask in zip(clocks, masks, strict=True):
                if mask:
                    state.note_remote(clock, state.owners[region], code)
                    self.check_started(state, clock, frame.cta, state.owners[region], code)
        if strong:
            self._synchronise(state, frame, region, index * size, lanes, writes or atomic, atomic)

    def _suspect(self, state: ClusterState, number: int, view: View, writes: bool, strong: bool) -> bool:
        """Whether the last write with this number may be a problem for a generic access."""
        if not number:
            return not writes
        earlier = state.accesses[number]
        if earlier.proxy == BARRIER:
            return True
        return bool(gap(earlier, view, False)) and not (strong and earlier.strong)

    def _readers_suspect(
        self, state: ClusterState, shadow: Shadow, granules: Granules, view: View, by_async: bool
    ) -> bool:
        """Whether a write may come too early for somebody who still reads."""
        front = view.p if by_async else view.c
        for row, me in enumerate(shadow.warps):
            if int(shadow.epochs[row][granules].max(initial=0)) > front[me]:
                return True
        if shadow.read_async:
            for number in distinct(shadow.readers[granules]):
                if any(not state.accesses[access].bit & view.known for access in state.readers.sets[number]):
                    return True
        return False

    def _check_warps(
        self,
        state: ClusterState,
        shadow: Shadow,
        frame: Frame,
        granules: np.ndarray,
        lanes: np.ndarray,
        writes: bool,
        strong: bool,
    ) -> None:
        """The exact check, warp by warp, of an access that may be a problem."""
        warp_of = lanes >> 5
        for at, clock in enumerate(state.of_frame(frame)):
            mine = granules[..., warp_of == at]
            if not mine.size:
                continue
            me = frame.first_warp + at
            now = Access(GENERIC, writes, frame.cta, me, clock.me, clock.epoch, frame.operation, strong)
            self._check(state, shadow, mine, now, View.of(clock))

    def _check(self, state: ClusterState, shadow: Shadow, granules: Granules, now: Access, view: View) -> None:
        """Compare one access with all earlier ones of its granules, and report what is not ordered."""
        by_async = now.proxy == ASYNC
        last = shadow.last[granules]
        for number in distinct(last):
            if number == 0:
                if not now.writes:
                    self._uninitialised(state, shadow, granules, last, now)
                continue
            earlier = state.accesses[number]
            missing = gap(earlier, view, by_async)
            if earlier.proxy == BARRIER:
                missing = missing or "barrier"
            if missing and not (now.strong and earlier.strong):
                self._report(state, shadow, granules, last == number, earlier, now, missing, view)
        if not now.writes:
            return
        for row, me in enumerate(shadow.warps):
            epochs = shadow.epochs[row][granules]
            latest = int(epochs.max(initial=0))
            if latest == 0 or (me == now.me and not by_async):
                continue
            missing = epoch_gap(me, latest, view, by_async)
            if missing:
                hits = epochs == latest
                code = self.machine.code.operations[int(shadow.codes[row][granules][hits].flat[0])]
                cta = state.cluster.ctas[me // state.per_cta]
                earlier = Access(GENERIC, False, cta, me % state.per_cta, me, latest, code)
                self._report(state, shadow, granules, hits, earlier, now, missing, view)
        if shadow.read_async:
            readers = shadow.readers[granules]
            for number in distinct(readers):
                for access in state.readers.sets[number]:
                    earlier = state.accesses[access]
                    if not earlier.bit & view.known:
                        self._report(state, shadow, granules, readers == number, earlier, now, PENDING, view)

    # -- keeping the shadow ----------------------------------------------------------------------------------------

    def _note_writes(
        self, state: ClusterState, shadow: Shadow, frame: Frame, granules: np.ndarray, lanes: np.ndarray, strong: bool
    ) -> None:
        code, cta = frame.operation, frame.cta
        numbers = [state.generic(clock, cta, code, True, strong, GENERIC) for clock in state.of_frame(frame)]
        if len(numbers) == 1:
            shadow.last[granules] = numbers[0]
        else:
            by_lane = np.asarray(numbers, np.int32)[lanes >> 5]
            shadow.last[granules] = by_lane
            lost = shadow.last[granules] != by_lane
            if not strong and lost.any():
                winner = int(shadow.last[granules][lost].flat[0])
                loser = int(np.broadcast_to(by_lane, lost.shape)[lost].flat[0])
                earlier, now = state.accesses[loser], state.accesses[winner]
                self._report(state, shadow, granules, lost, earlier, now, "same instruction", View.of(state.clocks[0]))
        self._clear(shadow, granules)

    @staticmethod
    def _clear(shadow: Shadow, granules: Granules) -> None:
        """Forget the reads of what is overwritten."""
        if shadow.warps:
            shadow.epochs[: len(shadow.warps), granules] = 0
        if shadow.read_async:
            shadow.readers[granules] = 0
        if shadow.tagged:
            shadow.untag(granules)

    @staticmethod
    def _note_reads(state: ClusterState, shadow: Shadow, frame: Frame, granules: np.ndarray, lanes: np.ndarray) -> None:
        pc = frame.operation.pc
        clocks = state.of_frame(frame)
        if len(clocks) == 1:
            row = shadow.row(clocks[0].me)
            shadow.epochs[row, granules] = clocks[0].epoch
            shadow.codes[row, granules] = pc
            return
        view = state.view(frame)
        if view.epochs is None:
            view.epochs = np.asarray([clock.epoch for clock in clocks], np.int32)
        rows = view.rows.get(shadow)
        if rows is None:
            rows = view.rows[shadow] = np.asarray([shadow.row(clock.me) for clock in clocks])
        warp_of = lanes >> 5
        places = rows[warp_of]
        shadow.epochs[places, granules] = view.epochs[warp_of]
        shadow.codes[places, granules] = pc

    def note_barrier(self, state: ClusterState, region: Region, offset: int, access: int) -> None:
        """The bytes of an mbarrier belong to it."""
        shadow = state.shadows[region]
        granules = shadow.span(offset, 8)
        shadow.last[granules] = access
        self._clear(shadow, granules)

    # -- asynchronous accesses -------------------------------------------------------------------------------------

    def async_write(
        self, state: ClusterState, region: Region, granules: Granules, flight: Flight, view: View, proxy: str = ASYNC
    ) -> int:
        """An operation is going to write; the access's number."""
        shadow = state.shadows[region]
        number = state.of_flight(flight, True, proxy)
        self._check_async(state, shadow, granules, state.accesses[number], view)
        shadow.last[granules] = number
        self._clear(shadow, granules)
        return number

    def async_read(self, state: ClusterState, region: Region, granules: Granules, flight: Flight, view: View) -> None:
        """An operation is going to read."""
        shadow = state.shadows[region]
        number = state.of_flight(flight, False, ASYNC)
        self._check_async(state, shadow, granules, state.accesses[number], view)
        shadow.read_async = True
        before = shadow.readers[granules]
        numbers = distinct(before)
        if not numbers:
            return  # a copy of no bytes
        if len(numbers) == 1:
            shadow.readers[granules] = self._joined(state, numbers[0], number)
        else:
            table = np.zeros(max(numbers) + 1, np.int32)
            for old in numbers:
                table[old] = self._joined(state, old, number)
            shadow.readers[granules] = table[before]

    @staticmethod
    def _joined(state: ClusterState, old: int, number: int) -> int:
        """A set of readers with one more. Of a warpgroup's wgmmas the newest is enough: they are waited for "
        "in order."""
        new = state.accesses[number]
        members = state.readers.sets[old]
        if new.operation is not None and new.operation.kind == "wgmma":
            members = tuple(
                access
                for access in members
                if state.accesses[access].me != new.me or state.accesses[access].operation.kind != "wgmma"  # type: ignore[union-attr]
            )
            old = state.readers.number(members)
        return state.readers.add(old, number)

    def _check_async(self, state: ClusterState, shadow: Shadow, granules: Granules, now: Access, view: View) -> None:
        by_async = now.proxy == ASYNC
        for number in distinct(shadow.last[granules]):
            if number == 0:
                suspect = not now.writes
            else:
                earlier = state.accesses[number]
                suspect = earlier.proxy == BARRIER or bool(gap(earlier, view, by_async))
            if suspect:
                self._check(state, shadow, granules, now, view)
                return
        if now.writes and self._readers_suspect(state, shadow, granules, view, by_async):
            self._check(state, shadow, granules, now, view)

    # -- strong accesses as synchronisation --------------------------------------------------------------------------

    def _synchronise(
        self, state: ClusterState, frame: Frame, region: Region, offsets: np.ndarray, lanes: np.ndarray,
        writes: bool, atomic: bool,
    ) -> None:  # fmt: skip
        """Release and acquire through memory: a lock or a flag in shared memory. PTX ISA 8.9.4."""
        sem = frame.operation.order.sem
        for at, (clock, mask) in enumerate(zip(state.of_frame(frame), lane_masks(frame, lanes), strict=True)):
            if not mask:
                continue
            for offset in set(offsets[lanes >> 5 == at].tolist()):
                place = state.places.get((region, offset))
                if place is not None and (atomic or not writes):
                    if sem in ("acquire", "acq_rel"):
                        clock.acquire(place)
                    else:
                        clock.remember(place)
                if writes:
                    carried = clock.release(mask) if sem in ("release", "acq_rel") else clock.published
                    if carried is not None:
                        if place is None or not atomic:
                            state.places[region, offset] = carried.copy()
                        else:
                            place.add(carried)

    # -- reports ---------------------------------------------------------------------------------------------------

    def _uninitialised(
        self, state: ClusterState, shadow: Shadow, granules: Granules, last: np.ndarray, now: Access
    ) -> None:
        rule = "uninitialised-shared-read" if now.proxy == GENERIC else "uninitialised-operand"
        if now.operation is not None and now.operation.kind == "store":
            rule = "uninitialised-shared-read"
        if self.findings.seen(rule, (now.code,)):
            return
        offset = self._offset(shadow, granules, last == 0)
        place = self.name(state, shadow.region, offset)
        address = self.place(state, shadow.region, offset, now.cta)
        self.findings.add(
            rule, f"{deed(now)} {place}, which nothing has written", (now.code,), now.cta, now.warp,
            sides=(side(now, address),), address=address,
        )  # fmt: skip

    @staticmethod
    def _offset(shadow: Shadow, granules: Granules, hits: np.ndarray) -> int:
        """The first byte of the first granule that was hit."""
        at = int(np.flatnonzero(hits.reshape(-1))[0])
        if isinstance(granules, slice):
            return (granules.start + at) * shadow.granule
        return int(np.broadcast_to(granules, hits.shape).reshape(-1)[at]) * shadow.granule

    def _report(
        self, state: ClusterState, shadow: Shadow, granules: Granules, hits: np.ndarray,
        earlier: Access, now: Access, missing: str, view: View,
    ) -> None:  # fmt: skip
        both_store = now.writes and earlier.writes and now.proxy == earlier.proxy == GENERIC and not earlier.strong
        if both_store and self.storing is not None and self.storing.region is shadow.region:
            where = np.arange(granules.start, granules.stop) if isinstance(granules, slice) else granules
            if self.storing.changes_nothing(np.broadcast_to(where, hits.shape)[hits], shadow.granule):
                missing = "same value"
        conflict = Conflict(state, shadow.region, earlier, now, missing)
        rule, severity, clause = classify(conflict)
        codes: tuple[Operation, ...] = (now.code, earlier.code)
        if self.findings.seen(rule, codes):
            return
        place = self.name(state, shadow.region, self._offset(shadow, granules, hits))
        same = " the same bytes" if who(earlier) != who(now) or earlier.code is not now.code else ""
        message = f"{deed(now)} {place}, and {deed(earlier)}{same} before; {clause}"
        address = self.place(state, shadow.region, self._offset(shadow, granules, hits), now.cta)
        sides = (side(now, address), side(earlier, address, before=True))
        self.findings.add(
            rule, message, codes, now.cta, now.warp, severity, sides, address, clause, history_of(conflict)
        )
