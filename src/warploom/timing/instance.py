"""A recorded cluster in the replay: its warps, phases, meetings and operations, and the times that they wait for."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import recording as kinds
from .recording import Recording
from .units import Sm


class PendingTime:
    """A time that may not be known yet, and the warps that wait for it. `cause` is the event that determined it."""

    __slots__ = ("cause", "left", "parked", "time")

    def __init__(self, left: int) -> None:
        self.left = left
        self.time = 0.0
        self.cause = -1
        self.parked: list[Actor] = []

    def contribute(self, time: float, cause: int = -1) -> bool:
        """Add one contribution at its time. True if it was the last."""
        self.left -= 1
        if time >= self.time:
            self.time, self.cause = time, cause
        return self.left <= 0


@dataclass(eq=False)
class Actor:
    """A warp in the replay: its position, and when pending loads will have written their registers."""

    instance: Instance
    cta: int
    warp: int
    steps: list[kinds.Step]
    sm: Sm
    at: int = 0
    time: float = 0.0
    late: dict[int, float] = field(default_factory=dict)
    origin: dict[int, int] = field(default_factory=dict)
    """The event of the load that writes each register."""
    copies: float = 0.0
    """Time at which it may start its next copy."""
    chases: bool = False
    """True if the address of its next load is computed from what the latest one has loaded."""


class Instance:
    """One cluster in the replay: a copy of a recorded cluster, with its own phases, meetings and operations."""

    def __init__(self, recording: Recording, members: list[int], sms: list[Sm], number: int, start: float) -> None:
        self.recording, self.number, self.start, self.end = recording, number, start, start
        self.phases: dict[int, PendingTime] = {}
        self.meetings: dict[int, PendingTime] = {}
        self.operations: dict[int, InFlightOperation] = {}
        self.sms = dict(zip(members, sms, strict=True))
        self.actors = [
            Actor(self, cta, warp, steps, self.sms[cta], time=start)
            for (cta, warp), steps in recording.steps.items()
            if cta in self.sms
        ]
        self.running = len(self.actors)

    def phase(self, index: int) -> PendingTime:
        found = self.phases.get(index)
        if found is None:
            found = self.phases[index] = PendingTime(self.recording.phases[index].contributions)
        return found

    def meeting(self, index: int) -> PendingTime:
        found = self.meetings.get(index)
        if found is None:
            found = self.meetings[index] = PendingTime(self.recording.meetings[index].warps)
        return found

    def operation(self, index: int) -> InFlightOperation:
        found = self.operations.get(index)
        if found is None:
            found = self.operations[index] = InFlightOperation(self.recording.operations[index].issuers)
        return found


class InFlightOperation:
    """An operation in the replay: the issuers still missing, and when its sources are read and it is done."""

    __slots__ = ("done", "event", "issued", "issuers", "read")

    def __init__(self, issuers: int) -> None:
        self.issuers = issuers
        self.issued = 0.0
        self.read = PendingTime(1)
        self.done = PendingTime(1)
        self.event = -1
