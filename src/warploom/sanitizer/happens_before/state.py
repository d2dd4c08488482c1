"""The sanitizer's state for one cluster: its warps' clocks, its shared memory's shadows, its operations in flight.

Everything here is dropped with the cluster, so operations and accesses are numbered within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...emulator.machine.machine import mask_of
from ...isa import effects
from ..shadow.shadow import Readers, Shadow
from ..shadow.whole_boxes import WholeBoxes
from .access import Access, InFlight, in_order
from .clocks import FULL, WarpClock
from .released import Released
from .view import View

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame, Issuer
    from ...emulator.machine.machine import Cluster, Cta
    from ...emulator.machine.mbarrier import MBarrier
    from ...emulator.machine.memory import Region
    from ...emulator.machine.operation import Operation

WARP = 32
Notes = TypeVar("Notes")


@dataclass(eq=False)
class PhaseRecord:
    """One phase of an mbarrier.

    Attributes:
        own, others: what the arrivals from its own CTA and those from other CTAs carried.
        codes: the instructions that delivered or arrived.
        arrived, again: lanes that arrived once, and more than once, by (CTA, warp).
        seen: True if a wait saw the phase complete; glance: a wait that may have, but nothing uses its result.
        heard: how often each warp had learned something from others when the phase completed.
        released: an arrival by a thread of another CTA that releases its accesses to the cluster, or a store of one
            that completes bytes (st.async, red.async).
    """

    own: Released
    others: Released
    codes: list[Operation] = field(default_factory=list)
    arrived: dict[tuple[Cta, int], int] = field(default_factory=dict)
    again: dict[tuple[Cta, int], int] = field(default_factory=dict)
    seen: bool = False
    glance: Operation | None = None
    heard: Sequence[int] = ()
    released: Operation | None = None
    _told: dict[tuple[bool, bool], Released] = field(default_factory=dict)

    def told(self, wide: bool, unscoped: bool = False) -> Released:
        """What a wait for this complete phase acquires; `wide`: at the scope of the cluster or wider."""
        found = self._told.get((wide, unscoped))
        if found is None:
            found = self._told[wide, unscoped] = self.own.copy()
            found.add(self.others if wide else self.others.only_operations(unscoped))
        return found

    def note_arrival(self, state: ClusterState, by: Issuer, clocks: list[tuple[WarpClock, int]]) -> None:
        """The lanes of an issuer arrive."""
        for clock, mask in clocks:
            lanes = mask if by.lane is None else 1 << by.lane % WARP
            warp = (by.frame.cta, clock.me % state.per_cta)
            before = self.arrived.get(warp, 0)
            self.again[warp] = self.again.get(warp, 0) | before & lanes
            self.arrived[warp] = before | lanes

    def unheard(self, state: ClusterState, by: Issuer, clocks: list[tuple[WarpClock, int]], own: bool = True) -> bool:
        """True if an issuer has learned nothing from others since the phase completed, which was not its own. own:
        whether its own arrival tells it so; a commit's does not, as it comes later."""
        for clock, mask in clocks:
            lanes = mask if by.lane is None else 1 << by.lane % WARP
            if clock.heard == self.heard[clock.me]:
                if not own:
                    return True
                mine = self.arrived.get((by.frame.cta, clock.me % state.per_cta), 0)
                return bool(self.arrived) and (len(self.arrived) > 1 or bool(lanes & ~mine))
        return False

    @classmethod
    def empty(cls, warps: int) -> PhaseRecord:
        return cls(Released.nothing(warps), Released.nothing(warps))


@dataclass(eq=False)
class BarrierRecord:
    """An mbarrier: the current phase, the preceding one, and the number of the access that initialised it.

    `fenced`: the epoch in which its thread has executed fence.mbarrier_init since; a relaxed cluster barrier that it
    arrived at later makes it visible.
    `met`: the epoch in which that thread's warp then arrived at a cluster barrier, unfenced: a warp that knows of
    later epochs passed that barrier long ago.
    `always`: the lanes that arrived in every complete phase, by (CTA, warp), if each phase had as many lanes as
    arrivals; None before the first.
    """

    current: PhaseRecord
    previous: PhaseRecord
    access: int
    fenced: int | None = None
    met: int | None = None
    always: dict[tuple[Cta, int], int] | None = None

    def met_long_ago(self, clock: WarpClock, init: Access) -> bool:
        """True if the warp knows of accesses of the initialising warp after the cluster's barrier, at any scope."""
        return self.met is not None and clock.weak[init.me] > self.met

    def met_relaxed(self, clock: WarpClock, init: Access) -> bool:
        """True if the warp has passed the cluster's relaxed barrier that the initialising warp arrived at, unfenced."""
        return self.met is not None and clock.weak[init.me] >= init.epoch

    def visible_to(self, clock: WarpClock, init: Access) -> bool:
        """True if a warp knows that the barrier is initialised."""
        return clock.c[init.me] >= init.epoch or self.fenced is not None and clock.weak[init.me] >= self.fenced


def record_of(barrier: MBarrier) -> BarrierRecord:
    return barrier.mark


@dataclass(eq=False, slots=True)
class LastWait:
    """The latest phase of a barrier that a warp saw complete (-1: none yet, it was new), where, and at which step.

    epoch: of the warp then; again: True if it had seen that phase before, and has released something since.
    """

    phase: int
    code: Operation
    when: int = 0
    epoch: int = 0
    again: bool = False


class ClusterState:
    """See the module's docstring.

    Attributes:
        number: of the cluster, in the order in which clusters first appeared.
        clocks: of all warps, CTA by CTA.
        accesses: by number; 0 is none.
        exits: the clock of each warp when it exited.
        waits: (CTA, offset of a barrier, warp) -> its latest wait.
        glances: warp -> the last wait it executed whose result nothing uses.
        unfenced: barriers that a warp has initialised since its last fence.mbarrier_init.
        publishing: CTA -> warp -> the epoch in which its fence.mbarrier_init first published a barrier.
        relaxed: warp -> its epoch at its last relaxed arrival at the cluster barrier.
        places: what was released at an address of shared memory.
        waited_for_grid: warps that passed griddepcontrol.wait -> their epoch after it.
        issued: (family, warp, lane or None) -> the bits of all its operations that a commit of the family covers.
        overlaps: a copy's write -> the copies that still wrote some of its bytes when it was issued.
    """

    def __init__(self, cluster: Cluster, granule: int, number: int = 0) -> None:
        self.cluster = cluster
        self.number = number
        self.per_cta = len(cluster.ctas[0].warps)
        self.count = self.per_cta * cluster.size
        self.clocks = [WarpClock(me, self.count) for me in range(self.count)]
        self.accesses: list[Access] = [None]  # type: ignore[list-item]
        self.readers = Readers()
        self.shadows: dict[Region, Shadow] = {
            cta.shared: Shadow(
                cta.shared, granule, WholeBoxes(granule.bit_length() - 1, self.readers.sets, self.joined)
            )
            for cta in cluster.ctas
        }
        self.owners: dict[Region, Cta] = {cta.shared: cta for cta in cluster.ctas}
        self.flights: list[InFlight] = []
        self.issued: dict[tuple[str, int, int | None], int] = {}
        self.waits: dict[tuple[Cta, int, int], LastWait] = {}
        self.glances: dict[int, Operation] = {}
        self.exits: dict[int, Released] = {}
        self.waited_for_grid: dict[int, int] = {}
        self.unfenced: dict[int, list[BarrierRecord]] = {}
        self.publishing: dict[Cta, dict[int, int]] = {}
        self.relaxed: dict[int, int] = {}
        self.places: dict[tuple[Region, int], Released] = {}
        self.overlaps: dict[Access, tuple[Access, ...]] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._bits = 0
        self._views: dict[tuple[int, int], tuple[tuple[int, ...], View]] = {}
        self._notes: dict[type, object] = {}

    def notes(self, kind: type[Notes]) -> Notes:
        """A checker's own state for this cluster, created when first requested."""
        found = self._notes.get(kind)
        if found is None:
            found = self._notes[kind] = kind()
        return found  # type: ignore[return-value]

    # -- who -------------------------------------------------------------------------------------------------------

    def me(self, cta: Cta, warp: int) -> int:
        return cta.rank * self.per_cta + warp

    def actor(self, me: int) -> int:
        """A warp's number in the grid, counted from 1."""
        return self.number * self.count + me + 1

    def of_frame(self, frame: Frame) -> list[WarpClock]:
        first = frame.cta.rank * self.per_cta + frame.first_warp
        return self.clocks[first : first + frame.warps]

    def clock_of(self, by: Issuer) -> WarpClock:
        """The clock of the warp of an issuer's lane."""
        return self.clocks[self.me(by.frame.cta, by.frame.first_warp + (by.lane or 0) // WARP)]

    def among(self, frame: Frame, lanes: np.ndarray) -> list[tuple[WarpClock, int]]:
        """The clocks of the warps of these lanes, each with its lanes as a mask."""
        masks = lane_masks(frame, lanes)
        return [(clock, mask) for clock, mask in zip(self.of_frame(frame), masks, strict=True) if mask]

    def active(self, frame: Frame) -> list[tuple[WarpClock, int]]:
        """Like `among`, for the active lanes."""
        return self.among(frame, frame.active_lanes)

    def clocks_of(self, by: Issuer) -> list[tuple[WarpClock, int]]:
        """Like `active`, for an issuer: the warp of its lane, or all warps that it represents."""
        if by.lane is None:
            return self.active(by.frame)
        first = by.lane // WARP * WARP
        mask = by.frame.mask
        lanes = FULL if mask is True else mask_of(mask[first : first + WARP])
        return [(self.clock_of(by), lanes)]

    def exits_of(self, rank: int) -> list[Released]:
        """The clocks with which the warps of a CTA exited."""
        return [self.exits[me] for me in range(rank * self.per_cta, (rank + 1) * self.per_cta)]

    def view(self, frame: Frame) -> View:
        """What all warps of a frame know."""
        clocks = self.of_frame(frame)
        key, versions = (clocks[0].me, len(clocks)), tuple([clock.version for clock in clocks])
        found = self._views.get(key)
        if found is None or found[0] != versions:
            made = View.meet(clocks) if len(clocks) > 1 else View.of(clocks[0])
            found = self._views[key] = (versions, made)
        return found[1]

    # -- accesses --------------------------------------------------------------------------------------------------

    def generic(self, clock: WarpClock, cta: Cta, code: Operation, writes: bool, strong: bool, proxy: str) -> int:
        """The number of a warp's access in its current epoch."""
        key = (clock.me, clock.epoch, code.pc, writes, proxy)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.accesses)
            warp = clock.me - cta.rank * self.per_cta
            self.accesses.append(Access(proxy, writes, cta, warp, clock.me, clock.epoch, code, strong))
        return found

    def flight(self, operation: AsyncOperation, cta: Cta, warp: int, starts: effects.Starts) -> InFlight:
        """Give a new operation its place in the clocks."""
        flight = InFlight(1 << self._bits, 2 << self._bits, operation, cta, warp, self.me(cta, warp), starts)
        self._bits += 2
        self.flights.append(flight)
        return flight

    def note_issued(self, flight: InFlight) -> None:
        """A commit by its thread (or, for an operation of a whole warp, by its warp) will cover the operation."""
        if flight.committed_in:
            lane = flight.operation.issuer.lane_of_warp if flight.starts.parts == "lane" else None
            key = (flight.committed_in, flight.me, lane)
            self.issued[key] = self.issued.get(key, 0) | flight.all

    def of_flight(self, flight: InFlight, writes: bool, proxy: str) -> int:
        """The number of an operation's reads or writes. A reduction is atomic, element by element, so it is strong."""
        number = len(self.accesses)
        strong = writes and any(
            one.how == effects.UPDATES and one.space != "register"
            for one in effects.accesses(flight.code.effects, effects.RUN)
        )
        bit = flight.done if writes else flight.read
        lane = flight.operation.issuer.lane_of_warp
        self.accesses.append(
            Access(proxy, writes, flight.cta, flight.warp, flight.me, 0, flight.code, strong, bit, flight, lane)
        )
        return number

    def joined(self, old: int, number: int) -> int:
        """A set of readers plus one. Of operations that one owner waits for in order, the newest is enough."""
        if not old:
            return self.readers.number((number,))
        new = self.accesses[number].flight
        assert new is not None
        if new.family and new.starts.parts != "warp":
            members = self.readers.sets[old]
            others = tuple([access for access in members if not in_order(self.accesses[access].flight, new)])
            old = self.readers.number(others)
        return self.readers.add(old, number)


def lane_masks(frame: Frame, lanes: np.ndarray) -> list[int]:
    """The lanes of each warp of a frame, as 32-bit masks."""
    if lanes.size == frame.lanes:
        return [FULL] * frame.warps
    masks = [0] * frame.warps
    for lane in lanes.tolist():
        masks[lane >> 5] |= 1 << (lane & 31)
    return masks
