"""What must be over before a CTA exits: its copies, its wgmmas, and what other CTAs of its cluster do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.diagnosis.phases import history
from ...emulator.machine.mbarrier import mbarriers_of
from ..core import actor
from ..happens_before.edges import BarrierClock
from ..happens_before.state import ClusterState, Flight
from ..report.findings import at
from .wgmma import Multiplies

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation, Issuer
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta, Machine, Warp
    from ...emulator.program.code import Operation


class Lifetime(Multiplies):
    """The part of the sanitizer that looks at exits."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._counts: dict[Cta, dict[int, tuple[int, Operation]]] = {}

    def warp_exited(self, warp: Warp) -> None:
        cta = warp.cta
        state = self.state(cta)
        me = state.me(cta, warp.index)
        state.exits[me] = state.clocks[me].snapshot(0xFFFFFFFF)
        self._wgmma_in_flight(cta, warp.index)
        if cta.exited:
            self.judge_waits(state, cta)
            self._copies_in_flight(state, cta)
            self._check_bytes(cta, "at the exit")
            self._register_counts(cta)
        if cta.cluster.exited:
            if cta.cluster.size > 1:
                self._remote_accesses(state)
            self.forget(cta.cluster)

    def _wgmma_in_flight(self, cta: Cta, warp: int) -> None:
        registers = self._registers.pop((cta, warp), None)
        pending = registers.groups.pending() if registers is not None else []
        if pending and warp % 4 == 0:
            code = pending[-1].operation.issuer.operation
            if not self.findings.seen("exit-with-pending-work", (code,)):
                self.findings.add(
                    "exit-with-pending-work",
                    f"{actor(cta, warp)} exits and has not waited for the wgmma {at(code)}",
                    (code,),
                    cta,
                    warp,
                )

    # -- copies ----------------------------------------------------------------------------------------------------

    def _copies_in_flight(self, state: ClusterState, cta: Cta) -> None:
        known = 0
        for warp in cta.warps:
            known |= state.exits[state.me(cta, warp.index)].known
        for flight in state.flights:
            operation = flight.operation
            kind = operation.kind
            if kind == "store" and flight.cta is cta:
                if not flight.read & known:
                    self._unfinished(
                        flight, cta, "the source of", "has not waited until it has been read (wait_group.read)"
                    )
            elif kind == "load" and operation.barrier is not None and operation.barrier[0] is cta:
                if not flight.done & known:
                    self._unfinished(flight, cta, "the destination of", "nobody in it has waited for its bytes")
            elif kind == "cp.async" and flight.cta is cta and not flight.done & known:
                self._unfinished(flight, cta, "the destination of", "nobody in it has waited for it", "warning")

    def _unfinished(self, flight: Flight, cta: Cta, what: str, why: str, severity: str | None = None) -> None:
        code = flight.operation.issuer.operation
        if not self.findings.seen("exit-with-pending-work", (code,)):
            self.findings.add(
                "exit-with-pending-work",
                f"{cta.describe()} exits, its shared memory is {what} the copy {at(code)}, and {why}",
                (code,),
                cta,
                flight.warp,
                severity,
            )

    def _check_bytes(self, cta: Cta, when: str) -> None:
        """Whether the bytes of a CTA's barriers add up, at its exit or when everything stands still."""
        barriers = mbarriers_of(cta)
        for barrier in barriers.values():
            clocks: BarrierClock = barrier.mark  # type: ignore[assignment]
            if not barrier.tx:
                continue
            said = [event.by.operation for event in barrier.log.get(barrier.phase, []) if event.what == "expect"]
            codes = (*said[-1:], *clocks.current.codes[-1:])
            verb = f"{barrier.tx} bytes are expected that no copy brings"
            if barrier.tx < 0:
                verb = f"copies have brought {-barrier.tx} bytes that nobody announced (expect_tx)"
            if not self.findings.seen("byte-count-mismatch", codes):
                self.findings.add(
                    "byte-count-mismatch",
                    f"{when}, phase {barrier.phase} of `{barrier.name}` in {cta.describe()} is not complete: {verb}",
                    codes,
                    cta,
                    history=history(barrier),
                )

    def stands_still(self) -> None:
        """The machine has stopped with an error: what can be said about why."""
        for cluster in self.machine.resident:
            for cta in cluster.ctas:
                self._check_registers(cta)
                if self.machine.engine.in_flight == 0:
                    self._check_bytes(cta, "when nothing can go on")

    def reached_exited(self, by: Issuer, cta: Cta) -> None:
        """An access reaches a CTA of the cluster that has exited; the machine stops here."""
        state = self.state(by.frame.cta)
        warp = by.frame.first_warp + (by.lane or 0) // 32
        self._may_have_exited(state, cta.rank, state.me(by.frame.cta, warp), by.operation)

    # -- the cluster -----------------------------------------------------------------------------------------------

    def note_remote_copy(self, state: ClusterState, flight: Flight, rank: int) -> None:
        state.remote_copies.append((rank, flight))

    def _remote_arrival(self, state: ClusterState, operation: AsyncOperation, me: int) -> None:
        rank = operation.rank
        if rank >= 0:
            epoch = state.clocks[me].epoch - 1
            state.remote[rank, me] = (epoch, operation.issuer.operation)

    def _remote_accesses(self, state: ClusterState) -> None:
        """Whoever touches another CTA must know that it has not exited: some warp of it must wait for the touch."""
        cluster = state.cluster
        for (rank, me), (epoch, code) in state.remote.items():
            exits = [state.exits[state.me(cluster.ctas[rank], warp.index)] for warp in cluster.ctas[rank].warps]
            if not any(clock.weak[me] >= epoch for clock in exits):
                self._may_have_exited(state, rank, me, code)
        for rank, flight in state.remote_copies:
            exits = [state.exits[state.me(cluster.ctas[rank], warp.index)] for warp in cluster.ctas[rank].warps]
            if not any(clock.known & flight.done for clock in exits):
                self._may_have_exited(state, rank, state.me(flight.cta, flight.warp), flight.operation.issuer.operation)

    def _may_have_exited(self, state: ClusterState, rank: int, me: int, code: Operation) -> None:
        codes = (code,)
        if self.findings.seen("cta-may-have-exited", codes):
            return
        cta = state.cluster.ctas[me // state.per_cta]
        self.findings.add(
            "cta-may-have-exited",
            f"{actor(cta, me % state.per_cta)} reaches CTA rank {rank} of its cluster with {at(code)}, and "
            "no warp of that CTA waits for it before it exits",
            codes,
            cta,
            me % state.per_cta,
        )

    # -- registers -------------------------------------------------------------------------------------------------

    def registers_changed(self, frame: Frame, count: int, effective: bool) -> None:
        code = frame.operation
        if not effective and not self.findings.seen("setmaxnreg-without-cap", (code,)):
            self.findings.add(
                "setmaxnreg-without-cap",
                f"{at(code)} stands in a kernel whose registers at launch the text does not fix: ptxas 13.0 ignores "
                f"it (note C7508)",
                (code,),
                frame.cta,
                frame.first_warp,
            )
        self._counts.setdefault(frame.cta, {})[frame.first_warp] = (count, code)

    def _check_registers(self, cta: Cta) -> None:
        """Whether a warp waits for registers that nobody will give back."""
        for warp in cta.warps:
            for fragment in warp.fragments:
                if fragment.wait is not None and fragment.wait.kind == "registers":
                    code = self.machine.code.operations[fragment.pc]
                    if code.instruction.opcode.split(".")[0] != "setmaxnreg":
                        code = self.machine.code.operations[fragment.pc - 1]
                    if not self.findings.seen("setmaxnreg-budget", (code,)):
                        self.findings.add(
                            "setmaxnreg-budget",
                            f"{actor(cta, warp.index)} waits at {at(code)} for ever: {fragment.wait.describe()}",
                            (code,),
                            cta,
                            warp.index,
                        )

    def _register_counts(self, cta: Cta) -> None:
        counts = self._counts.pop(cta, {})
        for warpgroup in {warp // 4 for warp in counts}:
            mine = {warp: counts[warp] for warp in range(warpgroup * 4, warpgroup * 4 + 4) if warp in counts}
            if len(mine) < 4 or len({count for count, _ in mine.values()}) > 1:
                code = next(iter(mine.values()))[1]
                if not self.findings.seen("setmaxnreg-not-by-warpgroup", (code,)):
                    self.findings.add(
                        "setmaxnreg-not-by-warpgroup",
                        f"the four warps of warpgroup {warpgroup} of {cta.describe()} do not set the same "
                        f"register count: "
                        + ", ".join(f"warp {warp} sets {count}" for warp, (count, _) in sorted(mine.items())),
                        (code,),
                        cta,
                    )
