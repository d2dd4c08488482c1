"""Before a warp accesses a peer CTA, it must know that the CTA has started; that CTA must not exit before. A thread
arrives at the barrier of its cluster once before it waits.

PTX ISA 5.1.5, 9.7.13.3, 9.7.13.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...emulator.machine.events import Observer
from ...emulator.machine.places import Lanes
from ...emulator.machine.tensor_memory import Cells, Columns, peer_of
from ...emulator.machine.units import WARPGROUP_MMA
from ..happens_before.access import InFlight, flights_of
from ..report.findings import at
from ..report.words import actor
from ..rules import ERROR, WARNING

if TYPE_CHECKING:
    import numpy as np

    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame, Issuer
    from ...emulator.machine.machine import Cta, Warp
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.clocks import WarpClock
    from ..happens_before.state import ClusterState


@dataclass(eq=False)
class PeerAccesses:
    """The accesses to peer CTAs of a cluster.

    Attributes:
        by_warps: (target CTA's rank, warp) -> (epoch, instruction) of the latest access or arrival.
        by_operations: (target CTA's rank, operation).
    """

    by_warps: dict[tuple[int, int], tuple[int, Operation]] = field(default_factory=dict)
    by_operations: list[tuple[int, InFlight]] = field(default_factory=list)


class Clusters(Observer):
    """See the module's docstring."""

    rules = ("cta-may-not-have-started", "cta-may-have-exited", "second-cluster-arrival")
    ignores = (WARPGROUP_MMA,)

    def __init__(self, context: Context) -> None:
        self.context = context

    # -- touches ---------------------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if place.region is frame.cta.shared or place.space == "global":
            return
        state = self.context.state(frame.cta)
        target = state.owners.get(place.region)
        if target is None:
            return
        for clock, _ in state.among(frame, place.lanes):
            state.notes(PeerAccesses).by_warps[target.rank, clock.me] = (clock.epoch, frame.operation)
            self._check_started(state, clock, frame.cta, target, frame.operation)

    def issued(self, operation: AsyncOperation) -> None:
        issuer = operation.issuer
        cta, code = issuer.frame.cta, issuer.operation
        state = self.context.state(cta)
        if operation.rank >= 0:  # an arrival on another CTA's barrier
            clock = state.clock_of(issuer)
            state.notes(PeerAccesses).by_warps[operation.rank, clock.me] = (clock.epoch - 1, code)
            self._check_started(state, clock, cta, cta.cluster.ctas[operation.rank], code)
        for flight in flights_of(operation):
            for place in (*operation.targets, *operation.sources):
                owner = place.cta if isinstance(place, Cells) else state.owners.get(getattr(place, "region", None))  # type: ignore[arg-type]
                if owner is not None and owner is not cta:
                    state.notes(PeerAccesses).by_operations.append((owner.rank, flight))
                    self._check_started(state, state.clocks[flight.me], cta, owner, code)

    def made(self, kind: str, what: object, by: Issuer) -> None:
        """Both CTAs of a pair allocate columns, and wait for each other when they do."""
        if isinstance(what, Columns) and what.group == 2:
            state, peer = self.context.state(what.cta), peer_of(what.cta)
            if peer is not None:
                self._check_started(state, state.clock_of(what.by), what.cta, peer, what.by.operation, WARNING)

    def _check_started(
        self, state: ClusterState, clock: WarpClock, cta: Cta, target: Cta, code: Operation, severity: str = ERROR
    ) -> None:
        """Known through the cluster's barrier, or through anything that a thread of that CTA did first."""
        first = target.rank * state.per_cta
        if clock.weak[first : first + state.per_cta].any():
            return
        if self.context.findings.seen("cta-may-not-have-started", (code,), severity):
            return
        warp = clock.me % state.per_cta
        self.context.findings.add(
            "cta-may-not-have-started",
            f"{actor(cta, warp)} accesses CTA rank {target.rank} of its cluster with {at(code)}, and nothing that this "
            "warp waited for implies that the CTA has started",
            (code,),
            cta,
            warp,
            severity,
        )

    # -- exits -----------------------------------------------------------------------------------------------------

    def refused(self, reason: str, what: object, by: Issuer) -> None:
        """The machine stops at an access to a CTA that has exited, or to a barrier that does not exist yet, but not at
        a second arrival at the cluster's barrier."""
        cta = by.frame.cta
        state = self.context.state(cta)
        if reason == "cta-exited":
            self._may_have_exited(state, what.rank, state.clock_of(by).me, by.operation)  # type: ignore[attr-defined]
        elif reason == "mbarrier-missing" and what[0] is not cta:  # type: ignore[index]
            self._check_started(state, state.clock_of(by), cta, what[0], by.operation)  # type: ignore[index]
        elif reason == "cluster-barrier-order" and not self.context.findings.seen(
            "second-cluster-arrival", (by.operation,)
        ):
            warp = by.thread // 32
            self.context.findings.add(
                "second-cluster-arrival",
                f"{actor(cta, warp)} arrives at the barrier of its cluster with {at(by.operation)}, and has not waited "
                "since its last arrival",
                (by.operation,), cta, warp,
            )  # fmt: skip

    def exited(self, warp: Warp) -> None:
        cluster = warp.cta.cluster
        if not cluster.exited or cluster.size == 1:
            return
        state = self.context.state(warp.cta)
        touches = state.notes(PeerAccesses)
        for (rank, me), (epoch, code) in touches.by_warps.items():
            if not any(clock.weak[me] >= epoch for clock in state.exits_of(rank)):
                self._may_have_exited(state, rank, me, code)
        for rank, flight in touches.by_operations:
            if not any(clock.known & flight.done for clock in state.exits_of(rank)):
                self._may_have_exited(state, rank, flight.me, flight.code)

    def _may_have_exited(self, state: ClusterState, rank: int, me: int, code: Operation) -> None:
        if self.context.findings.seen("cta-may-have-exited", (code,)):
            return
        cta = state.cluster.ctas[me // state.per_cta]
        self.context.findings.add(
            "cta-may-have-exited",
            f"{actor(cta, me % state.per_cta)} accesses CTA rank {rank} of its cluster with {at(code)}, and no warp of "
            "that CTA waits for the access before it exits",
            (code,),
            cta,
            me % state.per_cta,
        )
