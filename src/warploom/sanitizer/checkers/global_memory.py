"""Data races in global memory, between CTAs too, and across the two proxies.

As in shared memory (`races`), but over the whole grid: clusters know of each other only by flags (`flags`). Lanes of
one warp are not told apart. What an access needs of an earlier one by somebody else:

    earlier                 later                  must be known
    st, ld, atom            ld, st, atom           its epoch, unless both are strong and each in the other's scope
    st, atom                copy that reads/writes that epoch, carried by a fence.proxy.async
    bulk store              anything               that it is complete: wait_group, not wait_group.read

PTX ISA 8.7.1 (data races), 8.9.5 (causality), 9.7.9.25.2 (proxies), 9.7.9.27.2 (groups).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...emulator.diagnosis.report import Side
from ...emulator.engines.boxes import Box
from ...emulator.engines.bulk import Bytes
from ...isa import effects
from ..core import Core, actor, narrowest_access
from ..happens_before.clocks import WarpClock
from ..happens_before.flags import Flags, knows
from ..happens_before.state import ClusterState, Flight
from ..report.findings import at
from ..shadow.global_shadow import ACTOR_SHIFT, LEVELS, Deed, GlobalShadow, pack, unpack
from ..shadow.shadow import distinct

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta, Machine
    from ...emulator.machine.memory import Region
    from ...emulator.program.code import Operation

NO_ORDER, FENCE, NOT_COMPLETE = "no order", "fence", "not complete"


class GlobalRaces(Core):
    """The part of the sanitizer that watches global memory."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._buffers: dict[Region, GlobalShadow] = {}
        self._global_granule = narrowest_access(machine, "global", writes_only=True)
        self._flags = Flags()

    awaits_grid = False
    """Whether the kernel has a griddepcontrol.wait."""

    def check_grid_order(
        self, state: ClusterState, clock: WarpClock, cta: Cta, code: Operation, region: Region
    ) -> None:
        """Whether an access of global memory may come before the grid in front is done."""

    def check_started(self, state: ClusterState, clock: WarpClock, cta: Cta, target: Cta, code: Operation) -> None:
        """Whoever reaches into another CTA must know that it has started: by the cluster's barrier."""
        first = target.rank * state.per_cta
        if any(clock.weak[first : first + state.per_cta]) or self.findings.seen("cta-may-not-have-started", (code,)):
            return
        warp = clock.me % state.per_cta
        self.findings.add(
            "cta-may-not-have-started",
            f"{actor(cta, warp)} reaches CTA rank {target.rank} of its cluster with {at(code)}, and nothing that this "
            f"warp "
            "waited for says that the CTA has started",
            (code,),
            cta,
            warp,
        )

    def buffer(self, region: Region) -> GlobalShadow:
        found = self._buffers.get(region)
        if found is None:
            found = self._buffers[region] = GlobalShadow(region, self._global_granule)
        return found

    # -- generic accesses ------------------------------------------------------------------------------------------

    def global_access(
        self, frame: Frame, region: Region, index: np.ndarray, size: int, count: int, lanes: np.ndarray, writes: bool,
        atomic: bool = False,
    ) -> None:  # fmt: skip
        """Lanes touch global memory by ld, st, atom or red."""
        state = self.state(frame.cta)
        shadow = self.buffer(region)
        code = frame.operation
        strong = atomic or code.order.strong
        level = LEVELS[code.order.scope] if strong else 0
        clocks = state.of_frame(frame)
        granules = shadow.granules(index, size, count)
        base = state.number * state.count + clocks[0].me + 1
        mine = base if frame.warps == 1 else base + (lanes >> 5)
        if writes:
            self._wrote(shadow)
        if shadow.written:
            self._compare(state, shadow, frame, granules, lanes, mine, shadow.last, True, writes, level)
        if writes and shadow.was_read:
            self._compare(state, shadow, frame, granules, lanes, mine, shadow.reads, False, writes, level)
            self._compare(state, shadow, frame, granules, lanes, mine, shadow.others, False, writes, level)
        numbers: np.ndarray | int
        if frame.warps == 1:
            numbers = pack(base, clocks[0].epoch, code.pc, level)
        else:
            packed = [pack(base + number, clock.epoch, code.pc, level) for number, clock in enumerate(clocks)]
            numbers = np.asarray(packed, np.int64)[lanes >> 5]
        for clock in clocks:
            clock.touch_global()
            if self.awaits_grid:
                self.check_grid_order(state, clock, frame.cta, code, region)
        if writes:
            shadow.last[granules] = numbers
            if frame.warps > 1 and not strong:
                self._check_same(state, shadow, frame, granules, numbers)  # type: ignore[arg-type]
            if shadow.was_read:
                shadow.reads[granules] = 0
                shadow.others[granules] = 0
        else:
            shadow.note_read(shadow.reads, shadow.others, granules, numbers, state.count)
        if strong:
            reads = not writes or (atomic and effects.accesses(code.effects)[0].returns)
            self._flags.touched(state, frame, region, index * size, lanes, reads, writes, atomic)

    def _wrote(self, shadow: GlobalShadow) -> None:
        if not shadow.written:
            shadow.written = True
            shadow.settle(self.machine, self._count())

    def _count(self) -> int:
        return next(iter(self._states.values())).count

    def _compare(
        self, state: ClusterState, shadow: GlobalShadow, frame: Frame, granules: np.ndarray, lanes: np.ndarray,
        mine: np.ndarray | int, accesses: np.ndarray, earlier_writes: bool, writes: bool, level: int,
    ) -> None:  # fmt: skip
        """Look for accesses of other warps that are not ordered before this."""
        before = accesses[granules]
        foreign = (before >> ACTOR_SHIFT != mine) & (before != 0)
        if not np.count_nonzero(foreign):
            return
        for at_warp, clock in enumerate(state.of_frame(frame)):
            of_warp = foreign if frame.warps == 1 else foreign & (lanes >> 5 == at_warp)
            for number in distinct(before[of_warp]):
                if number in clock.settled:
                    continue
                deed = unpack(number, earlier_writes)
                missing = self._gap(state, clock, deed, level)
                if missing:
                    hits = of_warp & (before == number)
                    offset = int(np.broadcast_to(granules, hits.shape)[hits].flat[0]) * shadow.granule
                    if deed.level and self._flags.observed(shadow.region, offset, clock, state, deed.actor, deed.epoch):
                        continue
                    now = (frame.cta, frame.first_warp + at_warp, frame.operation)
                    if (
                        writes
                        and earlier_writes
                        and missing == NO_ORDER
                        and not deed.level
                        and self.storing is not None
                    ):
                        touched = np.broadcast_to(granules, hits.shape)[hits]
                        if self.storing.changes_nothing(touched, shadow.granule):
                            missing = "same value"
                    self._report_global(state, shadow, offset, deed, now, writes, missing, level)
                elif not deed.level:
                    clock.settled.add(number)

    def _gap(self, state: ClusterState, clock: WarpClock, deed: Deed, level: int) -> str:
        """What is missing between an earlier access and a generic one of this warp; "" where nothing is."""
        if deed.asynchronous:
            return "" if self._complete(state, clock, deed) else NOT_COMPLETE
        if knows(clock, state, deed.actor, deed.epoch):
            return ""
        if deed.level and level:
            cluster, me = divmod(deed.actor - 1, state.count)
            needed = 3 if cluster != state.number else 1 if me // state.per_cta == clock.me // state.per_cta else 2
            if min(deed.level, level) >= needed:
                return ""
            return "scope"
        return NO_ORDER

    @staticmethod
    def _complete(state: ClusterState, clock: WarpClock, deed: Deed) -> bool:
        """Whether a warp knows that a copy has read its source (a read) or is complete (a write)."""
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
            offset = int(np.broadcast_to(granules, lost.shape)[lost].flat[0]) * shadow.granule
            loser = unpack(int(np.broadcast_to(numbers, lost.shape)[lost].flat[0]), True)
            winner = unpack(int(kept[lost].flat[0]), True)
            warp = (winner.actor - 1) % state.per_cta
            now = (frame.cta, warp, frame.operation)
            touched = np.broadcast_to(granules, lost.shape)[lost]
            same = self.storing is not None and self.storing.changes_nothing(touched, shadow.granule)
            missing = "same value" if same else "same instruction"
            self._report_global(state, shadow, offset, loser, now, True, missing, 0)

    # -- copies ----------------------------------------------------------------------------------------------------

    def global_copy(
        self, state: ClusterState, flight: Flight, place: Bytes | Box, clock: WarpClock, writes: bool
    ) -> None:
        """An asynchronous operation is going to read or write global memory."""
        region = self._region_of(state, place)
        if region is None:
            return
        shadow = self.buffer(region)
        operation = flight.operation
        code = operation.issuer.operation
        if self.awaits_grid:
            self.check_grid_order(state, clock, flight.cta, code, region)
        atomic = any(one.how == effects.UPDATES for one in effects.accesses(code.effects, effects.RUN))
        level = 3 if atomic else 0
        me = state.number * state.count + clock.me + 1
        number = pack(me, flight.number, code.pc, level, asynchronous=True)
        if not writes and not shadow.written:
            shadow.log_read(place, number, self.machine, state.count)
            return
        if writes:
            self._wrote(shadow)
        views = shadow.views(place, self.machine)
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
        self, state: ClusterState, shadow: GlobalShadow, flight: Flight, clock: WarpClock, before: np.ndarray,
        earlier_writes: bool, writes: bool, level: int,
    ) -> None:  # fmt: skip
        if not before.any():
            return
        for number in distinct(before[before != 0]):
            deed = unpack(number, earlier_writes)
            if deed.level == 3 and level:
                continue  # elements of a reduction are atomic, whoever does it
            missing = self._copy_gap(state, clock, deed)
            if missing:
                offset = self._offset_of(shadow, before, before == number)
                now = (flight.cta, flight.warp, flight.operation.issuer.operation)
                self._report_global(state, shadow, offset, deed, now, writes, missing, level)

    def _copy_gap(self, state: ClusterState, clock: WarpClock, deed: Deed) -> str:
        if deed.asynchronous:
            return "" if self._complete(state, clock, deed) else NOT_COMPLETE
        if not knows(clock, state, deed.actor, deed.epoch):
            return NO_ORDER
        if not deed.writes:
            return ""
        cluster, me = divmod(deed.actor - 1, state.count)
        front = clock.q if cluster == state.number else clock.far[cluster].q
        return "" if front[me] >= deed.epoch else FENCE

    @staticmethod
    def _offset_of(shadow: GlobalShadow, view: np.ndarray, hits: np.ndarray) -> int:
        """The byte in the buffer of the first hit in a view of the shadow."""
        first = np.argwhere(hits)[0]
        start = view.__array_interface__["data"][0] + int(np.dot(first, view.strides))
        origins = (array.__array_interface__["data"][0] for array in (shadow.last, shadow.reads, shadow.others))
        inside = next(start - origin for origin in origins if 0 <= start - origin < shadow.count * 8)
        return inside // 8 * shadow.granule

    def _region_of(self, state: ClusterState, place: object) -> Region | None:
        """The global buffer a copy's source or destination lies in."""
        if isinstance(place, Bytes):
            return None if place.region in state.shadows else place.region
        if isinstance(place, Box):
            found = self.machine.memory.find(place.bound.address)
            return found.region if found is not None else None
        return None

    # -- reports ---------------------------------------------------------------------------------------------------

    def _report_global(
        self, state: ClusterState, shadow: GlobalShadow, offset: int, earlier: Deed,
        now: tuple[Cta, int, Operation], writes: bool, missing: str, level: int,
    ) -> None:  # fmt: skip
        cta, warp, code = now
        before = self.machine.code.operations[earlier.pc]
        rule, severity, clause = self._verdict(state, earlier, cta, missing, writes)
        if self.findings.seen(rule, (code, before)):
            return
        cluster, me = divmod(earlier.actor - 1, state.count)
        other = self._warp_words(state, cluster, me)
        place = f"`{shadow.region.name}` at byte {offset}"
        did, does = "wrote" if earlier.writes else "read", "writes" if writes else "reads"
        how = "issued" if earlier.asynchronous else "executed"
        message = (
            f"{actor(cta, warp)} {does} {place} with {at(code)}, and {other} {did} it before with {at(before)}, which "
            f"it "
            f"{how}; {clause}"
        )
        sides = (
            Side(actor(cta, warp), f"{does} {place}", code.text, code.instruction.location),
            Side(other, f"{did} {place}", before.text, before.instruction.location),
        )
        self.findings.add(rule, message, (code, before), cta, warp, severity, sides, place, clause)

    def _warp_words(self, state: ClusterState, cluster: int, me: int) -> str:
        rank, warp = divmod(me, state.per_cta)
        role = self.machine.code.role(warp)
        x, y, z = self.indices[cluster][rank]
        return (f"{role}, " if role else "") + f"warp {warp} of CTA ({x}, {y}, {z})"

    def _verdict(
        self, state: ClusterState, earlier: Deed, cta: Cta, missing: str, writes: bool
    ) -> tuple[str, str | None, str]:
        """Rule, severity where it is not the rule's own, and the missing edge in words."""
        cluster, me = divmod(earlier.actor - 1, state.count)
        if missing == "same value":
            return (
                "same-value-race",
                None,
                "nothing orders the two; both write the same value, so it does not show",
            )
        if missing == "same instruction":
            return "global-data-race", None, "both execute it at once, and nothing says whose value stays"
        if missing == "scope":
            return (
                "global-hand-off",
                None,
                "both are strong, but the scope of one does not include the other's CTA: they race",
            )
        if missing == FENCE:
            return (
                "global-proxy-fence",
                None,
                "the two are ordered, but by nothing that includes a fence.proxy.async for global memory, and a copy "
                "goes "
                "through the async proxy",
            )
        if missing == NOT_COMPLETE:
            own = cluster == state.number
            return (
                "copy-to-global-not-complete",
                None,
                "the copy may be in flight: "
                + ("its thread" if own else "the thread of the other CTA that issued it")
                + " has not waited until it is complete (cp.async.bulk.wait_group without .read) and then told this "
                "one",
            )
        hint = self._flags.hints.get(((state.number, cta.rank), earlier.actor))
        if hint is not None and hint.epoch >= earlier.epoch:
            return "global-hand-off", None, f"the two meet at a flag, which does not order them: {hint.reason}"
        who = (
            "no barrier"
            if cluster == state.number
            else "CTAs of different clusters meet only by flags in global memory"
        )
        return "global-data-race", None, f"nothing orders the two: {who}, and no release that the other side acquires"
