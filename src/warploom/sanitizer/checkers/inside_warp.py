"""Lanes of one warp that access the same bytes without synchronising in between.

A warp is one component of the clocks, so they do not tell its lanes apart (PTX ISA 8.9: lanes are separate threads;
a shuffle or a vote does not order memory). Its journal does (`happens_before.journal`). It is read only if the shadow
shows that the warp itself accessed these bytes since its lanes synchronised, so it costs little.

Lanes are ordered by what they pass together: bar.warp.sync, a barrier, an mbarrier's phase, a strong store and a
strong load of one address. The journal holds these events too; reading it backwards gives the lanes whose accesses a
lane knows of. The clocks say what another warp has passed on in between (`LaneSync.reach`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...emulator.engines.bulk import Scattered
from ...emulator.machine.events import BarrierUse, CompletedWait, Observer
from ...emulator.machine.mbarrier import Event, MBarrier, mbarriers_of
from ...emulator.machine.places import Lanes
from ...emulator.machine.units import WARPGROUP_MMA
from ...isa import effects
from ..happens_before.access import BARRIER, flights_of
from ..happens_before.clocks import WarpClock
from ..happens_before.journal import WARP, Entry, Journals, LaneSync, Noted, WaitedCopy
from ..happens_before.lane_order import LaneConflict, clashes
from ..happens_before.released import Released
from ..happens_before.scopes import LEVELS
from ..happens_before.state import ClusterState, record_of
from ..report.findings import at
from ..report.lanes import apart, holder_of
from ..report.words import actor
from ..rules import WARNING
from ..shadow.places import granules_of
from ..shadow.shadow import Shadow, distinct
from ..shadow.storing import unequal_sums

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.finding import Finding
    from ...emulator.machine.frame import Frame, Issuer
    from ...emulator.machine.memory import Region
    from ...emulator.machine.operation import Operation
    from ..context import Context

MANY = 256
"""Bytes with arbitrary values that are remembered for each region."""
FEW = 4
"""Up to this many addresses, a strong access counts as synchronisation of its lanes."""
ONE_STORES = """\
let one lane store (a predicate, or elect.sync), give each lane an address of its own, or combine the values first \
(redux.sync, shfl.sync, atom): a barrier cannot separate lanes of one instruction"""
"""The advice for lanes that store different values to one address with one instruction."""


class InsideWarp(Observer):
    """See the module's docstring. Comes before the checker that owns the shadows."""

    rules = ("lane-race",)
    ignores = (WARPGROUP_MMA,)

    def __init__(self, context: Context) -> None:
        self.context = context
        self._arbitrary: dict[Region, dict[int, Operation]] = {}
        """Bytes whose remaining value is undefined, by their first, and the store."""
        self._outlive: set[Region] = set()
        """Those regions that remain after the launch: global memory."""
        self._new: dict[int, MBarrier] = {}
        """mbarriers, by their id, whose warp may not have synchronised since one of its lanes initialised them."""

    # -- accesses --------------------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        state = self.context.state(frame.cta)
        shadow = state.shadows.get(place.region)
        if place.region in self._arbitrary:
            self._settle(how, place)
        strong = frame.operation.order.strong
        if values is not None and not strong:
            self._same_instruction(frame, place, values, outlives=shadow is None)
        if shadow is not None:
            self._by_lanes(state, shadow, frame, how, place)
        if strong:
            self._strong(state, frame, how, place)

    def _by_lanes(self, state: ClusterState, shadow: Shadow, frame: Frame, how: str, place: Lanes) -> None:
        """Compare an access of shared memory with earlier ones of the same warp, and enter it into the journal."""
        row = effects.accesses(frame.operation.effects)
        together = bool(row) and row[0].lanes == "any"
        if together and row[0].footprint == "value":
            return  # a lane's own access as much as any other's: the address that tcgen05.alloc stores
        writes, strong = how != effects.READS, frame.operation.order.strong
        granules = shadow.elements(place.index, place.size, place.count)
        clocks = state.of_frame(frame)
        epochs = tuple([clock.epoch for clock in clocks])
        entry = Entry(shadow, granules, place.lanes, clocks[0].me, writes, together, frame.operation, epochs, strong)
        journals = state.notes(Journals)
        for clock in self._touched_before(state, shadow, entry, clocks):
            self._compare(state, frame, clock, journals.of(clock), entry)
        for clock in clocks:
            journals.of(clock).append(entry)

    @staticmethod
    def _touched_before(state: ClusterState, shadow: Shadow, now: Entry, clocks: list[WarpClock]) -> list[WarpClock]:
        """The warps that accessed some of these bytes themselves since their lanes synchronised."""
        granules, first, found = now.granules, now.first, {}
        for number in distinct(shadow.last[granules]):
            access = state.accesses[number] if number else None
            if access is None or (access.strong and now.strong) or access.proxy == BARRIER:
                continue
            if not 0 <= access.me - first < len(clocks):
                continue
            if (access.flight.landed if access.flight is not None else access.epoch) >= clocks[access.me - first].floor:
                found[access.me] = clocks[access.me - first]
        for me, latest in sorted(zip(shadow.warps, shadow.latest(granules), strict=True)) if now.writes else ():
            if 0 <= me - first < len(clocks) and latest >= clocks[me - first].floor:
                found[me] = clocks[me - first]
        return list(found.values())

    def _compare(self, state: ClusterState, frame: Frame, clock: WarpClock, journal: list[Noted], now: Entry) -> None:
        """Look for an entry by another lane that the lanes of this access do not know of."""
        guessed = self.context.guessed
        for clash in clashes(journal, clock.me, now):
            codes = (clash.entry.code, now.code)
            if not (guessed(*codes) or guessed(*codes[::-1])):
                self._report(state, frame, clock, now, clash)
                break

    # -- mbarriers -------------------------------------------------------------------------------------------------

    def made(self, kind: str, what: object, by: Issuer) -> None:
        """A lane initialises a barrier, which writes its bytes."""
        if isinstance(what, MBarrier):
            self._new[id(what)] = what
            state = self.context.state(what.cta)
            entry = self._of_barrier(state, what, by.frame, np.array([by.lane or 0]), True)
            state.notes(Journals).of(state.clock_of(by)).append(entry)

    @staticmethod
    def _of_barrier(state: ClusterState, barrier: MBarrier, frame: Frame, lanes: np.ndarray, writes: bool) -> Entry:
        shadow, clocks = state.shadows[barrier.cta.shared], state.of_frame(frame)
        granules = np.full(lanes.shape, shadow.span(barrier.offset, 8).start)
        epochs = tuple([clock.epoch for clock in clocks])
        return Entry(shadow, granules, lanes, clocks[0].me, writes, False, frame.operation, epochs)

    def _uses(self, frame: Frame, barrier: MBarrier, lanes: np.ndarray) -> None:
        """Lanes use a barrier that a lane of their warp may have initialised since they last synchronised."""
        if self._new.get(id(barrier)) is not barrier or barrier.cta is not frame.cta:
            return
        state = self.context.state(frame.cta)
        init = state.accesses[record_of(barrier).access]
        clock = state.clocks[init.me]
        if init.epoch < clock.floor:
            del self._new[id(barrier)]
        elif 0 <= clock.me - state.of_frame(frame)[0].me < frame.warps:
            now = self._of_barrier(state, barrier, frame, lanes, False)
            self._compare(state, frame, clock, state.notes(Journals).of(clock), now)

    def issued(self, operation: AsyncOperation) -> None:
        by = operation.issuer
        if by.lane is not None:
            self._one_lane_copies(operation, by.frame, by.lane)
        if operation.barrier is not None and self._new:
            barrier = mbarriers_of(operation.barrier[0]).get(operation.barrier[1])
            if barrier is not None:
                self._uses(by.frame, barrier, by.frame.active_lanes if by.lane is None else np.array([by.lane]))

    def _one_lane_copies(self, operation: AsyncOperation, frame: Frame, lane: int) -> None:
        """One lane starts a copy of bytes that others of its warp have accessed since they last synchronised: their own
        fences, or the lack of any need for one, do not say that they are done."""
        state = self.context.state(frame.cta)
        clock = state.of_frame(frame)[lane // WARP]
        journal = state.notes(Journals).of(clock)
        for writes, places in ((False, operation.sources), (True, operation.targets)):
            for place in places if journal else ():
                shadow = state.shadows.get(getattr(place, "region", None))  # type: ignore[arg-type]
                touched = (one for one in journal if not isinstance(one, LaneSync) and (one.writes or writes))
                if shadow is None or not any(one.shadow is shadow for one in touched):
                    continue
                for flight in flights_of(operation)[:1]:
                    granules = granules_of(shadow, place, flight, {})
                    every = np.arange(granules.start, granules.stop) if isinstance(granules, slice) else granules
                    first, lanes = state.of_frame(frame)[0].me, np.array([lane])
                    now = Entry(shadow, every, lanes, first, writes, False, frame.operation)
                    self._compare(state, frame, clock, journal, now)

    # -- what orders lanes -----------------------------------------------------------------------------------------

    def _note(
        self, state: ClusterState, frame: Frame, lanes: np.ndarray, by: object, arrives: bool, waits: bool,
        in_turn: bool = False, told: Released | None = None,
    ) -> None:  # fmt: skip
        journals = state.notes(Journals)
        for clock, mask in state.among(frame, lanes):
            reach = int(told.c[clock.me]) if told is not None and waits else 0
            journals.of(clock).append(LaneSync(by, mask, arrives, waits, in_turn, reach))

    def _strong(self, state: ClusterState, frame: Frame, how: str, place: Lanes) -> None:
        for index in distinct(place.index)[:FEW]:
            lanes = place.lanes[place.index == index]
            key = (place.region, index * place.size)
            told = state.places.get(key) if frame.operation.order.acquires else None
            self._note(
                state, frame, lanes, key, how != effects.READS, how != effects.WRITES, how == effects.UPDATES, told
            )

    def met(self, what: MBarrier | None, frame: Frame | None) -> None:
        if frame is not None:
            self._note(self.context.state(frame.cta), frame, frame.active_lanes, None, arrives=True, waits=True)

    def arrived(self, on: MBarrier | BarrierUse, event: Event) -> None:
        frame = event.by.frame
        if event.operation is not None:
            return
        lanes = frame.active_lanes if event.by.lane is None else np.array([event.by.lane])
        if isinstance(on, MBarrier) and self._new:
            self._uses(frame, on, lanes)
        if event.what == "arrive":
            self._note(self.context.state(frame.cta), frame, lanes, on, arrives=True, waits=False)

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        if wait.what is None:
            self._landed(frame, wait)
            return
        order, told = frame.operation.order, None
        if isinstance(wait.what, MBarrier) and self._new:
            self._uses(frame, wait.what, wait.lanes)
        if isinstance(wait.what, MBarrier) and wait.what.phase > 0 and order.acquires:
            told = record_of(wait.what).previous.told(LEVELS[order.scope] >= LEVELS["cluster"])
        state = self.context.state(frame.cta)
        self._note(state, frame, wait.lanes, wait.what, arrives=False, waits=True, told=told)

    def _landed(self, frame: Frame, wait: CompletedWait) -> None:
        """cp.async.wait_group: the copies of a lane become visible to that lane (9.7.9.25.3.3)."""
        state = self.context.state(frame.cta)
        for operation, lanes in wait.operations:
            for flight in flights_of(operation):
                if flight.starts.parts != "warp" or flight.warp != frame.first_warp:
                    continue
                clock = state.clocks[flight.me]
                flight.landed, number = clock.epoch, flight.warp - operation.issuer.frame.first_warp
                for place in operation.targets:
                    if isinstance(place, Scattered):
                        shadow = state.shadows[place.region]
                        landed = WaitedCopy(shadow, place, lanes, flight.me, clock.epoch, number, flight.code)
                        state.notes(Journals).of(clock).append(landed)

    # -- one instruction -------------------------------------------------------------------------------------------

    def _same_instruction(self, frame: Frame, place: Lanes, values: np.ndarray, outlives: bool) -> None:
        """Lanes of a warp store different values to one address with one instruction."""
        index, lanes = place.index, place.lanes
        if place.disjoint or index.size < 2 or int(np.minimum.reduce(index[1:] - index[:-1])) >= place.count:
            return
        order = np.argsort((lanes >> 5) * (1 << 40) + index, kind="stable")
        where, which = index[order], lanes[order]
        met = (where[1:] == where[:-1]) & (which[1:] >> 5 == which[:-1] >> 5)
        stored = np.ascontiguousarray(values[:, which]).view(f"u{place.size}")
        differ = met & (stored[:, 1:] != stored[:, :-1]).any(axis=0)
        summed = self.context.sums.get(frame.operation.pc, 0)
        if summed and differ.any():  # the lanes hold one sum, rounded differently
            places = (which >> 5) * (1 << 40) + where
            vectors = np.ascontiguousarray(stored.T).view(f"V{stored.itemsize * len(stored)}").ravel()
            differ &= np.isin(places[1:], list(unequal_sums(places, vectors, which, summed)))
        if not differ.any():
            return
        arbitrary = self._arbitrary.setdefault(place.region, {})
        if outlives:
            self._outlive.add(place.region)
        if len(arbitrary) < MANY:
            arbitrary.update(dict.fromkeys((where[1:][differ] * place.size).tolist(), frame.operation))
        if self.context.findings.seen("lane-race", (frame.operation,)):
            return
        one = int(np.flatnonzero(differ)[0])
        self._add(
            frame, frame.first_warp + int(which[one]) // WARP, (frame.operation,),
            f"stores different values to one address from lanes {int(which[one]) % WARP} and "
            f"{int(which[one + 1]) % WARP} with {at(frame.operation)}; it is undefined whose value remains",
            None if self.context.strict else WARNING, ONE_STORES,
        )  # fmt: skip

    def _settle(self, how: str, place: Lanes) -> None:
        """An access to a region with arbitrary values: reading such a value makes the store an error."""
        arbitrary = self._arbitrary[place.region]
        low = place.index * place.size
        for byte, code in list(arbitrary.items()):
            if not ((low <= byte) & (byte < low + place.size * place.count)).any():
                continue
            if how != effects.WRITES:
                self.context.findings.raise_to_error("lane-race", (code,), "; and it is read afterwards")
            del arbitrary[byte]

    def report(self) -> list[Finding]:
        """An arbitrary value that a kernel leaves in global memory is what it was launched for."""
        for region in self._outlive:
            for code in self._arbitrary[region].values():
                self.context.findings.raise_to_error(
                    "lane-race", (code,), f"; and it is still in `{region.name}` when the kernel ends"
                )
        return []

    # -- reports ---------------------------------------------------------------------------------------------------

    def _report(self, state: ClusterState, frame: Frame, clock: WarpClock, now: Entry, clash: LaneConflict) -> None:
        codes = (now.code, clash.entry.code)
        one, held, severity = holder_of(self.context, state, clock, now, clash)
        if self.context.findings.seen("lane-race", codes, severity):
            return
        place = self.context.name(state, now.shadow.region, int(clash.granules[one]) * now.shadow.granule)
        told = apart(now, clash.entry, place, int(clash.lanes[one]), int(clash.owners[one]), held)
        self._add(frame, clock.me % state.per_cta, codes, told, severity)

    def _add(
        self, frame: Frame, warp: int, codes: tuple[Operation, ...], what: str, severity: str | None = None,
        fix: str = "",
    ) -> None:  # fmt: skip
        self.context.findings.add(
            "lane-race", f"{actor(frame.cta, warp)} {what}", codes, frame.cta, warp, severity, fix=fix
        )
