"""Synchronisation: how clocks move between warps, and the protocol rules of mbarriers.

    fence.proxy.async                    carries what the thread knows to the async proxy
    bar, barrier.cluster                 release at the arrival, acquire behind the wait
    mbarrier arrive -> wait              release into the phase, acquire of the complete phase
    copy that completes bytes -> wait    that operation alone is known, not what its thread did before (8.9.1.1)

Arrivals from another CTA carry memory accesses only where they release at cluster scope and the wait acquires at
cluster scope; that asynchronous reads are done they carry at any scope (the operation itself has finished).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.diagnosis.phases import history
from ...emulator.machine import shared_address as shared
from ...emulator.machine.mbarrier import mbarriers_of, was_invalidated
from ..checkers.shared_memory import Races
from ..checkers.unchecked_waits import unheeded
from ..core import actor
from ..report.findings import at
from ..shadow.shadow import BARRIER, Access
from .clocks import Released, WarpClock
from .state import ClusterState, Flight, Waited, lane_masks

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation, Issuer
    from ...emulator.machine.events import Meeting
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta, Machine
    from ...emulator.machine.mbarrier import Event, MBarrier
    from ...emulator.program.code import Operation

WIDE = ("cluster", "gpu", "sys")


@dataclass(eq=False)
class PhaseClock:
    """What the arrivals of one phase carried: those of the barrier's own CTA and those of others.

    Attributes:
        bytes: delivered by copies; codes: the instructions that delivered or arrived.
        seen: whether a wait saw the phase complete.
    """

    own: Released
    others: Released
    bytes: int = 0
    codes: list[Operation] = field(default_factory=list)
    seen: bool = False


@dataclass(eq=False)
class BarrierClock:
    """An mbarrier's clocks: the phase in progress and the one before; who initialised it.

    `fenced`: its thread has executed fence.mbarrier_init since, so that a relaxed cluster barrier makes it visible.
    """

    current: PhaseClock
    previous: PhaseClock
    access: int
    fenced: bool = False

    def visible_to(self, clock: WarpClock, init: Access) -> bool:
        """Whether a warp knows that the barrier is initialised."""
        return clock.c[init.me] >= init.epoch or self.fenced and clock.weak[init.me] >= init.epoch


class Edges(Races):
    """The part of the sanitizer that follows synchronisation."""

    signalling: AsyncOperation | None = None
    """The operation whose signal is being delivered."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._unheeded = unheeded(machine.code)

    # -- fences ----------------------------------------------------------------------------------------------------

    def fence(self, frame: Frame, key: str, modifiers: Mapping[str, str | None], places: object = None) -> None:
        state = self.state(frame.cta)
        masks = lane_masks(frame, frame.active_lanes)
        opcode = frame.operation.instruction.opcode
        for clock, mask in zip(state.of_frame(frame), masks, strict=True):
            if not mask:
                continue
            if key.startswith("fence.proxy_async"):
                space = "global" if ".global" in opcode else "shared" if ".shared" in opcode else ""
                if space != "global":
                    self.note_fence(state, clock, frame)
                clock.carry(mask, space)
            elif key == "fence.mbarrier_init":
                for barrier in state.unfenced.pop(clock.me, []):
                    barrier.fenced = True
            elif key in ("fence.membar", "fence.scope", "fence.acquire_restricted", "fence.release_restricted"):
                clock.fence(mask, frame.operation.order.scope)

    def warp_met(self, frame: Frame) -> None:
        for clock in self.state(frame.cta).of_frame(frame):
            clock.meet()

    # -- named barriers and the cluster barrier ----------------------------------------------------------------------

    def barrier_arrived(self, barrier: Meeting, frame: Frame) -> None:
        self._arrive(barrier, frame)

    def barrier_passed(self, barrier: Meeting, frame: Frame) -> None:
        self._pass(barrier, frame)

    def cluster_arrived(self, phase: Meeting, frame: Frame, relaxed: bool) -> None:
        self._arrive(phase, frame, relaxed)

    def cluster_waited(self, phase: Meeting, frame: Frame) -> None:
        self._pass(phase, frame)

    def _arrive(self, place: Meeting, frame: Frame, relaxed: bool = False) -> None:
        state = self.state(frame.cta)
        for clock, mask in zip(state.of_frame(frame), lane_masks(frame, frame.active_lanes), strict=True):
            if mask:
                released = clock.release(mask)
                self._join(place, released.only_operations() if relaxed else released)

    @staticmethod
    def _join(place: Meeting, released: Released) -> None:
        if place.mark is None:
            place.mark = released.copy()
        else:
            place.mark.add(released)

    def _pass(self, place: Meeting, frame: Frame) -> None:
        state = self.state(frame.cta)
        whole = frame.mask is True
        for number, clock in enumerate(state.of_frame(frame)):
            if place.mark is not None:
                clock.acquire(place.mark)
            if whole or self._all_alive(frame, number):
                clock.meet()

    @staticmethod
    def _all_alive(frame: Frame, at: int) -> bool:
        """Whether all living threads of a warp of the frame execute."""
        alive = frame.cta.warps[frame.first_warp + at].alive
        return not alive & ~lane_masks(frame, frame.active_lanes)[at]

    # -- mbarriers -------------------------------------------------------------------------------------------------

    def mbarrier_initialised(self, barrier: MBarrier, by: Issuer) -> None:
        state = self.state(barrier.cta)
        clock = self._clock_of(state, by)
        clock.touch(1 << (by.lane or 0) % 32)
        access = state.generic(clock, by.frame.cta, by.operation, True, False, BARRIER)
        none = Released.nothing(state.count)
        made = BarrierClock(PhaseClock(none, none.copy()), PhaseClock(none.copy(), none.copy()), access)
        barrier.mark = made
        state.unfenced.setdefault(clock.me, []).append(made)
        self.note_barrier(state, barrier.cta.shared, barrier.offset, access)

    @staticmethod
    def _clock_of(state: ClusterState, by: Issuer) -> WarpClock:
        return state.clocks[state.me(by.frame.cta, by.frame.first_warp + (by.lane or 0) // 32)]

    @classmethod
    def _clocks_of(cls, state: ClusterState, by: Issuer) -> list[WarpClock]:
        """The clocks of all warps that an issuer stands for."""
        if by.lane is not None:
            return [cls._clock_of(state, by)]
        masks = lane_masks(by.frame, by.frame.active_lanes)
        return [clock for clock, mask in zip(state.of_frame(by.frame), masks, strict=True) if mask]

    def mbarrier_event(self, barrier: MBarrier, event: Event) -> None:
        clocks: BarrierClock = barrier.mark  # type: ignore[assignment]
        state, phase, by = self.state(barrier.cta), clocks.current, event.by
        operation = self.signalling
        if len(phase.codes) < 64:
            phase.codes.append(by.operation)
        if event.what == "complete":
            if operation is not None:
                self._bytes_arrive(state, barrier, phase, operation, event.amount)
            return
        if operation is None or operation.barrier is None:  # else it was looked at when it was issued
            self._check_initialised(state, barrier, clocks, by)
        if event.what != "arrive":
            return
        self._check_phase_seen(barrier, clocks, by)
        if operation is not None and isinstance(operation.mark, Released):
            released, remote = operation.mark, by.frame.cta is not barrier.cta
            self._release(state, barrier, phase, released, by, remote)
            return
        frame = by.frame
        masks = lane_masks(frame, frame.active_lanes)  # lanes that execute it together release together
        for number, (clock, mask) in enumerate(zip(state.of_frame(frame), masks, strict=True)):
            if mask and (by.lane is None or by.lane >> 5 == number):
                self._release(state, barrier, phase, clock.release(mask), by, False)

    def _release(
        self, state: ClusterState, barrier: MBarrier, phase: PhaseClock, released: Released, by: Issuer, remote: bool
    ) -> None:
        sem, scope = by.operation.order.sem, by.operation.order.scope
        if remote and (sem == "relaxed" or scope not in WIDE):
            released = released.only_operations()
            codes = (by.operation,)
            if not self.findings.seen("remote-arrival-scope", codes):
                how = "is relaxed" if sem == "relaxed" else "has the default scope, .cta"
                self.findings.add(
                    "remote-arrival-scope",
                    f"the arrival {at(by.operation)} on `{barrier.name}`, a barrier of another CTA, {how}: it "
                    f"carries no "
                    "memory accesses of its thread to that CTA, only that asynchronous reads have finished",
                    codes,
                    by.frame.cta,
                    by.frame.first_warp + (by.lane or 0) // 32,
                )
        elif sem == "relaxed":
            released = released.relaxed()
        (phase.others if remote else phase.own).add(released)

    def _bytes_arrive(
        self, state: ClusterState, barrier: MBarrier, phase: PhaseClock, operation: AsyncOperation, amount: int
    ) -> None:
        flight = operation.mark
        phase.bytes += amount
        if not isinstance(flight, Flight):
            return
        phase.own.known |= flight.all
        if 0 <= flight.phase < barrier.phase:
            code = operation.issuer.operation
            if not self.findings.seen("bytes-in-later-phase", (code,)):
                self.findings.add(
                    "bytes-in-later-phase",
                    f"the {amount} bytes of the copy {at(code)} arrive at `{barrier.name}` in phase "
                    f"{barrier.phase}, and "
                    f"the copy was issued in phase {flight.phase}, which was complete before: fewer bytes "
                    f"were announced "
                    "(expect_tx) than the copies of that phase bring, or they were announced too late",
                    (code,),
                    flight.cta,
                    flight.warp,
                    history=history(barrier),
                )

    def check_signalled(self, operation: AsyncOperation) -> None:
        """Whoever issues an operation must know that the barrier which it will signal has been initialised."""
        assert operation.barrier is not None
        cta, offset = operation.barrier
        barrier = mbarriers_of(cta).get(offset)
        if barrier is None:
            self.barrier_missing(cta, offset, operation.issuer)
        else:
            self._check_initialised(self.state(cta), barrier, barrier.mark, operation.issuer)  # type: ignore[arg-type]

    def _check_initialised(self, state: ClusterState, barrier: MBarrier, clocks: BarrierClock, by: Issuer) -> None:
        """Whoever uses a barrier must know that it has been initialised."""
        init = state.accesses[clocks.access]
        late = [clock for clock in self._clocks_of(state, by) if not clocks.visible_to(clock, init)]
        codes = (by.operation, init.code)
        if late and not self.findings.seen("mbarrier-init-not-visible", codes):
            warp = late[0].me % state.per_cta
            self.findings.add(
                "mbarrier-init-not-visible",
                f"{actor(by.frame.cta, warp)} uses `{barrier.name}` with {at(by.operation)}, and warp {init.warp} of "
                f"{init.cta.describe()} initialises it with {at(init.code)}; no barrier that both pass stands between, "
                f"or a relaxed one without fence.mbarrier_init in front of it",
                codes,
                by.frame.cta,
                warp,
            )

    def _check_phase_seen(self, barrier: MBarrier, clocks: BarrierClock, by: Issuer) -> None:
        """At least one wait must have seen a phase complete before anybody arrives for the next (9.7.13.15.4)."""
        if barrier.phase == 0 or clocks.previous.seen:
            return
        codes = (by.operation,)
        if not self.findings.seen("phase-not-observed", codes):
            self.findings.add(
                "phase-not-observed",
                f"{at(by.operation)} arrives on `{barrier.name}` for phase {barrier.phase}, and nobody has seen phase "
                f"{barrier.phase - 1} complete",
                codes,
                by.frame.cta,
                history=history(barrier),
            )

    def barrier_missing(self, cta: Cta, offset: int, by: Issuer) -> None:
        invalidated = was_invalidated(cta, offset)
        rule = "mbarrier-used-when-invalid" if invalidated else "mbarrier-init-not-visible"
        how = "after its mbarrier.inval" if invalidated else "before any thread has initialised it"
        warp = by.frame.first_warp + (by.lane or 0) // 32
        if cta is not by.frame.cta:
            state = self.state(by.frame.cta)
            self.check_started(state, self._clock_of(state, by), by.frame.cta, cta, by.operation)
        if self.findings.seen(rule, (by.operation,)):
            return
        self.findings.add(
            rule,
            f"{actor(by.frame.cta, warp)} uses the mbarrier at `{shared.name(cta, offset)}` with "
            f"{at(by.operation)} {how}",
            (by.operation,),
            by.frame.cta,
            warp,
        )

    def surplus_arrival(self, barrier: MBarrier, by: Issuer) -> None:
        clocks: BarrierClock = barrier.mark  # type: ignore[assignment]
        warp = by.frame.first_warp + (by.lane or 0) // 32
        codes = (by.operation, *clocks.current.codes[-1:])
        self.findings.add(
            "surplus-arrival",
            f"{actor(by.frame.cta, warp)} arrives on `{barrier.name}` with {at(by.operation)}, and all "
            f"{barrier.expected} arrivals of phase {barrier.phase} are there: only bytes are missing",
            codes,
            by.frame.cta,
            warp,
            history=history(barrier),
        )

    def mbarrier_phase(self, barrier: MBarrier) -> None:
        clocks: BarrierClock = barrier.mark  # type: ignore[assignment]
        none = Released.nothing(self.state(barrier.cta).count)
        clocks.previous = clocks.current
        clocks.current = PhaseClock(none, none.copy())

    def mbarrier_waited(self, barrier: MBarrier, frame: Frame, lanes: np.ndarray) -> None:
        clocks: BarrierClock = barrier.mark  # type: ignore[assignment]
        state, phase = self.state(barrier.cta), clocks.previous
        sem, scope = frame.operation.order.sem, frame.operation.order.scope
        code = frame.operation
        for clock, mask in zip(state.of_frame(frame), lane_masks(frame, lanes), strict=True):
            if not mask:
                continue
            init = state.accesses[clocks.access]
            if not clocks.visible_to(clock, init):
                self._check_waiter_initialised(state, barrier, frame, init.code)
            if code.pc in self._unheeded:  # it may have been false as well
                state.glances[clock.me] = code
                continue
            if barrier.phase > 0:
                phase.seen = True
                if sem != "relaxed":
                    clock.acquire(phase.own)
                    clock.acquire(phase.others if scope in WIDE else phase.others.only_operations())
            state.waits[barrier.cta, barrier.offset, clock.me] = Waited(barrier.phase - 1, code, self.machine.steps)

    def _check_waiter_initialised(self, state: ClusterState, barrier: MBarrier, frame: Frame, init: Operation) -> None:
        codes = (frame.operation, init)
        if not self.findings.seen("mbarrier-init-not-visible", codes):
            self.findings.add(
                "mbarrier-init-not-visible",
                f"{actor(frame.cta, frame.first_warp)} waits for `{barrier.name}` with {at(frame.operation)}, and no "
                f"barrier that both pass stands between this and its initialisation with {at(init)}",
                codes,
                frame.cta,
                frame.first_warp,
            )

    def note_fence(self, state: ClusterState, clock: WarpClock, frame: Frame) -> None:
        """A proxy fence; for the performance rules."""
