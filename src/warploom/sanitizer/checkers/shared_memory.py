"""Data races in shared memory, across the generic and the async proxy.

Each access is compared with the last write of its granules, and a write also with the reads since. The required order
depends on both sides: `gaps`. This checker owns the shadows: it records an access after judging it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.engines.matrix_operands import OperandPlace
from ...emulator.machine.events import Observer
from ...emulator.machine.mbarrier import MBarrier
from ...emulator.machine.places import Lanes
from ...isa import effects
from ..happens_before.access import ASYNC, BARRIER, GENERIC, Access, InFlight, by_rows, flights_of, writing_proxy
from ..happens_before.clocks import FULL, WarpClock
from ..happens_before.gaps import FENCE, PENDING, WEAK, epoch_gap, gap
from ..happens_before.journal import Journals
from ..happens_before.state import ClusterState, record_of
from ..happens_before.view import View
from ..report.explain import Conflict, classify, history_of
from ..report.words import deed, side, who
from ..shadow.covered import unordered_below, weak_below
from ..shadow.places import granules_of
from ..shadow.shadow import HALF, LOW, Granules, Shadow, distinct, uniform
from ..shadow.storing import Storing
from ..shadow.whole_boxes import WholeBox

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame, Issuer
    from ..context import Context


class SharedMemory(Observer):
    """See the module's docstring."""

    rules = (
        "data-race", "same-value-race", "unordered-first-guess", "warp-synchronous", "hand-off-scope",
        "uninitialised-shared-read", "uninitialised-operand", "generic-write-before-async-read",
        "generic-write-before-wgmma-read", "generic-access-before-async-write", "cp-async-before-wgmma",
        "cp-async-not-waited", "copy-not-waited", "stale-phase-wait", "operand-overwritten",
        "store-source-overwritten", "overlapping-copies", "mbarrier-bytes-accessed",
    )  # fmt: skip

    def __init__(self, context: Context) -> None:
        self.context = context
        self._storing: Storing | None = None
        self._strong = np.asarray([operation.order.strong for operation in context.machine.code.operations], np.bool_)
        self._operands: dict[int, tuple[object, np.ndarray]] = {}
        """Granules of matrix operands, by their chunk map and base."""

    # -- generic accesses ------------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        state = self.context.state(frame.cta)
        shadow = state.shadows.get(place.region)
        if shadow is None:
            return
        writes, strong = how != effects.READS, frame.operation.order.strong
        self._storing = Storing.of(place, values, self.context.sums.get(frame.operation.pc, 0))
        granules = shadow.elements(place.index, place.size, place.count)
        view = state.view(frame)
        suspect = False
        for number in distinct(shadow.last[granules]):
            if number not in view.ordered:
                if self._suspect(state, number, view, writes, strong):
                    suspect = True
                elif number and not strong:
                    view.ordered.add(number)
        if strong and shadow.under is not None and not suspect:
            suspect = bool(unordered_below(state, shadow, granules, view, False))
        if suspect or (writes and self._readers_suspect(state, shadow, granules, view, False)):
            self._check_warps(state, shadow, frame, granules, place.lanes, writes, strong)
        if writes:
            self._note_writes(state, shadow, frame, granules, place.lanes, strong)
        else:
            self._note_reads(state, shadow, frame, granules, place.lanes)

    def _suspect(self, state: ClusterState, number: int, view: View, writes: bool, strong: bool) -> bool:
        """True if the last write with this number may be a problem for a generic access."""
        if not number:
            return not writes
        earlier = state.accesses[number]
        if earlier.proxy == BARRIER or earlier in state.overlaps:
            return True
        return bool(gap(earlier, view, False)) and not (strong and earlier.strong)

    def _readers_suspect(
        self, state: ClusterState, shadow: Shadow, granules: Granules, view: View, by_async: bool
    ) -> bool:
        """True if a write may come too early for a thread that still reads."""
        front = view.p if by_async else view.c
        if any(latest > front[me] for me, latest in zip(shadow.warps, shadow.latest(granules), strict=True)):
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
        """Compare one access with all earlier ones of its granules, and report those that are not ordered."""
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
                hits = last == number
                if missing := self._left(state, shadow, granules, hits, earlier, now, missing, view):
                    self._report(state, shadow, granules, hits, earlier, now, missing, view)
            for first in state.overlaps.get(earlier, ()):
                if gap(first, view, False):
                    self._report(state, shadow, granules, last == number, first, now, PENDING, view)
                elif not now.writes:
                    self.context.findings.raise_to_error("overlapping-copies", (earlier.code, first.code))
        if now.strong and shadow.under is not None:
            self._check_covered(state, shadow, granules, now, view)
        if not now.writes:
            return
        for row, me in enumerate(shadow.warps):
            epochs = shadow.epochs[row][granules]
            if now.strong:
                epochs = np.where(self._strong[shadow.codes[row][granules]], 0, epochs)
            latest = int(epochs.max(initial=0))
            if latest == 0 or (me == now.me and not by_async):
                continue
            if missing := epoch_gap(me, latest, view, by_async):
                hits = epochs == latest
                code = self.context.machine.code.operations[int(shadow.codes[row][granules][hits].flat[0])]
                cta = state.cluster.ctas[me // state.per_cta]
                earlier = Access(GENERIC, False, cta, me % state.per_cta, me, latest, code)
                if missing := self._left(state, shadow, granules, hits, earlier, now, missing, view):
                    self._report(state, shadow, granules, hits, earlier, now, missing, view)
        if shadow.read_async:
            readers = shadow.readers[granules]
            for number in distinct(readers):
                for access in state.readers.sets[number]:
                    earlier = state.accesses[access]
                    if not earlier.bit & view.known:
                        self._report(state, shadow, granules, readers == number, earlier, now, PENDING, view)

    def _check_covered(self, state: ClusterState, shadow: Shadow, granules: Granules, now: Access, view: View) -> None:
        """Compare a strong access with weak writes that another strong one has covered."""
        assert shadow.under is not None
        under = shadow.under[granules]
        for number, missing in unordered_below(state, shadow, granules, view, now.proxy == ASYNC):
            earlier, hits = state.accesses[number], under == number
            if missing := self._left(state, shadow, granules, hits, earlier, now, missing, view):
                self._report(state, shadow, granules, hits, earlier, now, missing, view)

    @staticmethod
    def _left(
        state: ClusterState, shadow: Shadow, granules: Granules, hits: np.ndarray,
        earlier: Access, now: Access, missing: str, view: View,
    ) -> str:  # fmt: skip
        """What is still missing if the same lanes that made an access have released it, or carried it to the async
        proxy, each for itself; other lanes are not involved."""
        if earlier.proxy != GENERIC or missing not in (WEAK, FENCE):
            return missing
        me, epoch, clock, lanes = earlier.me, earlier.epoch, state.clocks[earlier.me], 0
        if earlier.writes:
            places = granules if isinstance(granules, np.ndarray) else np.arange(granules.start, granules.stop)
            touched = np.broadcast_to(places, hits.shape)[hits]
            lanes = state.notes(Journals).writers(me, epoch, shadow, touched)
        lanes = lanes or clock.recent.accessed.get((epoch, earlier.code.pc), FULL)
        heard = missing == FENCE or view.has_from(me, lanes, epoch) or view.heard_of(me, epoch)
        if now.proxy != ASYNC:
            return "" if heard else missing
        return "" if view.fenced(clock, lanes, epoch, now) else FENCE if heard else missing

    # -- keeping the shadow ----------------------------------------------------------------------------------------

    def _note_writes(
        self, state: ClusterState, shadow: Shadow, frame: Frame, granules: np.ndarray, lanes: np.ndarray, strong: bool
    ) -> None:
        code, cta = frame.operation, frame.cta
        covered = weak_below(state, shadow, granules) if strong else None
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
        shadow.clear(granules)
        if covered is not None:
            shadow.cover(granules, covered)

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

    # -- mbarriers -------------------------------------------------------------------------------------------------

    def made(self, kind: str, what: MBarrier, by: Issuer) -> None:
        """The bytes of an mbarrier belong to it."""
        if isinstance(what, MBarrier):
            self._note_barrier(what, record_of(what).access)

    def unmade(self, kind: str, what: MBarrier, by: Issuer) -> None:
        """The bytes become ordinary memory again, with undefined contents."""
        if isinstance(what, MBarrier):
            self._note_barrier(what, 0)

    def _note_barrier(self, barrier: MBarrier, access: int) -> None:
        shadow = self.context.state(barrier.cta).shadows[barrier.cta.shared]
        granules = shadow.span(barrier.offset, 8)
        shadow.settle(granules)
        shadow.last[granules] = access
        shadow.clear(granules)

    # -- asynchronous accesses -------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        self._storing = None
        for flight in flights_of(operation):
            state = self.context.state(flight.cta)
            together = flight.starts.parts == "warpgroup"
            view = state.view(operation.issuer.frame) if together else View.of(state.clocks[flight.me])
            reads = 0
            for source in operation.sources:
                shadow = state.shadows.get(getattr(source, "region", None))  # type: ignore[arg-type]
                if shadow is not None:
                    rows = state.of_frame(operation.issuer.frame) if together and by_rows(source) else []
                    reads = reads or state.of_flight(flight, False, ASYNC)
                    self._async_read(state, shadow, source, reads, view, rows)
            for target in operation.targets:
                shadow = state.shadows.get(getattr(target, "region", None))  # type: ignore[arg-type]
                if shadow is not None:
                    self._async_write(state, shadow, granules_of(shadow, target, flight, self._operands), flight, view)

    def _async_write(
        self, state: ClusterState, shadow: Shadow, granules: Granules, flight: InFlight, view: View
    ) -> None:
        """Judge an operation that will write."""
        span = granules if isinstance(granules, slice) else None
        if not (granules.size if isinstance(granules, np.ndarray) else granules.stop - granules.start):
            return
        number = state.of_flight(flight, True, writing_proxy(flight))
        now = state.accesses[number]
        box = shadow.boxes.held.get(span.start) if span is not None else None
        if box is None or slice(box.start, box.stop) != span or self._box_suspect(state, box, now, view):
            shadow.settle(granules)
            self._check_async(state, shadow, granules, now, view)
        if span is not None and not (span.start | span.stop) % shadow.per_chunk:
            shadow.boxes.hold(WholeBox(span.start, span.stop, number))
            return
        shadow.last[granules] = number
        shadow.clear(granules)

    def _box_suspect(self, state: ClusterState, box: WholeBox, now: Access, view: View) -> bool:
        """True if earlier accesses of the box may be a problem for a copy that overwrites it."""
        if self._write_suspect(state, box.number, now, view):
            return True
        for _, readers in box.readers.values():
            for access in state.readers.sets[readers]:
                if not state.accesses[access].bit & view.known:
                    return True
        return False

    def _async_read(
        self, state: ClusterState, shadow: Shadow, source: object, number: int, view: View, rows: list[WarpClock],
    ) -> None:  # fmt: skip
        """Judge an operation that will read. `rows`: the warps that share the operand's rows."""
        now = state.accesses[number]
        assert now.flight is not None
        boxes = shadow.boxes.around(source.map) if isinstance(source, OperandPlace) else []
        if boxes and not any(self._write_suspect(state, box.number, now, view) for box in boxes):
            for box in boxes:
                shadow.boxes.read(box, source.map, number)  # type: ignore[attr-defined]
            return
        granules = granules_of(shadow, source, now.flight, self._operands)
        shadow.settle(granules)
        shadow.read_async = True
        pair = uniform(shadow.pairs[granules] if isinstance(granules, slice) else shadow.pairs.take(granules))
        if pair is not None and not self._write_suspect(state, pair & LOW, now, view):
            shadow.pairs[granules] = pair & LOW | state.joined(pair >> HALF, number) << HALF
            return
        if not rows:
            self._check_async(state, shadow, granules, now, view)
        elif self._async_suspect(state, shadow, granules, now, view):
            for at, clock in enumerate(rows):
                mine = replace(now, warp=now.warp + at)
                part = shadow.of_chunks(np.array_split(source.map.chunks, len(rows))[at])  # type: ignore[attr-defined]
                self._check_async(state, shadow, part, mine, View.of(clock))
        shadow.note_reader(granules, number, state.joined)

    def _check_async(self, state: ClusterState, shadow: Shadow, granules: Granules, now: Access, view: View) -> None:
        if self._async_suspect(state, shadow, granules, now, view):
            self._check(state, shadow, granules, now, view)

    def _async_suspect(self, state: ClusterState, shadow: Shadow, granules: Granules, now: Access, view: View) -> bool:
        """True if earlier accesses of these granules may be a problem for an operation."""
        if any(self._write_suspect(state, number, now, view) for number in distinct(shadow.last[granules])):
            return True
        return now.writes and self._readers_suspect(state, shadow, granules, view, now.proxy == ASYNC)

    @staticmethod
    def _write_suspect(state: ClusterState, number: int, now: Access, view: View) -> bool:
        """True if the last write with this number may be a problem for an operation."""
        if not number:
            return not now.writes
        earlier = state.accesses[number]
        return earlier.proxy == BARRIER or earlier in state.overlaps or bool(gap(earlier, view, now.proxy == ASYNC))

    # -- reports ---------------------------------------------------------------------------------------------------

    def _uninitialised(
        self, state: ClusterState, shadow: Shadow, granules: Granules, last: np.ndarray, now: Access
    ) -> None:
        operand = now.flight is not None and now.flight.starts.parts == "warpgroup"
        rule = "uninitialised-operand" if operand else "uninitialised-shared-read"
        offset = shadow.first_byte(granules, last == 0)
        if offset < self.context.machine.code.shared_start or self.context.findings.seen(rule, (now.code,)):
            return  # the bytes below are the system's, whose contents are defined
        place = self.context.name(state, shadow.region, offset)
        address = self.context.place(state, shadow.region, offset, now.cta)
        self.context.findings.add(
            rule, f"{deed(now)} {place}, which nothing has written", (now.code,), now.cta, now.warp,
            sides=(side(now, address),), address=address,
        )  # fmt: skip

    def _report(
        self, state: ClusterState, shadow: Shadow, granules: Granules, hits: np.ndarray,
        earlier: Access, now: Access, missing: str, view: View,
    ) -> None:  # fmt: skip
        both_store = now.writes and earlier.writes and now.proxy == earlier.proxy == GENERIC and not earlier.strong
        if both_store and self._storing is not None and self._storing.place.region is shadow.region:
            where = np.arange(granules.start, granules.stop) if isinstance(granules, slice) else granules
            if self._storing.changes_nothing(np.broadcast_to(where, hits.shape)[hits], shadow.granule):
                missing = "same value"
        parts, near = view.parts.get(earlier.me, ()), view.near[earlier.me]
        conflict = Conflict(state, shadow.region, earlier, now, missing, parts, near)
        rule, severity, clause = classify(conflict, self.context)
        if rule == "overlapping-copies":
            state.overlaps[now] = (*state.overlaps.get(now, ()), earlier)
        if self.context.findings.seen(rule, codes := conflict.codes(clause), severity):
            return
        offset = shadow.first_byte(granules, hits)
        place = self.context.name(state, shadow.region, offset)
        same = " the same bytes" if who(earlier) != who(now) or earlier.code is not now.code else ""
        message = f"{deed(now)} {place}, and {deed(earlier)}{same} before; {clause}"
        address = self.context.place(state, shadow.region, offset, now.cta)
        sides = (side(now, address), side(earlier, address, before=True))
        self.context.findings.add(
            rule, message, codes, now.cta, now.warp, severity, sides, address, clause, history_of(conflict)
        )
