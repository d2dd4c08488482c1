"""Asynchronous operations: what they touch is checked when they are issued, and they are known once waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...emulator.engines.boxes import SharedBox
from ...emulator.engines.bulk import Bytes, Scattered
from ...emulator.machine.mbarrier import mbarriers_of
from ..happens_before.clocks import Released, View, WarpClock
from ..happens_before.copies import WarpCopies
from ..happens_before.edges import Edges
from ..happens_before.state import ClusterState, Flight, Groups, lane_masks
from ..report.findings import at
from ..shadow.shadow import ASYNC, COPY
from .shared_memory import Granules

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.memory import Region
    from ..shadow.shadow import Shadow


class Operations(Edges):
    """The part of the sanitizer that follows copies."""

    def operation_issued(self, operation: AsyncOperation) -> None:
        issuer = operation.issuer
        cta = issuer.frame.cta
        state = self.state(cta)
        if operation.kind == "cp.async":
            if operation.targets:
                self._copy_issued(state, operation)
            else:
                operation.mark = self._copies_before(state, operation)
            return
        if operation.kind == "wgmma":
            return
        lane = issuer.lane or 0
        warp = issuer.frame.first_warp + lane // 32
        clock = state.clocks[state.me(cta, warp)]
        if operation.barrier is not None:
            self.check_signalled(operation)
        if not operation.targets:  # an arrival on another CTA's barrier
            masks = lane_masks(issuer.frame, issuer.frame.active_lanes)
            operation.mark = clock.release(masks[lane // 32])
            self._remote_arrival(state, operation, clock.me)
            if operation.rank >= 0:
                self.check_started(state, clock, cta, cta.cluster.ctas[operation.rank], issuer.operation)
            return
        flight = state.flight(operation, cta, warp)
        operation.mark = flight
        self._note_phase(state, operation, flight)
        view = View.of(clock)
        self.note_map_use(state, operation, flight, clock)
        for source in operation.sources:
            region = getattr(source, "region", None)
            if region in state.shadows:
                self.async_read(state, region, granules_of(state.shadows[region], source), flight, view)
            else:
                self.global_copy(state, flight, source, clock, writes=False)  # type: ignore[arg-type]
        proxy = ASYNC if operation.sources else COPY
        for target in operation.targets:
            region = getattr(target, "region", None)
            if region in state.shadows:
                where = granules_of(state.shadows[region], target)
                self._written(state, region, where, flight, view, proxy, target)
            else:
                self.global_copy(state, flight, target, clock, writes=True)  # type: ignore[arg-type]
        if operation.kind == "store":
            state.bulk.setdefault((cta.rank, issuer.thread), Groups()).open.append(flight)

    def _written(
        self,
        state: ClusterState,
        region: Region,
        where: Granules,
        flight: Flight,
        view: View,
        proxy: str,
        target: object,
    ) -> None:
        self.async_write(state, region, where, flight, view, proxy)
        owner = state.owners[region]
        if owner is not flight.cta:
            self.note_remote_copy(state, flight, owner.rank)
            issuer = flight.operation.issuer
            clock = state.clocks[state.me(flight.cta, flight.warp)]
            self.check_started(state, clock, flight.cta, owner, issuer.operation)
        self.tag(state, state.shadows[region], target, flight)

    @staticmethod
    def _note_phase(state: ClusterState, operation: AsyncOperation, flight: Flight) -> None:
        if operation.barrier is not None:
            cta, offset = operation.barrier
            barrier = mbarriers_of(cta).get(offset)
            if barrier is not None:
                flight.phase = barrier.phase

    # -- completion ------------------------------------------------------------------------------------------------

    def operation_written(self, operation: AsyncOperation) -> None:
        self.signalling = operation

    def operation_done(self, operation: AsyncOperation) -> None:
        self.signalling = None

    # -- bulk groups -----------------------------------------------------------------------------------------------

    def groups_committed(self, frame: Frame) -> None:
        state = self.state(frame.cta)
        if state.bulk:
            for lane in frame.active_lanes.tolist():
                groups = state.bulk.get((frame.cta.rank, frame.thread(lane)))
                if groups is not None:
                    groups.commit()

    def groups_waited(self, frame: Frame, groups: object, newest: int, reads_only: bool) -> None:
        state = self.state(frame.cta)
        if not state.bulk:
            return
        own = False
        for lane in frame.active_lanes.tolist():
            mine = state.bulk.get((frame.cta.rank, frame.thread(lane)))
            if mine is None:
                continue
            own, waited = True, 0
            state.owners_wait.add(frame.operation)
            for flight in mine.wait(newest, keep=reads_only):
                waited |= flight.read if reads_only else flight.all
            if waited:
                state.clocks[state.me(frame.cta, frame.first_warp + lane // 32)].learn(waited)
        if not own:
            self._waits_for_nothing(state, frame)

    def _waits_for_nothing(self, state: ClusterState, frame: Frame) -> None:
        """Groups belong to the thread that committed them. At the exit it is known whether this one ever had any."""
        clock = state.clocks[state.me(frame.cta, frame.first_warp)]
        for (rank, thread), groups in state.bulk.items():
            pending = [flight for flight in groups.pending() if not flight.read & clock.known]
            if rank == frame.cta.rank and pending:
                threads = frozenset(frame.thread(lane) for lane in frame.active_lanes.tolist())
                code = pending[-1].operation.issuer.operation
                state.idle_waits[frame.operation, threads] = (frame.first_warp, thread, code)
                return

    def judge_waits(self, state: ClusterState, cta: Cta) -> None:
        """A CTA exits: which threads have waited for groups and never had one."""
        for (wait, threads), (warp, thread, code) in state.idle_waits.items():
            codes = (wait, code)
            place = wait.instruction.location or wait.pc  # one line of the author's may be code of several roles
            if any(place == (owner.instruction.location or owner.pc) for owner in state.owners_wait):
                continue
            if any((cta.rank, one) in state.bulk for one in threads) or self.findings.seen(
                "wait-by-another-thread", codes
            ):
                continue
            self.findings.add(
                "wait-by-another-thread",
                f"{at(wait)} is executed by warp {warp}, none of whose threads issues a bulk store: it waits "
                f"for nothing. "
                f"Thread {thread} has stores in flight ({at(code)})",
                codes,
                cta,
                warp,
            )
        state.idle_waits.clear()

    # -- cp.async --------------------------------------------------------------------------------------------------

    def _copy_issued(self, state: ClusterState, operation: AsyncOperation) -> None:
        """One instruction of several warps is an operation for each of them."""
        frame = operation.issuer.frame
        active = frame.active
        for at_warp, clock in enumerate(state.of_frame(frame)):
            mine = active[at_warp * 32 : at_warp * 32 + 32]
            if not mine.any():
                continue
            flight = state.flight(operation, frame.cta, frame.first_warp + at_warp)
            view = View.of(clock)
            self._copy_reads(frame, operation, at_warp)
            for target in operation.targets:
                if isinstance(target, Scattered) and target.region in state.shadows:
                    chosen = target.lanes >> 5 == at_warp
                    where = state.shadows[target.region].elements(target.index[chosen], target.size, 1)
                    if where.size:
                        shadow = state.shadows[target.region]
                        number = self.async_write(state, target.region, where.reshape(-1), flight, view, COPY)
                        self.note_origins(shadow, target, chosen, number)
            book = state.copies.setdefault(clock.me, WarpCopies())
            book.open.append((flight, mine.copy()))  # type: ignore[arg-type]
            state.copied[clock.me] = state.copied.get(clock.me, 0) | flight.all

    def _copy_reads(self, frame: Frame, operation: AsyncOperation, at_warp: int) -> None:
        """cp.async reads global memory as ld does."""
        for target in operation.targets:
            if at_warp or not isinstance(target, Scattered) or target.origins is None or not target.origins.any():
                continue
            whole = target.origins != 0
            addresses = target.origins[whole].astype(np.int64)
            found = self.machine.memory.find(int(addresses.min()))
            if found is not None and int(addresses.max()) < found.end:
                width = min(target.size, 8)
                index, count = (addresses - found.base) // width, target.size // width
                self.global_access(frame, found.region, index, width, count, target.lanes[whole], writes=False)

    @staticmethod
    def _copies_before(state: ClusterState, operation: AsyncOperation) -> Released:
        """What cp.async.mbarrier.arrive publishes: the copies its threads issued before, and nothing else."""
        released = Released.nothing(state.count)
        frame = operation.issuer.frame
        for clock in state.of_frame(frame):
            released.known |= state.copied.get(clock.me, 0)
        return released

    def copies_committed(self, frame: Frame) -> None:
        state = self.state(frame.cta)
        book = state.copies.get(state.me(frame.cta, frame.first_warp))
        if book is not None:
            book.commit(frame.active)

    def copies_waited(self, frame: Frame, newest: int) -> None:
        state = self.state(frame.cta)
        clock = state.clocks[state.me(frame.cta, frame.first_warp)]
        book = state.copies.get(clock.me)
        if book is None:
            return
        lanes = frame.active
        done = book.older_than(newest, lanes)
        for group in done:
            for flight in group.operations:
                clock.learn(flight.all)  # type: ignore[attr-defined]
        finished = {id(group) for group in done if not (group.lanes & ~lanes).any()}
        book.groups = [group for group in book.groups if id(group) not in finished]

    # -- for other parts -------------------------------------------------------------------------------------------

    def tag(self, state: ClusterState, shadow: Shadow, target: object, flight: Flight) -> None:
        """Note which chunk of which box lies where."""

    def note_origins(self, shadow: Shadow, target: Scattered, chosen: np.ndarray, access: int) -> None:
        """Note where in global memory the chunks of a cp.async come from."""

    def note_map_use(self, state: ClusterState, operation: AsyncOperation, flight: Flight, clock: WarpClock) -> None:
        """A copy with a tensor map is issued."""

    def note_remote_copy(self, state: ClusterState, flight: Flight, rank: int) -> None:
        """A copy goes into another CTA's shared memory."""

    def _remote_arrival(self, state: ClusterState, operation: AsyncOperation, me: int) -> None:
        """An arrival on another CTA's barrier was issued."""


def granules_of(shadow: Shadow, place: object) -> np.ndarray | slice:
    """The granules of a stretch or a box."""
    if isinstance(place, Bytes):
        return shadow.span(place.start, place.size)
    if isinstance(place, SharedBox):
        if place.contiguous:
            return shadow.span(place.offset, place.rows * place.row_bytes)
        return shadow.of_chunks(place.places())
    raise TypeError(f"no granules for {type(place).__name__}")
