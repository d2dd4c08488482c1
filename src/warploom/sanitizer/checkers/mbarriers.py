"""The protocol of mbarriers: initialised before use, the expected arrivals and bytes, each phase observed.

PTX ISA 9.7.13.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.diagnosis.phases import history
from ...emulator.engines.expected_bytes import byte_count_mismatch
from ...emulator.machine import shared_address
from ...emulator.machine.events import BarrierUse, CompletedWait, Observer
from ...emulator.machine.mbarrier import Event, MBarrier, mbarriers_of, was_invalidated
from ...emulator.machine.units import WARPGROUP_MMA
from ...errors import DeadlockError, StepLimitError
from ...isa import effects
from ..happens_before.access import Access, flights_of
from ..happens_before.clocks import WarpClock
from ..happens_before.released import Released
from ..happens_before.scopes import LEVELS
from ..happens_before.signals import behind_fence
from ..happens_before.state import BarrierRecord, ClusterState, record_of
from ..report.findings import at
from ..report.words import actor
from ..rules import ERROR, WARNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame, Issuer
    from ...emulator.machine.machine import Cta, Warp
    from ...emulator.machine.operation import Operation
    from ...errors import EmulationError
    from ..context import Context


def _warp(by: Issuer) -> int:
    return by.frame.first_warp + (by.lane or 0) // 32


def _thread(warp: tuple[Cta, int], lanes: int) -> str:
    """The first of some lanes of a warp, in words."""
    cta, index = warp
    return f"thread {index * 32 + (lanes & -lanes).bit_length() - 1} of {cta.describe()}"


AT_EXIT = "at the exit"


class MBarriers(Observer):
    """See the module's docstring."""

    rules = (
        "mbarrier-init-not-visible", "mbarrier-used-when-invalid", "mbarrier-initialised-twice", "surplus-arrival",
        "double-arrival",
        "bytes-in-later-phase",
        "phase-not-observed", "byte-count-mismatch", "guessed-box", "remote-arrival-scope", "remote-wait-scope",
    )  # fmt: skip
    ignores = (WARPGROUP_MMA,)

    def __init__(self, context: Context) -> None:
        self.context = context
        self.findings = context.findings

    # -- use -------------------------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        """The issuer of an operation must know that the barrier which it will signal has been initialised."""
        if operation.barrier is None:
            return
        cta, offset = operation.barrier
        barrier = mbarriers_of(cta).get(offset)
        if barrier is None:
            self.refused("mbarrier-missing", (cta, offset), operation.issuer)
        else:
            self._check_initialised(self.context.state(cta), barrier, operation.issuer)

    def arrived(self, on: MBarrier | BarrierUse, event: Event) -> None:
        if not isinstance(on, MBarrier):
            return
        state, by, operation = self.context.state(on.cta), event.by, event.operation
        if event.what == "complete":
            if operation is not None:
                self._check_bytes_phase(on, operation, event.amount)
            return
        if operation is None or operation.barrier is None:  # otherwise it was checked when it was issued
            self._check_initialised(state, on, by)
        if event.what == "arrive":
            previous = record_of(on).previous
            later = any(isinstance(one, effects.Commits) for one in by.operation.effects)
            if (
                on.phase
                and (operation is None or later)
                and previous.unheard(state, by, state.clocks_of(by), own=not later)
            ):
                self._too_early(on, by)
            else:
                self._check_phase_seen(on, by)
            if operation is not None and isinstance(operation.mark, Released) and by.frame.cta is not on.cta:
                if all(behind_fence(clock, by.operation, True) is None for clock, _ in state.clocks_of(by)):
                    self._check_scope(on, by)

    def _check_scope(self, barrier: MBarrier, by: Issuer) -> None:
        """An arrival from another CTA releases memory accesses only at a scope that includes both."""
        order, codes = by.operation.order, (by.operation,)
        relaxed = order.sem == "relaxed"
        if (
            not relaxed
            and LEVELS[order.scope] >= LEVELS["cluster"]
            or self.findings.seen("remote-arrival-scope", codes)
        ):
            return
        self.findings.add(
            "remote-arrival-scope",
            f"the arrival {at(by.operation)} on `{barrier.name}`, a barrier of another CTA, "
            f"{'is relaxed' if relaxed else 'has .cta scope, the default'}: it does not release memory accesses of "
            "its thread to that CTA, and only signals that asynchronous reads have finished",
            codes,
            by.frame.cta,
            _warp(by),
        )

    def _check_bytes_phase(self, barrier: MBarrier, operation: AsyncOperation, amount: int) -> None:
        for flight in flights_of(operation):
            if not 0 <= flight.phase < barrier.phase or self.findings.seen("bytes-in-later-phase", (flight.code,)):
                continue
            self.findings.add(
                "bytes-in-later-phase",
                f"the {amount} bytes of the copy {at(flight.code)} arrive at `{barrier.name}` in phase "
                f"{barrier.phase}, but the copy was issued in phase {flight.phase}, which completed before: fewer "
                "bytes were expected (expect_tx) than the copies of that phase deliver, or they were expected too late",
                (flight.code,),
                flight.cta,
                flight.warp,
                history=history(barrier),
            )

    def _check_initialised(self, state: ClusterState, barrier: MBarrier, by: Issuer) -> None:
        """A user of a barrier must know that it has been initialised."""
        record = record_of(barrier)
        init = state.accesses[record.access]
        late = [clock for clock, _ in state.clocks_of(by) if not record.visible_to(clock, init)]
        codes = (by.operation, init.code)
        severity = self._how_late(state, record, init, late)
        if late and not self.findings.seen("mbarrier-init-not-visible", codes, severity):
            warp = late[0].me % state.per_cta
            self.findings.add(
                "mbarrier-init-not-visible",
                f"{actor(by.frame.cta, warp)} uses `{barrier.name}` with {at(by.operation)}, and warp {init.warp} of "
                f"{init.cta.describe()} initialises it with {at(init.code)}; there is no barrier in between that both "
                f"pass, or only a relaxed one without a preceding fence.mbarrier_init",
                codes,
                by.frame.cta,
                warp,
                severity,
            )

    def _check_phase_seen(self, barrier: MBarrier, by: Issuer) -> None:
        """At least one wait must have seen a phase complete before any thread arrives for the next (9.7.13.15.4)."""
        previous = record_of(barrier).previous
        if barrier.phase == 0 or previous.seen:
            return
        codes, severity, glanced = (by.operation,), None, ""
        if previous.glance is not None:
            severity = ERROR
            glanced = f": {at(previous.glance)} asks, but nothing uses its result, so that nobody has waited"
        if not self.findings.seen("phase-not-observed", codes, severity):
            self.findings.add(
                "phase-not-observed",
                f"{at(by.operation)} arrives on `{barrier.name}` for phase {barrier.phase}, and no thread saw phase "
                f"{barrier.phase - 1} complete{glanced}",
                codes,
                by.frame.cta,
                severity=severity,
                history=history(barrier),
            )

    def met(self, what: MBarrier | None, frame: Frame | None) -> None:
        """A phase is complete: check whether one thread arrived in place of another."""
        if what is None:
            return
        self._check_guessed_box(what, what.phase - 1)
        record, phase = record_of(what), record_of(what).current
        twice = next(((warp, lanes) for warp, lanes in phase.again.items() if lanes), None)
        if twice is None or not record.always:
            return
        absent = ((warp, lanes & ~phase.arrived.get(warp, 0)) for warp, lanes in record.always.items())
        missing = next(((warp, lanes) for warp, lanes in absent if lanes), None)
        codes = (phase.codes[-1],)
        if missing is None or self.findings.seen("double-arrival", codes):
            return
        self.findings.add(
            "double-arrival",
            f"phase {what.phase - 1} of `{what.name}` completed because {_thread(*twice)} arrived twice, last with "
            f"{at(codes[0])}; {_thread(*missing)} arrived in every phase before but not in this one, so the phase "
            "implies nothing about it",
            codes,
            twice[0][0],
            twice[0][1],
            history=history(what),
        )

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        barrier = wait.what
        if not isinstance(barrier, MBarrier):
            return
        state, record = self.context.state(barrier.cta), record_of(barrier)
        init = state.accesses[record.access]
        late = [clock for clock, _ in state.among(frame, wait.lanes) if not record.visible_to(clock, init)]
        if late:
            warp = late[0].me - frame.cta.rank * state.per_cta
            severity = self._how_late(state, record, init, late)
            self._check_waiter_initialised(barrier, frame, warp, init.code, severity)
        released, order = record.previous.released, frame.operation.order
        if released is not None and barrier.phase > 0 and order.acquires and LEVELS[order.scope] < LEVELS["cluster"]:
            self._check_wait_scope(barrier, frame, released)

    def _how_late(
        self, state: ClusterState, record: BarrierRecord, init: Access, late: Sequence[WarpClock]
    ) -> str | None:
        """The severity where some warps may not have seen the initialisation."""
        known = all(record.met_long_ago(clock, init) for clock in late)
        if not self.context.strict:  # CUTLASS fences its rings, not its last barrier
            fences = state.publishing.get(init.cta, {}).items()
            known = known or all(
                record.met_relaxed(clock, init) and any(clock.weak[me] >= epoch for me, epoch in fences)
                for clock in late
            )
        return WARNING if known else None

    def _check_wait_scope(self, barrier: MBarrier, frame: Frame, released: Operation) -> None:
        """A wait acquires what another CTA has released only at a scope that includes both."""
        codes = (frame.operation, released)
        if not self.findings.seen("remote-wait-scope", codes):
            takes = f"of what the arrival {at(released)} of another CTA releases, it acquires only that asynchronous "
            takes += "reads have finished"
            if effects.started(released.effects) is not None:
                takes = (
                    f"the bytes of {at(released)} in another CTA are released at cluster scope and not acquired here"
                )
            self.findings.add(
                "remote-wait-scope",
                f"the wait {at(frame.operation)} for `{barrier.name}` has .cta scope, the default: {takes}",
                codes,
                frame.cta,
                frame.first_warp,
            )

    def _check_waiter_initialised(
        self, barrier: MBarrier, frame: Frame, warp: int, init: Operation, severity: str | None
    ) -> None:
        codes = (frame.operation, init)
        if not self.findings.seen("mbarrier-init-not-visible", codes, severity):
            self.findings.add(
                "mbarrier-init-not-visible",
                f"{actor(frame.cta, warp)} waits for `{barrier.name}` with {at(frame.operation)}, but no "
                f"barrier that both pass lies between this and its initialisation with {at(init)}",
                codes,
                frame.cta,
                warp,
                severity,
            )

    def made_again(self, what: MBarrier, by: Issuer) -> None:
        codes = (by.operation, what.initialised_by.operation)
        if not self.findings.seen("mbarrier-initialised-twice", codes):
            self.findings.add(
                "mbarrier-initialised-twice",
                f"{actor(what.cta, _warp(by))} initialises `{what.name}` with {at(codes[0])}, although "
                f"{at(codes[1])} has initialised it before and mbarrier.inval has not run since",
                codes,
                what.cta,
                _warp(by),
            )

    # -- errors of the machine -------------------------------------------------------------------------------------

    def refused(self, reason: str, what: object, by: Issuer) -> None:
        if reason == "surplus-arrival":
            self._surplus(what, by)  # type: ignore[arg-type]
        elif reason == "mbarrier-initialised-twice":
            self.made_again(what, by)  # type: ignore[arg-type]
        elif reason == "mbarrier-missing":
            self._missing(what[0], what[1], by)  # type: ignore[index]

    def _missing(self, cta: Cta, offset: int, by: Issuer) -> None:
        invalid = was_invalidated(cta, offset)
        rule = "mbarrier-used-when-invalid" if invalid else "mbarrier-init-not-visible"
        how = "after its mbarrier.inval" if invalid else "before any thread has initialised it"
        if self.findings.seen(rule, (by.operation,)):
            return
        self.findings.add(
            rule,
            f"{actor(by.frame.cta, _warp(by))} uses the mbarrier at `{shared_address.name(cta, offset)}` with "
            f"{at(by.operation)} {how}",
            (by.operation,),
            by.frame.cta,
            _warp(by),
        )

    def _surplus(self, barrier: MBarrier, by: Issuer) -> None:
        self.findings.add(
            "surplus-arrival",
            f"{actor(by.frame.cta, _warp(by))} arrives on `{barrier.name}` with {at(by.operation)}, but all "
            f"{barrier.expected} arrivals of phase {barrier.phase} have come: only bytes are missing",
            (by.operation, *record_of(barrier).current.codes[-1:]),
            by.frame.cta,
            _warp(by),
            history=history(barrier),
        )

    def _too_early(self, barrier: MBarrier, by: Issuer) -> None:
        """An arrival after the last one of a phase, by a thread that cannot know this: it is one too many."""
        codes = (by.operation,)
        if not self.findings.seen("surplus-arrival", codes):
            self.findings.add(
                "surplus-arrival",
                f"{actor(by.frame.cta, _warp(by))} arrives on `{barrier.name}` with {at(by.operation)} after the last "
                f"of the {barrier.expected} arrivals of phase {barrier.phase - 1}, without having waited since. It "
                f"counts for phase {barrier.phase}, and its release is missing in phase {barrier.phase - 1}",
                codes,
                by.frame.cta,
                _warp(by),
                history=history(barrier),
            )

    # -- bytes -----------------------------------------------------------------------------------------------------

    def exited(self, warp: Warp) -> None:
        if warp.cta.exited:
            self._check_bytes(warp.cta, AT_EXIT)

    def stopped(self, error: EmulationError) -> None:
        """If another error ended the run, do not report the copies that it kept from being issued."""
        machine = self.context.machine
        if machine.engine.in_flight == 0 and isinstance(error, (DeadlockError, StepLimitError)):
            for cluster in machine.resident:
                for cta in cluster.ctas:
                    self._check_bytes(cta, "when no progress is possible")

    def _check_bytes(self, cta: Cta, when: str) -> None:
        """Check that the bytes of a CTA's barriers add up. Bytes in flight are missing only for lack of a wait."""
        on_the_way: dict[int, int] = {}
        for operation in self.context.machine.engine.pending():
            if operation.barrier is not None and operation.barrier[0] is cta:
                offset = operation.barrier[1]
                on_the_way[offset] = on_the_way.get(offset, 0) + operation.bytes
        for barrier in mbarriers_of(cta).values():
            if barrier.tx in (0, on_the_way.get(barrier.offset)):
                continue
            said = [event.by.operation for event in barrier.log.get(barrier.phase, []) if event.what == "expect"]
            codes = (*said[-1:], *record_of(barrier).current.codes[-1:])
            verb = f"{barrier.tx} bytes are expected that no copy delivers"
            if barrier.tx < 0:
                verb = f"copies have delivered {-barrier.tx} bytes that no expect_tx covers"
            if self._check_guessed_box(barrier, barrier.phase) or self.findings.seen("byte-count-mismatch", codes):
                continue
            boxes = byte_count_mismatch(barrier)
            copied = any(event.what == "complete" for event in barrier.log.get(barrier.phase, []))
            # Exiting threads wait for nothing: a phase that expects bytes of a copy that never came does no harm.
            # CUTLASS's producers acquire their last stages this way.
            harmless = when == AT_EXIT and not copied and barrier.tx > 0
            self.findings.add(
                "byte-count-mismatch",
                f"{when}, phase {barrier.phase} of `{barrier.name}` in {cta.describe()} is not complete: {verb}"
                + (f" ({boxes})" if boxes is not None else ""),
                codes,
                cta,
                severity=WARNING if harmless else None,
                history=history(barrier),
            )

    def _check_guessed_box(self, barrier: MBarrier, phase: int) -> bool:
        """Report a guessed box of a launch description that delivers other bytes than a phase expects, if any."""
        guessed = self.context.machine.guessed
        boxes = byte_count_mismatch(barrier, phase=phase) if guessed else None
        if boxes is None or not boxes.instead:
            return False
        codes = tuple(event.by.operation for event in barrier.log.get(phase, []) if event.what == "expect")[-1:]
        if not self.findings.seen("guessed-box", codes):
            self.findings.add(
                "guessed-box", f"phase {phase} of `{barrier.name}`: {boxes}; {guessed} guessed the box", codes,
                barrier.cta, history=history(barrier),
            )  # fmt: skip
        return True
