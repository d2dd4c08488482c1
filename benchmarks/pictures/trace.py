"""Record what each warpgroup of an emulated kernel did, in order: waits, arrivals, copies, products, stores.

The emulator has no clock. It does have the order of each warpgroup's events, and which event ended each wait; an
observer records them during the run. `replay` gives these events durations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from warploom.emulator.machine.async_operation import AsyncOperation
from warploom.emulator.machine.events import BarrierUse, CompletedWait, Observer
from warploom.emulator.machine.frame import Frame, Issuer
from warploom.emulator.machine.machine import Cta, Machine
from warploom.emulator.machine.mbarrier import Event, MBarrier
from warploom.emulator.machine.places import Lanes
from warploom.emulator.machine.units import WARPGROUP_MMA
from warploom.lang import Kernel
from warploom.runtime.machine import H200

WARPS = 4
"""Threads of a warpgroup."""


@dataclass(frozen=True, order=True)
class Actor:
    """A warpgroup: index of its CTA in the grid, index in the CTA."""

    cta: int
    warpgroup: int


@dataclass(frozen=True)
class Action:
    """One action of an actor.

    Attributes:
        what: "wait" and "arrive" (key: a phase of a barrier), "copy", "multiply" (key: the operation), "commit",
            "drain", "store", "hand over", "settle" (bulk stores), "write" and "read" (by its threads).
        amount: FLOP of a multiply; bytes; how many groups may stay in flight.
        detail: a multiply's accumulator; the memory written to.
    """

    what: str
    key: Hashable = None
    amount: int = 0
    detail: Hashable = None


@dataclass(frozen=True)
class Phase:
    """A phase of an mbarrier: index of its CTA, offset in shared memory, number of the phase."""

    cta: int
    offset: int
    phase: int


@dataclass
class Trace:
    """A recorded run.

    Attributes:
        actions: each actor's actions, in order.
        signals: what a copy signals when it is complete: phases of barriers, one for each signal.
        needed: the number of signals and arrivals of each phase.
    """

    actions: dict[Actor, list[Action]] = field(default_factory=lambda: defaultdict(list))
    signals: dict[int, list[Phase]] = field(default_factory=lambda: defaultdict(list))
    needed: dict[Hashable, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def actors(self) -> list[Actor]:
        return sorted(self.actions)

    def count(self, actor: Actor, what: str) -> int:
        return sum(action.what == what for action in self.actions[actor])


class Recorder(Observer):
    """Writes a Trace while the machine runs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.trace = Trace()
        self._meetings: dict[int, BarrierUse] = {}

    # -- who ---------------------------------------------------------------------------------------------------------

    def _cta(self, cta: Cta) -> int:
        x, y, z = cta.index
        wide, high, _ = self.machine.grid
        return x + wide * (y + high * z)

    def _groups(self, frame: Frame, first_only: bool = True) -> list[Actor]:
        """The warpgroups of a frame; with `first_only`, those whose first warp is in it, so that each counts once."""
        begin, end = frame.first_warp, frame.first_warp + frame.warps
        return [
            Actor(self._cta(frame.cta), group)
            for group in range(begin // WARPS, -(-end // WARPS))
            if not first_only or begin <= group * WARPS < end
        ]

    def _issuer(self, by: Issuer) -> Actor:
        return Actor(self._cta(by.frame.cta), (by.frame.first_warp + (by.lane or 0) // 32) // WARPS)

    def _note(self, actor: Actor, action: Action) -> None:
        self.trace.actions[actor].append(action)

    def _phase(self, barrier: MBarrier, phase: int) -> Phase:
        return Phase(self._cta(barrier.cta), barrier.offset, phase)

    # -- barriers ------------------------------------------------------------------------------------------------------

    def arrived(self, on: MBarrier | BarrierUse, event: Event) -> None:
        if not isinstance(on, MBarrier):
            return self._arrive(self._meeting(on), event.by.frame)
        key = self._phase(on, on.phase)
        if event.operation is not None:
            if event.what != "expect":
                self.trace.signals[event.operation.number].append(key)
                self.trace.needed[key] += 1
        elif event.what == "arrive":
            self.trace.needed[key] += 1
            self._note(self._issuer(event.by), Action("arrive", key, event.amount))
        return None

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        action = self._of_wait(wait)
        if action is not None:
            for actor in self._groups(frame):
                self._note(actor, action)

    def _of_wait(self, wait: CompletedWait) -> Action | None:
        if isinstance(wait.what, MBarrier):
            return Action("wait", self._phase(wait.what, wait.what.phase - 1)) if wait.what.phase else None
        if wait.what is not None:
            return Action("wait", self._meeting(wait.what))  # type: ignore[arg-type]
        if wait.on == "bulk":
            return Action("settle", amount=wait.newest, detail=wait.reads_only)
        return Action("drain", amount=wait.newest) if wait.on == "wgmma" else None

    def _meeting(self, barrier: BarrierUse) -> Hashable:
        self._meetings[id(barrier)] = barrier  # kept alive: its id is its name
        return (barrier.kind, id(barrier), 0)

    def _arrive(self, key: Hashable, frame: Frame) -> None:
        for actor in self._groups(frame, first_only=False):
            self.trace.needed[key] += 1
            self._note(actor, Action("arrive", key, 1))

    # -- copies and products -------------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        if operation.kind != WARPGROUP_MMA.name:
            copy = Action("copy", operation.number, operation.bytes, operation.kind)
            return self._note(self._issuer(operation.issuer), copy)
        (actor,) = self._groups(operation.issuer.frame)
        accumulator, _ = operation.pipeline
        return self._note(actor, Action("multiply", None, operation.flops, accumulator))

    def committed(self, frame: Frame, family: str, operations: object) -> None:
        what = {"bulk": "hand over", "wgmma": "commit"}.get(family)
        if what is not None:
            for actor in self._groups(frame):
                self._note(actor, Action(what))

    # -- memory --------------------------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: object) -> None:
        if how == "writes":
            self._moved("write", frame, place.space, place.size * place.count * place.lanes.size)

    def _moved(self, what: str, frame: Frame, space: str, size: int) -> None:
        groups = self._groups(frame, first_only=False)
        for actor in groups:
            self._note(actor, Action(what, None, size // len(groups), "shared" if "shared" in space else "global"))


def record(kernel: Kernel, *arrays: Any, sms: int = 1, schedule: str = "eager") -> Trace:
    """Emulate a kernel on a machine with this many multiprocessors, and record it."""
    seen: list[Recorder] = []

    def watch(machine: Machine) -> Recorder:
        seen.append(Recorder(machine))
        return seen[-1]

    kernel.emulate(*arrays, check=False, schedule=schedule, watch=watch, machine=H200(sms=sms))
    return seen[-1].trace
