"""mbarrier.inval must come after every arrival on the barrier and every wait for it by another warp.

A thread that waits may look at the barrier again after its phase is complete, until it has passed the wait. So the
arrivals of the last phase do not order the waits for it before mbarrier.inval; a barrier that all threads pass does.
Operations that arrive later, such as tcgen05.commit, are not followed: Triton invalidates barriers before these come.

PTX ISA 9.7.13.15.10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.machine.events import BarrierUse, CompletedWait, Observer
from ...emulator.machine.mbarrier import Event, MBarrier
from ..report.findings import at
from ..report.words import actor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...emulator.machine.frame import Frame, Issuer
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.clocks import WarpClock


class Invalidations(Observer):
    """See the module's docstring."""

    rules = ("mbarrier-invalidated-too-early",)

    def __init__(self, context: Context) -> None:
        self.context = context
        operations = context.machine.code.operations
        self.idle = not any("inval" in operation.instruction.modifiers for operation in operations)
        self._uses: dict[MBarrier, dict[int, tuple[int, Operation]]] = {}
        """Of each barrier, by warp of the cluster: the epoch of its latest use, and the instruction."""

    def _used(self, barrier: MBarrier, clocks: Iterable[tuple[WarpClock, int]], code: Operation) -> None:
        uses = self._uses.setdefault(barrier, {})
        for clock, _ in clocks:
            uses[clock.me] = clock.epoch, code

    def arrived(self, on: MBarrier | BarrierUse, event: Event) -> None:
        if isinstance(on, MBarrier) and event.operation is None:
            self._used(on, self.context.state(on.cta).clocks_of(event.by), event.by.operation)

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        if isinstance(wait.what, MBarrier):
            self._used(wait.what, self.context.state(frame.cta).among(frame, wait.lanes), frame.operation)

    def unmade(self, kind: str, what: MBarrier, by: Issuer) -> None:
        state = self.context.state(what.cta)
        clock = state.clock_of(by)
        for me, (epoch, code) in self._uses.pop(what, {}).items():
            if me == clock.me or clock.weak[me] >= epoch:
                continue
            codes = by.operation, code
            if not self.context.findings.seen(self.rules[0], codes):
                warp, using = clock.me % state.per_cta, divmod(me, state.per_cta)
                other = next(cta for cta in what.cta.cluster.ctas if cta.rank == using[0])
                self.context.findings.add(
                    self.rules[0],
                    f"{actor(by.frame.cta, warp)} invalidates `{what.name}` with {at(by.operation)}, and nothing "
                    f"tells it that {actor(other, using[1])} has passed {at(code)}",
                    codes, by.frame.cta, warp,
                )  # fmt: skip
