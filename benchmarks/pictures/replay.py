"""Replay a recorded run with durations: which unit is busy when, on a machine with round numbers.

Every actor processes its recorded events in order and waits where it waited. Units process copies and products in
order, one at a time. The numbers are a model's, chosen once for all pictures, and not measurements: the pictures show
who waits for whom, not for how long.

    tensor core        the H200's 4096 FLOP per clock and SM (`roofline.FLOP_PER_CLOCK`)
    copies             700 clocks until the first byte, then 64 bytes per clock and SM, one after the other
    threads' stores    a warpgroup writes 32 bytes per clock to shared memory, 16 to global memory (half of a sector),
                       conversion and addresses included
    barriers           30 clocks from the last arrival to the first waiter; 300 across CTAs
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field

from warploom.lab.roofline import FLOP_PER_CLOCK

from .trace import Action, Actor, Phase, Trace

TENSOR = FLOP_PER_CLOCK["sm_90a"]["bf16"]
LATENCY = 700
COPY_BYTES = 64
THREAD_BYTES = {"shared": 32, "global": 16}
BARRIER = 30
REMOTE = 300


@dataclass(frozen=True)
class Span:
    """An interval in which one unit is busy, in clocks.

    Attributes:
        lane: ("load", cta), ("tensor", actor, accumulator), ("write", actor), ("store", cta), ("wait", actor).
        number: index of the k-tile or of the part in its lane, from 0.
    """

    lane: tuple[Hashable, ...]
    start: float
    end: float
    number: int


@dataclass
class Filling:
    """One use of a stage: a phase of the barrier that counts its bytes.

    Attributes:
        cta, stage: the CTA, and the stage, numbered in the order of first use.
        number: index of the k-tile, in the CTA's order of loading.
        asked: the first copy starts; arrived: the last byte arrives.
        read: first and last clock of the products that read it.
    """

    cta: int
    stage: int
    number: int
    asked: float
    arrived: float = 0.0
    read: tuple[float, float] | None = None


@dataclass
class _Running:
    actor: Actor
    actions: list[Action]
    at: int = 0
    clock: float = 0.0
    open: list[float] = field(default_factory=list)
    groups: list[float] = field(default_factory=list)
    stores: list[tuple[float, float]] = field(default_factory=list)
    handed: list[tuple[float, float]] = field(default_factory=list)
    reading: Filling | None = None


class Replay:
    """See the module's docstring. `spans` and `fillings` are the result; `end` is the last clock."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.spans: list[Span] = []
        self.fillings: dict[Hashable, Filling] = {}
        self._came: dict[Hashable, list[float]] = defaultdict(list)
        self._free: dict[Hashable, float] = defaultdict(float)
        self._numbers: dict[Hashable, int] = defaultdict(int)
        self._stages: dict[int, dict[int, int]] = {}
        running = [_Running(actor, trace.actions[actor]) for actor in trace.actors]
        while unfinished := [each for each in running if each.at < len(each.actions)]:
            ready = [each for each in unfinished if self._can(each)]
            if not ready:
                raise RuntimeError("a recorded run cannot be replayed: " + str(unfinished[0].actions[unfinished[0].at]))
            self._do(min(ready, key=lambda each: each.clock))
        self.end = max((span.end for span in self.spans), default=0.0)

    def lanes(self, kind: str) -> list[tuple[Hashable, ...]]:
        """The lanes of a kind, by actor."""
        return sorted({span.lane for span in self.spans if span.lane[0] == kind}, key=str)

    def busy(self, kind: str) -> float:
        """Clocks in which units of that kind work, over all their lanes."""
        return sum(span.end - span.start for span in self.spans if span.lane[0] == kind)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _can(self, me: _Running) -> bool:
        action = me.actions[me.at]
        return action.what != "wait" or len(self._came[action.key]) >= self.trace.needed[action.key]

    def _do(self, me: _Running) -> None:
        action = me.actions[me.at]
        me.at += 1
        cta = me.actor.cta
        if action.what == "wait":
            me.reading = self.fillings.get(action.key, me.reading)
            reached = max(self._came[action.key]) + BARRIER
            if reached > me.clock:
                self._add(("wait", me.actor, action.key), me.clock, reached)  # type: ignore[arg-type]
                me.clock = reached
        elif action.what == "arrive":
            self._came[action.key].append(me.clock)
        elif action.what == "copy":
            self._copy(me, action)
        elif action.what == "multiply":
            start = max(me.clock, self._free["tensor", cta])
            done = start + action.amount / TENSOR
            self._free["tensor", cta] = done
            self._add(("tensor", me.actor, action.detail), start, done)
            if me.reading is not None:
                before = me.reading.read or (start, done)
                me.reading.read = (min(before[0], start), max(before[1], done))
            me.open.append(done)
        elif action.what == "commit":
            me.groups.append(max(me.open, default=me.clock))
            me.open = []
        elif action.what == "drain":
            left = me.groups[: len(me.groups) - action.amount] if action.amount else me.groups
            me.clock = max([me.clock, *left])
        elif action.what == "hand over":
            me.handed.append((max((s[0] for s in me.stores), default=0.0), max((s[1] for s in me.stores), default=0.0)))
            me.stores = []
        elif action.what == "settle":
            left_stores = me.handed[: len(me.handed) - action.amount] if action.amount else me.handed
            me.clock = max([me.clock, *(pair[0 if action.detail else 1] for pair in left_stores)])
        elif action.what == "write":
            length = action.amount / THREAD_BYTES[str(action.detail)]
            self._add(("write", me.actor), me.clock, me.clock + length)
            me.clock += length

    def _copy(self, me: _Running, action: Action) -> None:
        cta = me.actor.cta
        if action.detail == "remote":
            done = me.clock + REMOTE
        else:
            unit = ("load", cta) if action.detail == "load" else ("store", cta)
            start = max(me.clock, self._free[unit])
            moved = start + action.amount / COPY_BYTES
            self._free[unit] = moved
            done = moved + LATENCY
            self._add(unit, start, done if action.detail == "load" else moved)
            if action.detail == "store":
                me.stores.append((moved, done))
        for key in self.trace.signals.get(action.key, []):  # type: ignore[call-overload]
            self._came[key].append(done)
            if action.detail == "load":
                self._fill(key, start, done)

    def _fill(self, key: Phase, start: float, done: float) -> None:
        filling = self.fillings.get(key)
        if filling is None:
            number = sum(each.cta == key.cta for each in self.fillings.values())
            known = self._stages.setdefault(key.cta, {})
            filling = self.fillings[key] = Filling(key.cta, known.setdefault(key.offset, len(known)), number, start)
        filling.asked, filling.arrived = min(filling.asked, start), max(filling.arrived, done)

    def _add(self, lane: tuple[Hashable, ...], start: float, end: float) -> None:
        self.spans.append(Span(lane, start, end, self._numbers[lane]))
        self._numbers[lane] += 1
