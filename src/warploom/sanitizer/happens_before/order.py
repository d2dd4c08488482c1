"""Moves the clocks: the edges between accesses of different threads, and of the operations that they start.

    fence.proxy.async                    carries what the thread knows to the async proxy
    bar, barrier.cluster                 release at the arrival (.relaxed: of what a fence covered), acquire at the wait
    mbarrier arrive -> wait              release into the phase, acquire of the complete phase; after a relaxed wait
                                         a fence acquires it
    copy that completes bytes -> wait    only that operation is known, not what its thread did before (8.9.1.1)
    wait for a group                     its operations are known to be complete, or to have read their sources
    strong access -> strong access       release and acquire through memory (8.9.4; global memory: `flags`)

Arrivals from another CTA carry memory accesses only if they release at cluster scope and the wait acquires at
cluster scope. At any scope they carry that asynchronous reads are complete (the operation itself has finished).

`Order` comes after the checkers; what they judge already has its place in the clocks (`entry`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import BarrierUse, CompletedWait, Observer
from ...emulator.machine.mbarrier import Event, MBarrier
from ...emulator.machine.places import Lanes
from ...isa import effects
from .access import COPY, flights_of, writing_proxy
from .clocks import WarpClock
from .gaps import OtherSpace
from .kept_lanes import KeptLanes
from .known_clusters import Front
from .partial_waits import PartialWaits
from .released import Released
from .scopes import LEVELS
from .signals import commit_of, narrowed, reaches, signalled, unscoped
from .state import ClusterState, LastWait, PhaseRecord, lane_masks, record_of

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ..context import Context

KEPT_CODES = 64
"""Maximum number of a phase's instructions that are remembered for messages."""


class Order(Observer):
    """Moves the clocks."""

    def __init__(self, context: Context) -> None:
        self.context = context

    # -- memory ----------------------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        state = self.context.state(frame.cta)
        shared = place.region in state.shadows
        if shared:
            for clock, mask in zip(state.of_frame(frame), lane_masks(frame, place.lanes), strict=True):
                if mask:
                    clock.touch(mask, frame.operation.pc)
        elif place.space == "global":
            pc, strong = frame.operation.pc, frame.operation.order.strong
            for clock, mask in zip(state.of_frame(frame), lane_masks(frame, place.lanes), strict=True):
                if mask:
                    clock.touch_global(mask, pc, strong, how != effects.READS)
        if not frame.operation.order.strong:
            return
        writes, atomic = how != effects.READS, how == effects.UPDATES
        if shared:
            self._through_shared(state, frame, place, writes, atomic)
        else:
            reads = effects.accesses(frame.operation.effects)[0].returns if atomic else not writes
            offsets = place.index * place.size
            self.context.flags.touched(state, frame, place.region, offsets, place.lanes, reads, writes, atomic)

    copied = accessed

    @staticmethod
    def _through_shared(state: ClusterState, frame: Frame, place: Lanes, writes: bool, atomic: bool) -> None:
        """A lock or a flag in shared memory. PTX ISA 8.9.4."""
        order, offsets = frame.operation.order, place.index * place.size
        for at, (clock, mask) in enumerate(zip(state.of_frame(frame), lane_masks(frame, place.lanes), strict=True)):
            for offset in set(offsets[place.lanes >> 5 == at].tolist()):
                before = state.places.get((place.region, offset))
                if before is not None and (atomic or not writes):
                    if order.acquires:
                        clock.hear(mask, before)
                        clock.acquire(before)
                        state.notes(PartialWaits).heard(clock, mask)
                    else:
                        clock.remember(before)
                if atomic and (order.releases or clock.published is not None):
                    clock.in_turn = mask, clock.epoch
                if writes:
                    carried = clock.release(mask, frame.operation.pc) if order.releases else clock.published
                    if carried is not None:
                        if before is None or not atomic:
                            state.places[place.region, offset] = carried.copy()
                        else:
                            before.add(carried)

    # -- operations ------------------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        frame = operation.issuer.frame
        for flight in flights_of(operation):
            state = self.context.state(flight.cta)
            if flight.starts.parts == "warpgroup":
                flight.weak = self._issued_by_all(state, frame)
            elif flight.starts.parts == "warp":  # it reads global memory like a load
                state.clocks[flight.me].touch_global()

    @staticmethod
    def _issued_by_all(state: ClusterState, frame: Frame) -> Front:
        """What happened before the warps issued an operation: it has happened when the operation is complete, but it is
        not guaranteed how much later the accesses themselves are complete.
        """
        clocks = state.of_frame(frame)
        moves = any([clock.used == clock.epoch for clock in clocks])
        view = state.view(frame)
        if view.mark is not None and not moves:
            return view.mark
        weak = clocks[0].mark()
        for clock in clocks[1:]:
            np.maximum(weak, clock.mark(), out=weak)
        if not moves:
            view.mark = weak
        return weak

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        if isinstance(wait.what, MBarrier):
            self._phase_seen(frame, wait.what, wait.lanes)
        elif wait.what is not None:
            self._passed(frame, wait.what)  # type: ignore[arg-type]
        elif wait.on == "grid":
            state = self.context.state(frame.cta)
            for clock in state.of_frame(frame):
                clock.begin_epoch()
                state.waited_for_grid[clock.me] = clock.epoch
        else:
            self._proven(frame, wait)

    def _proven(self, frame: Frame, wait: CompletedWait) -> None:
        """Operations are complete, or have read their sources."""
        flights = []
        for operation, lanes in wait.operations:
            for flight in flights_of(operation):
                if flight.waiting and flight.starts.parts == "warp":  # each lane has its part, and all must wait
                    if flight.warp == frame.first_warp:
                        flight.waiting &= ~lanes
                    if flight.waiting:
                        continue
                flights.append(flight)
        if not flights:
            return
        reached: Front | None = None
        for flight in flights:
            if flight.weak is not None:
                reached = flight.weak if reached is None else np.maximum(reached, flight.weak)
        state = self.context.state(frame.cta)
        for clock, mask in zip(state.of_frame(frame), lane_masks(frame, wait.lanes), strict=True):
            own = [flight for flight in flights if flight.me == clock.me and flight.starts.parts == "lane"]
            if own and mask:  # the group of a thread: only those that wait here know of it
                told = Released.nothing(state.count)
                for flight in own:
                    told.known |= flight.read if wait.reads_only else flight.all
                alive, group = frame.cta.warps[clock.me % state.per_cta].alive, (own[-1], int(wait.reads_only))
                state.notes(PartialWaits).waited(clock, mask, alive, group, frame.operation, told)
            bits = 0
            for flight in flights:
                if flight.me == clock.me or flight.starts.parts == "warpgroup":
                    bits |= flight.read if wait.reads_only else flight.all
            if bits:
                clock.learn(bits)
            if reached is not None:
                clock.suspect(reached)

    # -- fences ----------------------------------------------------------------------------------------------------

    def fenced(self, frame: Frame, places: np.ndarray | None) -> None:
        state = self.context.state(frame.cta)
        for effect in frame.operation.effects:
            if not isinstance(effect, effects.Fences):
                continue
            for clock, mask in state.active(frame):
                if effect.kind == "memory":
                    clock.fence(mask, effect.order.scope, total=effect.order.sem == "sc")
                elif effect.kind == "mbarrier_init":
                    for barrier in state.unfenced.pop(clock.me, []):
                        barrier.fenced = clock.epoch
                        state.publishing.setdefault(frame.cta, {}).setdefault(clock.me, clock.epoch)
                elif effect.kind == "proxy:async" and effect.direction != "acquire":
                    # an acquire carries nothing that a release has not
                    whole = not frame.cta.warps[clock.me % state.per_cta].alive & ~mask
                    clock.carry(mask, effect.spaces, whole)
                    if not whole:
                        self.context.flags.fencing[state.actor(clock.me)] = clock
                    if effect.spaces == "global":
                        state.notes(OtherSpace).copies |= clock.known

    # -- meetings --------------------------------------------------------------------------------------------------

    def met(self, what: object, frame: Frame | None) -> None:
        if isinstance(what, MBarrier):
            self._phase_complete(what)
        elif frame is not None:
            state = self.context.state(frame.cta)
            for clock, mask in state.active(frame):
                if frame.cta.warps[clock.me % state.per_cta].alive & ~mask:
                    state.notes(KeptLanes).keep(clock, (mask,), frame.operation)
                    clock.meet_some(mask)
                    state.notes(PartialWaits).met(clock, mask)
                else:
                    _all_meet(state, clock, mask)

    def kept(self, frame: Frame, bits: np.ndarray) -> None:
        state = self.context.state(frame.cta)
        state.notes(KeptLanes).executed(state.of_frame(frame), bits, frame.active, frame.operation)

    def arrived(self, on: MBarrier | BarrierUse, event: Event) -> None:
        if isinstance(on, MBarrier):
            self._arrived_on_mbarrier(on, event)
            return
        frame = event.by.frame
        relaxed = frame.operation.order.sem == "relaxed"
        state = self.context.state(frame.cta)
        of_cluster = any(
            isinstance(one, effects.Synchronises) and one.kind == "cluster" for one in frame.operation.effects
        )
        for clock, mask in state.active(frame):
            for record in state.unfenced.get(clock.me, ()) if of_cluster else ():
                record.met = clock.epoch if record.met is None else record.met
            if relaxed:
                state.relaxed[clock.me] = clock.epoch
            released = signalled(clock, mask, frame.operation, of_cluster)
            self.context.flags.spoken(state, clock, mask, clock.epoch - 1, frame.operation.pc)
            if on.mark is None:
                on.mark = released.copy()
            else:
                on.mark.add(released)

    def _passed(self, frame: Frame, meeting: BarrierUse) -> None:
        state = self.context.state(frame.cta)
        masks = lane_masks(frame, frame.active_lanes)
        for number, (clock, mask) in enumerate(zip(state.of_frame(frame), masks, strict=True)):
            if meeting.mark is not None:
                clock.hear(mask, meeting.mark)
                clock.acquire(meeting.mark)
            state.notes(PartialWaits).heard(clock, mask)  # of all that arrived, also lanes of its own warp
            if not frame.cta.warps[frame.first_warp + number].alive & ~mask:
                _all_meet(state, clock, mask)

    # -- mbarriers -------------------------------------------------------------------------------------------------

    def _arrived_on_mbarrier(self, barrier: MBarrier, event: Event) -> None:
        state, by, operation = self.context.state(barrier.cta), event.by, event.operation
        phase = record_of(barrier).current
        if len(phase.codes) < KEPT_CODES:
            phase.codes.append(by.operation)
        if event.what == "complete" and operation is not None:
            for flight in flights_of(operation):
                phase.own.known |= flight.all
                if flight.cta is not barrier.cta and writing_proxy(flight) == COPY:
                    phase.released = flight.code
        held = operation.mark if operation is not None else None
        by_thread = event.what == "complete" and (operation is None or isinstance(held, Released))
        if event.what != "arrive" and not by_thread:
            return
        clocks, remote, commits = state.clocks_of(by), by.frame.cta is not barrier.cta, commit_of(by.operation)
        if event.what == "arrive":
            phase.note_arrival(state, by, clocks)
            if remote and not commits and reaches(by.operation, True) and by.operation.order.sem != "relaxed":
                phase.released = by.operation
        side = phase.others if remote else phase.own
        if isinstance(held, Released):
            side.add(narrowed(held, by.operation, remote) if commits else held)
            return
        for clock, mask in clocks:  # lanes that execute it together release together
            side.add(signalled(clock, mask, by.operation, remote))
            self.context.flags.spoken(state, clock, mask, clock.epoch - 1, by.operation.pc)

    def _phase_complete(self, barrier: MBarrier) -> None:
        record = record_of(barrier)
        record.previous = record.current
        arrived = record.current.arrived
        always = arrived if record.always is None else record.always
        if sum(lanes.bit_count() for lanes in arrived.values()) < barrier.expected:
            always = {}  # some thread stands for several arrivals, so that none is missing where one arrives twice
        record.always = {
            warp: lanes & arrived.get(warp, 0) for warp, lanes in always.items() if lanes & arrived.get(warp, 0)
        }
        record.previous.heard = [clock.heard for clock in self.context.state(barrier.cta).clocks]
        record.current = PhaseRecord.empty(self.context.state(barrier.cta).count)

    def asked(self, frame: Frame, barrier: MBarrier, lanes: np.ndarray) -> None:
        if frame.operation.pc in self.context.unchecked:
            state = self.context.state(barrier.cta)
            record_of(barrier).current.glance = frame.operation
            for clock, mask in zip(state.of_frame(frame), lane_masks(frame, lanes), strict=True):
                if mask:
                    state.glances[clock.me] = frame.operation

    def _phase_seen(self, frame: Frame, barrier: MBarrier, lanes: np.ndarray) -> None:
        state, phase, code = self.context.state(barrier.cta), record_of(barrier).previous, frame.operation
        wide, behind = LEVELS[code.order.scope] >= LEVELS["cluster"], state.notes(PartialWaits)
        for clock, mask in zip(state.of_frame(frame), lane_masks(frame, lanes), strict=True):
            if not mask:
                continue
            clock.heard += 1
            if code.pc in self.context.unchecked:  # the result may also have been false
                state.glances[clock.me] = phase.glance = code
                continue
            if barrier.phase > 0:
                phase.seen = True
                told, alive = phase.told(wide, unscoped(code)), frame.cta.warps[clock.me % state.per_cta].alive
                if not code.order.acquires:
                    clock.remember(told, LEVELS[code.order.scope])
                else:
                    behind.waited(clock, mask, alive, (barrier, barrier.phase), code, told)
                    clock.hear(mask, told)
                    clock.acquire(told)
            key = (barrier.cta, barrier.offset, clock.me)
            last, seen = state.waits.get(key), barrier.phase - 1
            again = last is not None and last.phase == seen and (last.again or last.epoch < clock.epoch)
            state.waits[key] = LastWait(seen, code, self.context.machine.steps, clock.epoch, again)


def _all_meet(state: ClusterState, clock: WarpClock, lanes: int) -> None:
    """All lanes of a warp that have not exited synchronise. Those that have left without it are not waited for, and
    nothing orders what they did since the last time: `exit` is no release (PTX ISA 9.7.12.7)."""
    if clock.lanes & ~lanes:
        clock.meet_some(lanes)
    else:
        clock.meet()
    state.notes(PartialWaits).met(clock)
