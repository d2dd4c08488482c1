"""Groups of asynchronous operations belong to the thread that commits them: a wait by another thread has no effect.

Which threads start operations is observed while the kernel runs. If the text has operations before the wait that no
thread executed, the waiting thread might execute them with other data, so nothing is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...emulator.engines.boxes import Box
from ...emulator.machine.events import CompletedWait, Observer
from ...emulator.machine.units import WARPGROUP_MMA
from ...isa.effects import Changes, Starts
from ..happens_before.access import InFlight, flights_of
from ..report.findings import at

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta, Warp
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.state import ClusterState


@dataclass(eq=False)
class Owners:
    """The threads that own operations in thread-owned groups.

    Attributes:
        flights: (CTA's rank, thread) -> its latest operation.
        waits: the instructions with which an owner has waited.
        loaders: (CTA's rank, thread) that load through a map, if the kernel rewrites maps: their wait for all groups
            also covers the reading of the maps (`TensorMaps`).
        started: instructions that have started such operations.
        idle: waits of threads that own nothing while others do -> (warp, owning thread, its operation).
    """

    flights: dict[tuple[int, int], InFlight] = field(default_factory=dict)
    waits: set[Operation] = field(default_factory=set)
    loaders: set[tuple[int, int]] = field(default_factory=set)
    started: set[int] = field(default_factory=set)
    idle: dict[tuple[Operation, frozenset[int]], tuple[int, int, Operation]] = field(default_factory=dict)


class Groups(Observer):
    """See the module's docstring."""

    rules = ("wait-by-another-thread",)
    ignores = (WARPGROUP_MMA,)

    def __init__(self, context: Context) -> None:
        self.context = context
        code = context.machine.code
        self._rewrites_maps = code.fact(
            "rewrites maps", lambda: any(isinstance(one, Changes) for op in code.operations for one in op.effects)
        )

        self._starts = code.fact(
            "starts of thread-owned groups",
            lambda: {
                op.pc: one.group
                for op in code.operations
                for one in op.effects
                if isinstance(one, Starts) and one.group and one.parts == "lane"
            },
        )

    def issued(self, operation: AsyncOperation) -> None:
        for flight in flights_of(operation):
            if flight.family and flight.starts.parts == "lane":
                owners = self.context.state(flight.cta).notes(Owners)
                owners.flights[flight.cta.rank, operation.issuer.thread] = flight
                owners.started.add(flight.code.pc)
            elif self._rewrites_maps and any(isinstance(one, Box) for one in operation.sources):
                loaders = self.context.state(flight.cta).notes(Owners).loaders
                loaders.add((flight.cta.rank, operation.issuer.thread))

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        state = self.context.state(frame.cta)
        owners = state.notes(Owners)
        if not owners.flights or wait.what is not None or wait.on == "grid":
            return
        families = {flight.family for flight in owners.flights.values()}
        if wait.on not in families:
            return
        threads = frozenset(frame.thread(lane) for lane in frame.active_lanes.tolist())
        if any((frame.cta.rank, thread) in owners.flights for thread in threads):
            owners.waits.add(frame.operation)
        elif not any((frame.cta.rank, thread) in owners.loaders for thread in threads):
            self._waits_for_nothing(state, frame, threads)

    @staticmethod
    def _waits_for_nothing(state: ClusterState, frame: Frame, threads: frozenset[int]) -> None:
        """Only at the exit is it known whether these threads ever had a group."""
        clock, owners = state.clocks[state.me(frame.cta, frame.first_warp)], state.notes(Owners)
        for (rank, thread), flight in owners.flights.items():
            if rank == frame.cta.rank and not flight.read & clock.known:
                owners.idle[frame.operation, threads] = (frame.first_warp, thread, flight.code)
                return

    def exited(self, warp: Warp) -> None:
        if warp.cta.exited:
            self._judge(self.context.state(warp.cta).notes(Owners), warp.cta)

    def _may_start(self, owners: Owners, wait: int, family: str) -> bool:
        """True if operations of a family stand before a wait in the text that no thread executed."""
        before = {pc for pc, group in self._starts.items() if group == family and pc < wait}
        return not before <= owners.started

    def _judge(self, owners: Owners, cta: Cta) -> None:
        for (wait, threads), (warp, thread, code) in owners.idle.items():
            place = wait.instruction.location or wait.pc  # one line of the user's text may hold code of several roles
            if any(place == (owner.instruction.location or owner.pc) for owner in owners.waits):
                continue
            owned = any((cta.rank, one) in owners.flights for one in threads)
            codes = (wait, code)
            if (
                owned
                or self._may_start(owners, wait.pc, self._starts[code.pc])
                or self.context.findings.seen("wait-by-another-thread", codes)
            ):
                continue
            self.context.findings.add(
                "wait-by-another-thread",
                f"{at(wait)} is executed by warp {warp}, none of whose threads issues a bulk store: it waits for "
                f"nothing. Thread {thread} has stores in flight ({at(code)})",
                codes,
                cta,
                warp,
            )
        owners.idle.clear()
