"""Data races in global memory, also between CTAs, and across the two proxies.

As in shared memory, but over the whole grid: clusters synchronise only by flags (`flags`). Lanes of one warp are told
apart here only if one of them raises a flag (`divergent_lanes`); for the rest see `inside_warp_global`. What an access
must know of an earlier access by another thread:

    earlier                 later                  must be known
    st, ld, atom            ld, st, atom           its epoch, unless both are strong, of one size, and each in the
                                                   other's scope
    st, atom                copy that reads/writes that epoch, carried by a fence.proxy.async
    bulk store              anything               that it is complete: wait_group, not wait_group.read

An implicit proxy fence follows the completion of a bulk store, so none is asked for behind it, even if the later access
is a copy of another CTA. PTX ISA 8.9.5 taken literally orders accesses through the async proxy only within a CTA, but
published kernels pass sums of bulk reductions on by a flag alone (FlashAttention-3's deterministic backward pass).

PTX ISA 8.7.1 (data races), 8.9.5 (causality), 9.7.9.25.2 (proxies), 9.7.9.27.2 (groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.engines.boxes import Box
from ...emulator.engines.bulk import Bytes, Scattered
from ...emulator.machine.events import Observer
from ...emulator.machine.finding import Finding, Side
from ...emulator.machine.places import Lanes
from ...emulator.machine.units import WARPGROUP_MMA
from ...isa import effects
from ..global_lanes import GlobalLanes
from ..happens_before.access import InFlight, flights_of
from ..happens_before.clocks import WarpClock
from ..happens_before.flags import knows
from ..happens_before.partial_waits import PartialWaits
from ..happens_before.scopes import LEVELS, needed
from ..happens_before.state import ClusterState
from ..report.fence_place import fence_place
from ..report.findings import at
from ..report.global_verdict import (
    APART,
    BETWEEN_GPUS,
    FENCE,
    NO_ORDER,
    OF_ONE_GPU,
    SAME_INSTRUCTION,
    SCOPE,
    SIZES,
    UNRELEASED,
    told_loosely,
    verdict,
)  # fmt: skip
from ..report.unwaited import lanes_in
from ..report.words import actor
from ..rules import ERROR, WARNING
from ..shadow.duplicate_writes import NOT_COMPLETE, SAME, DuplicateWrites
from ..shadow.global_shadow import ACTOR_SHIFT, GlobalShadow, UnpackedAccess, pack, unpack
from ..shadow.shadow import distinct
from ..shadow.storing import Storing

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.operation import Operation
    from ..context import Context


class GlobalMemory(Observer):
    """See the module's docstring."""

    rules = (*OF_ONE_GPU, *BETWEEN_GPUS)
    ignores = (WARPGROUP_MMA,)

    def __init__(self, context: Context) -> None:
        self.context = context
        self._storing: Storing | None = None
        self._last: tuple[int, AsyncOperation] | None = None
        self._twice = DuplicateWrites(context)
        self.lanes = GlobalLanes(context)

    # -- generic accesses ------------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if place.space == "global" and how != "changes":
            self._storing = Storing.of(place, values, self.context.sums.get(frame.operation.pc, 0))
            self._generic(frame, how, place)

    copied = accessed

    def _generic(self, frame: Frame, how: str, place: Lanes, flights: Sequence[InFlight] = ()) -> None:
        """Lanes access global memory with ld, st, atom, red or cp.async, whose `flights` read, one for each warp."""
        writes, lanes = how != effects.READS, place.lanes
        state = self.context.state(frame.cta)
        shadow = self.context.buffer(place.region)
        code = frame.operation
        strong = code.order.strong
        level = LEVELS[code.order.scope] if strong else 0
        clocks = state.of_frame(frame)
        granules, last = shadow.before(place)
        base = state.actor(clocks[0].me)
        mine = base if frame.warps == 1 else base + (lanes >> 5)
        if writes:
            self._wrote(state, shadow)
        if shadow.written:
            for each in (last,) if level else (last, *(kept[granules] for kept in shadow.strong)):
                self._compare(state, shadow, frame, granules, lanes, mine, each, True, writes, level)
        if writes and shadow.was_read:
            for each in (shadow.reads, shadow.others, *shadow.readers):
                self._compare(state, shadow, frame, granules, lanes, mine, each[granules], False, writes, level)
        numbers: np.ndarray | int
        if flights:
            by_warp = {each.me - clocks[0].me: each.number for each in flights}
            packed = [pack(base + at, by_warp.get(at, 0), code.pc, level, True) for at in range(frame.warps)]
            numbers = np.asarray(packed, np.int64)[lanes >> 5]
        elif frame.warps == 1:
            numbers = pack(base, clocks[0].epoch, code.pc, level)
        else:
            packed = [pack(base + number, clock.epoch, code.pc, level) for number, clock in enumerate(clocks)]
            numbers = np.asarray(packed, np.int64)[lanes >> 5]
        if writes:
            shadow.write(granules, last, numbers, level, state.count)
            if frame.warps > 1 and not strong and not place.disjoint:
                self._check_same(state, shadow, frame, granules, numbers)  # type: ignore[arg-type]
        else:
            shadow.read(granules, numbers, state.count)

    def _wrote(self, state: ClusterState, shadow: GlobalShadow) -> None:
        if not shadow.written:
            shadow.written = True
            shadow.settle(self.context.machine, state.count)

    def _compare(
        self, state: ClusterState, shadow: GlobalShadow, frame: Frame, granules: np.ndarray, lanes: np.ndarray,
        mine: np.ndarray | int, before: np.ndarray, earlier_writes: bool, writes: bool, level: int,
    ) -> None:  # fmt: skip
        """Look for accesses of other warps that are not ordered before this access."""
        if not np.count_nonzero(before):
            return
        foreign = (before >> ACTOR_SHIFT != mine) & (before != 0)
        if not np.count_nonzero(foreign):
            return
        ahead = state.notes(PartialWaits).ahead
        for at_warp, clock in enumerate(state.of_frame(frame)):
            of_warp = foreign if frame.warps == 1 else foreign & (lanes >> 5 == at_warp)
            for number in distinct(before[of_warp]):
                if number in clock.settled and clock.me not in ahead:
                    continue
                deed = unpack(number, earlier_writes)
                missing = self._gap(state, clock, deed, frame.operation, level)
                if missing == APART:
                    touched = np.broadcast_to(granules, of_warp.shape)[of_warp & (before == number)]
                    if not self.lanes.silent(state, shadow, clock, deed, touched):
                        continue
                if missing:
                    hits = of_warp & (before == number)
                    offset = shadow.first_byte(granules, hits)
                    seen = self.context.flags.observed
                    if deed.level and seen(shadow.region, offset, clock, state, deed.actor, deed.epoch):
                        continue
                    now = (frame.cta, frame.first_warp + at_warp, frame.operation)
                    if (
                        writes
                        and earlier_writes
                        and missing == NO_ORDER
                        and not deed.level
                        and self._storing is not None
                    ):
                        touched = np.broadcast_to(granules, hits.shape)[hits]
                        if self._storing.changes_nothing(touched, shadow.granule):
                            missing = SAME
                    self._report_global(state, shadow, offset, deed, now, writes, missing, level)
                elif not deed.level:
                    clock.settled.add(number)
                    if clock.me in ahead:
                        self.lanes.untold(state, frame, clock, deed, lanes_in(lanes, of_warp & (before == number)))

    def _gap(self, state: ClusterState, clock: WarpClock, deed: UnpackedAccess, code: Operation, level: int) -> str:
        """What is missing between an earlier access and a generic one of this warp; "" if nothing is."""
        if deed.asynchronous:
            return "" if self._complete(state, clock, deed) else NOT_COMPLETE
        if knows(clock, state, deed.actor, deed.epoch):
            return APART if self.lanes.spoken_for(state, clock, deed) else ""
        if deed.level and level:
            cluster, me = divmod(deed.actor - 1, state.count)
            theirs = self.context.where(cluster, me // state.per_cta)
            mine = self.context.where(state.number, clock.me // state.per_cta)
            if min(deed.level, level) < needed(theirs, mine):
                return SCOPE
            earlier = self.context.operation(deed.pc)
            if _bytes_at_once(earlier) != _bytes_at_once(code):
                return SIZES
            told = deed.writes and self.context.told_without_release(state, clock, deed.actor, deed.epoch, code)
            return UNRELEASED if told else ""
        return "" if self._read_in_an_earlier_launch(state, clock, deed) else NO_ORDER

    def _read_in_an_earlier_launch(self, state: ClusterState, clock: WarpClock, deed: UnpackedAccess) -> bool:
        """True if another GPU made this read in a launch that is complete for all that this warp knows."""
        launches = self.context.launches
        if deed.writes or not launches.needed:
            return False
        (mine, _), (other, _) = launches.of(state, state.actor(clock.me)), launches.of(state, deed.actor)
        return mine != other and launches.over(state, clock, deed)

    @staticmethod
    def _complete(state: ClusterState, clock: WarpClock, deed: UnpackedAccess) -> bool:
        """True if a warp knows that a copy has read its source (a read) or is complete (a write)."""
        cluster = (deed.actor - 1) // state.count
        reach = clock.far.get(cluster)
        known = clock.known if cluster == state.number else reach.known if reach is not None else 0
        return bool(known >> 2 * deed.epoch & (2 if deed.writes else 3))

    def _check_same(
        self, state: ClusterState, shadow: GlobalShadow, frame: Frame, granules: np.ndarray, numbers: np.ndarray
    ) -> None:
        """Several warps write the same bytes with one instruction that they execute together."""
        kept = shadow.last[granules]
        lost = kept != numbers
        if lost.any():
            offset = shadow.first_byte(granules, lost)
            loser = unpack(int(np.broadcast_to(numbers, lost.shape)[lost].flat[0]), True)
            winner = unpack(int(kept[lost].flat[0]), True)
            warp = (winner.actor - 1) % state.per_cta
            now = (frame.cta, warp, frame.operation)
            touched = np.broadcast_to(granules, lost.shape)[lost]
            same = self._storing is not None and self._storing.changes_nothing(touched, shadow.granule)
            missing = SAME if same else SAME_INSTRUCTION
            self._report_global(state, shadow, offset, loser, now, True, missing, 0)

    # -- copies ----------------------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        if self._is_repeated(operation):
            return
        for flight in flights_of(operation):
            state = self.context.state(flight.cta)
            if flight.starts.parts == "warp":
                self._scattered_reads(operation, flight)
                continue
            for source in operation.sources:
                self._copy(state, flight, source, writes=False)
            for target in operation.targets:
                self._copy(state, flight, target, writes=True)

    def written(self, operation: AsyncOperation) -> None:
        self._twice.landed(operation)

    def report(self) -> list[Finding]:
        self._twice.give_up()
        return []

    def _is_repeated(self, operation: AsyncOperation) -> bool:
        """True if another lane has just made the same copy with the same instruction: both write the same bytes."""
        when, last = self.context.machine.steps, self._last
        self._last = (when, operation)
        if last is None or last[0] != when or last[1].issuer.operation is not operation.issuer.operation:
            return False
        same_warp = last[1].issuer.frame is operation.issuer.frame
        return same_warp and (last[1].sources, last[1].targets) == (operation.sources, operation.targets)

    def _scattered_reads(self, operation: AsyncOperation, flight: InFlight) -> None:
        """cp.async reads global memory as ld does, until it is waited for; this checks the whole frame at its first
        warp."""
        frame = operation.issuer.frame
        for target in operation.targets:
            place = self.context.origins(target) if isinstance(target, Scattered) else None
            if flight is flights_of(operation)[0] and place is not None:
                self._storing = None
                self._generic(frame, effects.READS, place, flights_of(operation))

    def _copy(self, state: ClusterState, flight: InFlight, place: object, writes: bool) -> None:
        """An asynchronous operation will read or write global memory."""
        region = self.context.region_of(state, place)
        if region is None or not isinstance(place, (Bytes, Box)):
            return
        shadow, clock, code = self.context.buffer(region), state.clocks[flight.me], flight.code
        atomic = any(one.how == effects.UPDATES for one in effects.accesses(code.effects, effects.RUN))
        level = LEVELS["gpu"] if atomic else 0
        number = pack(state.actor(clock.me), flight.number, code.pc, level, asynchronous=True)
        if not writes and not shadow.written:
            shadow.log_read(place, number, self.context.machine, state.count)
            return
        if writes:
            self._wrote(state, shadow)
        views = shadow.views(place, self.context.machine)
        if not views:
            return
        last, reads, others = views
        self._compare_copy(state, shadow, flight, clock, last, True, writes, level)
        if not writes:
            shadow.note_read(reads, others, slice(None), number, state.count)
            return
        if shadow.was_read:
            self._compare_copy(state, shadow, flight, clock, reads, False, writes, level)
            self._compare_copy(state, shadow, flight, clock, others, False, writes, level)
            reads[...] = 0
            others[...] = 0
        last[...] = number

    def _compare_copy(
        self, state: ClusterState, shadow: GlobalShadow, flight: InFlight, clock: WarpClock, before: np.ndarray,
        earlier_writes: bool, writes: bool, level: int,
    ) -> None:  # fmt: skip
        if not before.any():
            return
        for number in distinct(before[before != 0]):
            deed = unpack(number, earlier_writes)
            if deed.level >= LEVELS["gpu"] and level:
                continue  # elements of a reduction are atomic for all threads
            missing = self._copy_gap(state, clock, deed)
            if missing:
                places = shadow.granules_in(before, before == number)
                if missing == APART and not self.lanes.silent(state, shadow, clock, deed, places):
                    continue
                if missing == FENCE and self.lanes.carried(state, shadow, flight, clock, deed, places):
                    continue
                offset, now = int(places[0]) * shadow.granule, (flight.cta, flight.warp, flight.code)

                report = partial(self._report_global, state, shadow, offset, deed, now, writes, level=level)
                if missing == NOT_COMPLETE and writes and deed.writes and not deed.level and not level:
                    self._twice.add(shadow, places, (deed.actor, deed.epoch), flight, report)
                else:
                    report(missing)

    def _copy_gap(self, state: ClusterState, clock: WarpClock, deed: UnpackedAccess) -> str:
        if deed.asynchronous:
            return "" if self._complete(state, clock, deed) else NOT_COMPLETE
        if not knows(clock, state, deed.actor, deed.epoch):
            return "" if self._read_in_an_earlier_launch(state, clock, deed) else NO_ORDER
        if self.lanes.spoken_for(state, clock, deed):
            return APART
        if not deed.writes:
            return ""
        cluster, me = divmod(deed.actor - 1, state.count)
        front = clock.q if cluster == state.number else clock.far[cluster].q
        return "" if front[me] >= deed.epoch else FENCE

    # -- reports ---------------------------------------------------------------------------------------------------

    def _report_global(
        self, state: ClusterState, shadow: GlobalShadow, offset: int, earlier: UnpackedAccess,
        now: tuple[Cta, int, Operation], writes: bool, missing: str, level: int,
    ) -> None:  # fmt: skip
        cta, warp, code = now
        before = self.context.operation(earlier.pc)
        rule, clause = verdict(self.context, state, earlier, now, missing, writes)
        if rule == "global-data-race":
            unordered = missing == NO_ORDER and not self.context.of_stream(earlier.pc, code.pc)
            self.context.loose.note(self.context.indices, state, earlier, now, writes, unordered)
        read_before = missing == NO_ORDER and writes and not earlier.writes and told_loosely(state, earlier, now)
        severity = ERROR if missing == APART and (earlier.writes and not writes or self.lanes.alone(earlier)) else None
        severity = WARNING if read_before and not self.context.strict else severity
        if self.context.findings.seen(rule, (code, before), severity):
            return
        codes: tuple[Operation, ...] = (code, before)
        if rule == "global-hand-off" and (found := fence_place(self.context, state, earlier, now, missing)):
            codes, clause = (code, found[0], before), f"{clause}; {found[1]}"
        cluster, me = divmod(earlier.actor - 1, state.count)
        other = self._warp_words(state, cluster, me)
        place = f"`{shadow.region.name}` at byte {offset}"
        did, does = "wrote" if earlier.writes else "read", "writes" if writes else "reads"
        how = "issued" if earlier.asynchronous else "executed"
        message = (
            f"{actor(cta, warp)} {does} {place} with {at(code)}, and {other} {did} it before with {at(before)}, which "
            f"it {how}; {clause}"
        )
        sides = (
            Side(actor(cta, warp), f"{does} {place}", code.text, code.instruction.location),
            Side(other, f"{did} {place}", before.text, before.instruction.location),
        )
        self.context.findings.add(rule, message, codes, cta, warp, severity, sides, place, clause)

    def _warp_words(self, state: ClusterState, cluster: int, me: int) -> str:
        if cluster in self.context.streams:
            return self.context.streams[cluster]
        rank, warp = divmod(me, state.per_cta)
        role = self.context.machine.code.role(warp)
        x, y, z = self.context.indices[cluster][rank]
        several = len(self.context.machine.devices) > 1
        gpu = f" of GPU {self.context.devices[cluster]}" if several else ""
        return (f"{role}, " if role else "") + f"warp {warp} of CTA ({x}, {y}, {z}){gpu}"


def _bytes_at_once(code: Operation) -> int:
    """The size at which a strong access is a single access: strong ones race unless they overlap completely (8.7.2)."""
    return code.row.element_bytes
