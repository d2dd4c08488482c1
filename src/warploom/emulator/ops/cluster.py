"""State that a CTA shares with its cluster and grid: cluster barrier, remote addresses, register pool, grid order.

PTX ISA 9.7.13.3, 9.7.9.23, 9.7.9.24, 9.7.19.5, 9.7.13.13.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import InvalidOperandError, VerificationError
from ...isa import dtypes
from ..machine.async_operation import AsyncOperation
from ..machine.events import CompletedWait
from ..machine.frame import Frame, Issuer
from ..machine.machine import Cluster, Cta, Warp, mask_of
from ..machine.mbarrier import Event, arrivals_in_flight
from ..machine.memory import OFFSET_MASK, RANK_SHIFT, SHARED_WINDOW, WINDOW_SIZE
from ..machine.registers import WARP
from ..machine.slots import Slot
from ..machine.wait import Wait
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from ..program.register_budget import launch_registers

HANDLERS = Handlers()


# -- the cluster barrier -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class Phase:
    """One phase of a cluster's barrier: the lanes that arrived, by (CTA rank, warp).

    `after`: earlier operations of the arriving threads on other CTAs' barriers, which their release orders.
    """

    number: int
    after: list[AsyncOperation] = field(default_factory=list)
    arrived: dict[tuple[int, int], int] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    complete: bool = False
    mark: Any = None
    kind = "cluster"
    absent: Warp | None = None
    """A warp that had not arrived at the last check: it most likely still has not."""

    def lacks(self, warp: Warp) -> bool:
        """True if a live thread of this warp has not arrived."""
        return bool(warp.alive & ~self.arrived.get((warp.cta.rank, warp.index), 0))

    def all_there(self, cluster: Cluster) -> bool:
        """True if all threads of the cluster that have not exited have arrived."""
        if self.absent is not None and self.lacks(self.absent):
            return False
        self.absent = next((warp for cta in cluster.ctas for warp in cta.warps if self.lacks(warp)), None)
        return self.absent is None

    def missing(self, cluster: Cluster) -> list[str]:
        """The warps whose live threads have not all arrived, CTA by CTA."""
        absent = {cta: [warp.index for warp in cta.warps if self.lacks(warp)] for cta in cluster.ctas}
        return [
            f"{'CTA rank ' + str(cta.rank) + ' ' if cluster.size > 1 else ''}{cta.describe_warps(warps)}"
            for cta, warps in absent.items()
            if warps
        ]


@dataclass(eq=False)
class ClusterBarrier:
    """The barrier of a cluster, and the phase in which each warp's lanes last arrived."""

    phase: Phase = field(default_factory=lambda: Phase(0))
    waiting: dict[tuple[int, int], list[tuple[int, Phase]]] = field(default_factory=dict)

    def settle(self, cluster: Cluster) -> None:
        """Complete the phase if all threads that have not exited have arrived."""
        phase = self.phase
        if phase.arrived and phase.all_there(cluster) and all(operation.done for operation in phase.after):
            phase.complete = True
            self.phase = Phase(phase.number + 1)
            cluster.machine.progress()

    def digest(self) -> Hashable:
        waiting = [(key, tuple((lanes, phase.number) for lanes, phase in owed)) for key, owed in self.waiting.items()]
        return (self.phase.number, tuple(sorted(self.phase.arrived.items())), tuple(sorted(waiting)))


BARRIER = Slot("barrier", lambda cluster: ClusterBarrier())


@HANDLERS.add("cluster.arrive")
def cluster_arrive(d: Decode) -> Step:
    relaxed = d.modifier("sem") == "relaxed"

    def step(frame: Frame) -> None:
        cluster = frame.cta.cluster
        barrier = BARRIER.of(cluster)
        key, lanes = (frame.cta.rank, frame.first_warp), mask_of(frame.active)
        owed = barrier.waiting.setdefault(key, [])
        if any(before & lanes for before, _ in owed):
            _second_arrival(frame, barrier.phase)
        phase = barrier.phase
        phase.arrived[key] = phase.arrived.get(key, 0) | lanes
        owed.append((lanes, phase))
        if not relaxed and cluster.size > 1:
            for operation in arrivals_in_flight(cluster):
                by = operation.issuer
                if by.frame.cta is frame.cta and by.thread // WARP == frame.first_warp:
                    operation.awaited = True
                    phase.after.append(operation)
        event = Event.now("arrive", lanes.bit_count(), Issuer.of(frame))
        phase.log.append(event)
        for listener in frame.machine.events.arrived:
            listener(phase, event)
        barrier.settle(cluster)

    return step


def _second_arrival(frame: Frame, phase: Phase) -> None:
    """A thread arrives again and has not waited, which is undefined. An observer reports it; the arrival counts once
    for the phase that is open; the thread's next wait is for all phases at which it arrived."""
    if not frame.machine.events.refused:
        frame.error(
            InvalidOperandError,
            "a thread arrives at the cluster barrier a second time without having waited",
            code="cluster-barrier-order",
            got="arrive, arrive",
            hint="each barrier.cluster.arrive needs its barrier.cluster.wait before the next arrive",
        )
    for listener in frame.machine.events.refused:
        listener("cluster-barrier-order", phase, Issuer.of(frame))


@HANDLERS.add("cluster.wait")
def cluster_wait(d: Decode) -> Step:
    def step(frame: Frame) -> Wait:
        cluster = frame.cta.cluster
        barrier = BARRIER.of(cluster)
        key, lanes = (frame.cta.rank, frame.first_warp), mask_of(frame.active)
        owed = barrier.waiting.get(key, [])
        mine = [(before, phase) for before, phase in owed if before & lanes]
        covered = 0
        for before, _ in mine:
            covered |= before
        if lanes & ~covered:
            frame.error(
                InvalidOperandError,
                "a thread waits at the cluster barrier without having arrived",
                code="cluster-barrier-order",
                got="wait",
                hint="barrier.cluster.arrive comes first",
            )
        frame.machine.counters.barrier_waits += 1
        phases = [phase for _, phase in mine]

        def ready() -> bool:
            barrier.settle(cluster)  # threads may have exited since
            return all(phase.complete for phase in phases)

        def finish(frame: Frame) -> None:
            left = [(before & ~lanes, phase) for before, phase in owed]
            owed[:] = [(before, phase) for before, phase in left if before]
            for listener in frame.machine.events.waited:
                for phase in phases:
                    listener(frame, CompletedWait("cluster", frame.active_lanes, phase))

        def describe() -> str:
            missing = sorted({name for phase in phases if not phase.complete for name in phase.missing(cluster)})
            late = sum(not operation.done for phase in phases for operation in phase.after)
            note = f"; {late} remote arrivals are in flight" if late else ""
            return f"the cluster barrier, phase {phases[0].number}; not there: {', '.join(missing[:16])}{note}"

        def about() -> list[tuple[object, int | None]]:
            return [(phase, None) for phase in phases if not phase.complete]

        return Wait("cluster barrier", ready=ready, describe=describe, resume=finish, about=about)

    return step


# -- remote addresses --------------------------------------------------------------------------------------------


NO_RANK = 255
"""The highest rank that fits in an address; no cluster has that many CTAs."""


@HANDLERS.add("cluster.mapa")
def mapa(d: Decode) -> Step:
    kind = dtypes.ALL[d.modifier("type")]
    address, rank, result = d.source("a", kind), d.source("b"), d.destination("d")
    generic = not d.modifiers.get("shared::cluster")

    def step(frame: Frame) -> None:
        where = np.broadcast_to(frame.values[address], (frame.lanes,)).astype(np.int64)
        ranks = np.broadcast_to(frame.values[rank], (frame.lanes,)).astype(np.int64)
        ranks = np.minimum(ranks, NO_RANK)  # a rank that does not exist: the access reports it
        base = SHARED_WINDOW if generic else 0
        if generic:
            _check_window(frame, where, "mapa")
        frame.write(result, (base + (((where - base) & OFFSET_MASK) | (ranks << RANK_SHIFT))).astype(kind.numpy))

    return step


@HANDLERS.add("cluster.getctarank")
def getctarank(d: Decode) -> Step:
    address, result = d.source("a", dtypes.ALL[d.modifier("type")]), d.destination("d")
    generic = not d.modifiers.get("shared::cluster")

    def step(frame: Frame) -> None:
        where = np.broadcast_to(frame.values[address], (frame.lanes,)).astype(np.int64)
        if generic:
            _check_window(frame, where, "getctarank")
            where = where - SHARED_WINDOW
        frame.write(result, (where >> RANK_SHIFT).astype(np.uint32))

    return step


def _check_window(frame: Frame, addresses: np.ndarray, what: str) -> None:
    outside = frame.active & ((addresses < SHARED_WINDOW) | (addresses >= SHARED_WINDOW + WINDOW_SIZE))
    if outside.any():
        lane = int(np.flatnonzero(outside)[0])
        frame.error(
            InvalidOperandError,
            f"{what} of generic address {int(addresses[lane]):#x}, which is not in shared memory",
            lane,
            hint=f"{what}.shared::cluster takes a shared address",
        )


# -- registers ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class RegisterPool:
    """The registers of a CTA: the count per thread in each warp, and the free ones."""

    at_launch: int
    free: int = 0
    held: dict[int, int] = field(default_factory=dict)

    def of(self, warp: int) -> int:
        return self.held.get(warp, self.at_launch)


class Registers:
    """The register pool of a CTA; None if ptxas ignores setmaxnreg."""

    def __init__(self, cta: Cta) -> None:
        code = cta.machine.code
        count = code.fact(("registers at launch", cta.threads), lambda: launch_registers(code, cta.threads))
        self.pool = None if count is None else RegisterPool(count)

    def digest(self) -> Hashable:
        return None if self.pool is None else (self.pool.free, tuple(sorted(self.pool.held.items())))


REGISTERS = Slot("registers", Registers)


@HANDLERS.add("cluster.setmaxnreg")
def setmaxnreg(d: Decode) -> Step:
    count, grows = d.constant("count"), d.modifier("action") == "inc"
    if not 24 <= count <= 256 or count % 8:
        d.error(VerificationError, f"setmaxnreg of {count} registers", expected="a multiple of 8 from 24 to 256")

    def step(frame: Frame) -> Wait | None:
        cta, warp = frame.cta, frame.first_warp
        pool = REGISTERS.of(cta).pool
        events = frame.machine.events
        for listener in events.took if grows else events.gave:
            listener(frame, "registers", count, pool is not None)
        if pool is None:
            return None
        now = pool.of(warp)
        if (now > count) if grows else (now < count):
            frame.error(
                InvalidOperandError,
                f"setmaxnreg.{'inc' if grows else 'dec'} to {count} in a warp that has {now} registers a thread",
                expected=f"a count of at {'least' if grows else 'most'} {now}",
                hint="at launch a thread has 65536 / (threads on an SM), down to a multiple of 8, or .maxnreg",
            )
        change = (count - now) * WARP
        if not grows:
            pool.held[warp] = count
            pool.free -= change
            frame.machine.progress()
            return None

        def take(frame: Frame) -> None:
            pool.held[warp] = count
            pool.free -= change

        return Wait(
            "registers",
            ready=lambda: pool.free >= change,
            describe=lambda: (
                f"registers: warp {warp} needs {change} more ({now} to {count} a thread), "
                f"but the CTA's pool has {pool.free}"
            ),
            resume=take,
        )

    return step


# -- grid order --------------------------------------------------------------------------------------------------


@HANDLERS.add("cluster.griddepcontrol")
def griddepcontrol(d: Decode) -> Step:
    """One launch is emulated at a time, so its prerequisites are complete and its dependents start after it."""
    action = d.modifier("action")

    def step(frame: Frame) -> None:
        events = frame.machine.events
        if action == "wait":
            for listener in events.waited:
                listener(frame, CompletedWait("grid", frame.active_lanes))
        else:
            for listener in events.permitted:
                listener(frame, action)

    return step
