"""Accesses that a kernel may not make before the preceding grid has finished.

With programmatic dependent launch (PTX ISA 9.7.13.13) a grid starts before the preceding grid has finished, and
griddepcontrol.wait waits for it. A warp also knows this if it has synchronised with a warp that has waited, or has
waited for an operation (a copy or an MMA, say) that such a warp started after the wait.

A strong read (ld.relaxed, ld.volatile, ...) states that the value may change meanwhile: a hint, say, which address to
prefetch. It is reported only if its warp never waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...emulator.engines.boxes import Box
from ...emulator.engines.bulk import Bytes, Scattered
from ...emulator.machine.events import Observer
from ...emulator.machine.places import Lanes
from ...isa.effects import READS, Waits
from ..happens_before.access import flights_of
from ..report.findings import at
from ..report.words import actor

if TYPE_CHECKING:
    import numpy as np

    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.finding import Finding
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.clocks import WarpClock
    from ..happens_before.state import ClusterState


@dataclass
class OperationsAfterWait:
    """The asynchronous operations of a cluster that were started after the wait: a bit each for "completed"."""

    done: int = 0


class GridOrder(Observer):
    """See the module's docstring."""

    rules = ("before-grid-wait",)

    def __init__(self, context: Context) -> None:
        self.context = context
        machine = context.machine
        self._early: dict[tuple[Operation, WarpClock], ClusterState] = {}
        """Reads before the wait, under a launch that declares overlap with the preceding grid, and their warps."""
        self._strong: dict[tuple[Operation, WarpClock], tuple[ClusterState, Cta, str]] = {}
        """Strong reads before the wait."""
        self._first: dict[tuple[str, bool], Operation] = {}
        """The first instruction that touches a buffer, by reading or writing: only this one is reported."""
        waits = machine.code.fact("waits for the grid", self._waits)
        self._awaits = waits if machine.dependent is None else machine.dependent

    def _waits(self) -> bool:
        operations = self.context.machine.code.operations
        return any(
            isinstance(effect, Waits) and effect.on == "grid"
            for operation in operations
            for effect in operation.effects
        )

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if self._awaits and place.space == "global" and how != "changes":
            state = self.context.state(frame.cta)
            for clock in state.of_frame(frame):
                if how == READS and frame.operation.order.strong and not self._knows(state, clock):
                    self._strong.setdefault((frame.operation, clock), (state, frame.cta, place.region.name))
                    continue
                self._check(state, clock, frame.cta, frame.operation, place.region.name, how != READS)

    def issued(self, operation: AsyncOperation) -> None:
        if not self._awaits:
            return
        for flight in flights_of(operation):
            state = self.context.state(flight.cta)
            if self._knows(state, state.clocks[flight.me]):
                state.notes(OperationsAfterWait).done |= flight.done
                continue
            for writes, places in enumerate((operation.sources, operation.targets)):
                for place in places:
                    name = self._global_name(state, place)
                    if name:
                        self._check(state, state.clocks[flight.me], flight.cta, flight.code, name, bool(writes))

    def _global_name(self, state: ClusterState, place: object) -> str:
        """The global buffer of a copy's source or target; "" for shared memory."""
        memory = self.context.machine.memory
        if isinstance(place, Bytes):
            return "" if place.region in state.shadows else place.region.name
        found = None
        if isinstance(place, Box):
            found = memory.find(place.bound.address)
        elif isinstance(place, Scattered) and place.origins is not None and place.origins.any():
            found = memory.find(int(place.origins[place.origins != 0][0]))
        return found.region.name if found is not None else ""

    def _check(self, state: ClusterState, clock: WarpClock, cta: Cta, code: Operation, name: str, writes: bool) -> None:
        if self._knows(state, clock):
            return
        machine = self.context.machine
        in_front = name in machine.written_in_front
        if machine.written_in_front and not in_front and not writes:
            return  # the preceding grid does not write it
        code = self._first.setdefault((name, writes), code)
        if machine.dependent and not writes:
            self._early[code, clock] = state
        if machine.dependent and (writes or in_front):
            self.context.findings.raise_to_error("before-grid-wait", (code,), "")
        if not self.context.findings.seen("before-grid-wait", (code,)):
            warp = clock.me % state.per_cta
            self.context.findings.add(
                "before-grid-wait",
                f"{actor(cta, warp)} accesses `{name}` with {at(code)} before griddepcontrol.wait: the preceding grid "
                "may still be writing or reading it",
                (code,),
                cta,
                warp,
                "error" if machine.dependent and (writes or in_front) else None,
            )

    @staticmethod
    def _knows(state: ClusterState, clock: WarpClock) -> bool:
        """True if a warp knows that the preceding grid has finished; see the module's docstring."""
        if not clock.after_grid:
            waited = state.waited_for_grid
            clock.after_grid = any(me == clock.me or clock.weak[me] >= epoch for me, epoch in waited.items())
            clock.after_grid = clock.after_grid or bool(clock.known & state.notes(OperationsAfterWait).done)
        return clock.after_grid

    def report(self) -> list[Finding]:
        """A warp may read early (weights, say) if it waits before it ends; one that never waits reads unordered."""
        for (code, clock), (state, cta, name) in self._strong.items():
            self._check(state, clock, cta, code, name, False)
        for (code, clock), state in self._early.items():
            if not self._knows(state, clock):
                self.context.findings.raise_to_error(
                    "before-grid-wait", (code,), "; and a warp that does this never waits"
                )
        return []
