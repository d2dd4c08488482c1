"""`bar` and `barrier`: the sixteen named barriers of a CTA. PTX ISA 9.7.13.1.

A barrier counts whole warps: a warp has arrived when all of its threads that have not exited have. They may arrive one
by one; at `bar` and at `.aligned` forms they must arrive together. Without a thread count, exited warps are not waited
for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import InvalidOperandError
from ...plural import counted
from ..machine.events import CompletedWait
from ..machine.frame import Frame, Issuer
from ..machine.machine import Cta, mask_of
from ..machine.mbarrier import Event
from ..machine.register_list import lane_value
from ..machine.registers import WARP
from ..machine.slots import Slot
from ..machine.wait import Wait
from ..machine.ways_out import exit_place, how_it_left
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()
BARRIERS = 16
FULL = 0xFFFFFFFF


@dataclass(eq=False)
class BarrierGeneration:
    """One use of a barrier, from the first arrival to its completion.

    Attributes:
        count: threads it needs; None: all threads of the CTA that have not exited.
        use: "sync" (arrivals too), "popc", "and" or "or": reductions do not mix with anything else.
        arrived: mask of arrived lanes by warp.
        again: of these, the lanes that did not wait (bar.arrive) and later came back to wait: they count twice.
            Attention kernels start their ring of warpgroups this way, with an arrival that a warpgroup gives itself.
        votes: number of them whose predicate was set; log: the arrivals.
    """

    number: int
    count: int | None
    use: str
    arrived: dict[int, int] = field(default_factory=dict)
    again: dict[int, int] = field(default_factory=dict)
    threads: int = 0
    votes: int = 0
    log: list[Event] = field(default_factory=list)
    complete: bool = False
    mark: Any = None
    kind = "cta"

    def reached(self, cta: Cta) -> int:
        """Number of threads that count as arrived: those of complete warps."""
        arrivals = (*self.arrived.items(), *self.again.items())
        return WARP * sum(not cta.warps[warp].alive & ~lanes for warp, lanes in arrivals)

    def there(self, cta: Cta) -> int:
        """Number of threads that have arrived, for the deadlock report."""
        arrivals = (*self.arrived.items(), *self.again.items())
        return sum(WARP if not cta.warps[warp].alive & ~lanes else lanes.bit_count() for warp, lanes in arrivals)

    def needed(self, cta: Cta) -> int:
        if self.count is not None:
            return self.count
        present = sum(1 for warp in cta.warps if warp.alive or warp.index in self.arrived)
        return present * WARP

    def result(self) -> int:
        return {"popc": self.votes, "and": int(self.votes == self.threads), "or": int(self.votes > 0)}.get(self.use, 0)


@dataclass(eq=False)
class NamedBarriers:
    """The barriers of a CTA that are in use, by number."""

    rounds: dict[int, BarrierGeneration] = field(default_factory=dict)

    def digest(self) -> Hashable:
        return tuple(
            (number, one.count, one.use, one.votes, *(tuple(sorted(by.items())) for by in (one.arrived, one.again)))
            for number, one in sorted(self.rounds.items())
        )


NAMED_BARRIERS = Slot("named barriers", lambda cta: NamedBarriers())


def _enter(
    frame: Frame, number: int, count: int | None, use: str, votes: int = 0, waits: bool = True
) -> BarrierGeneration:
    """Let the frame's warps arrive; `waits`: they will wait for the others.

    Raises InvalidOperandError for a violation of the barrier's rules.
    """
    cta = frame.cta
    rounds = NAMED_BARRIERS.of(cta).rounds
    if not 0 <= number < BARRIERS:
        frame.error(InvalidOperandError, f"unknown barrier {number}", code="named-barrier",
                    expected=f"0 to {BARRIERS - 1}", got=number)  # fmt: skip
    if count is not None:
        most = len(cta.warps) * WARP
        if count % WARP or not 0 < count <= most:
            frame.error(
                InvalidOperandError,
                f"barrier {number} is used with a thread count of {count}",
                code="named-barrier",
                got=count,
                expected=f"a multiple of {WARP} from {WARP} to {most}, the threads of the CTA",
            )
    current = rounds.setdefault(number, BarrierGeneration(number, count, use))
    if current.use != use:
        frame.error(
            InvalidOperandError,
            f"barrier {number} is in use for {_verb(current.use)}, but this is {_verb(use)}",
            code="named-barrier",
            expected=_verb(current.use),
            got=_verb(use),
            hint="use another barrier number, or let all threads run the same instruction",
        )
    if current.count != count:
        frame.error(
            InvalidOperandError,
            f"barrier {number} is used with two thread counts at once",
            code="named-barrier",
            expected=f"{_count(current.count)}, as given by the first warp",
            got=_count(count),
            consequence="some warps are released too early or never",
        )
    lanes = FULL if frame.mask is True else mask_of(frame.active)
    for warp in range(frame.first_warp, frame.first_warp + frame.warps):
        if frame.operation.converged and cta.warps[warp].alive & ~lanes:
            _refuse_part(frame, cta.warps[warp].alive & ~lanes)
        before = current.arrived.get(warp, 0)
        twice = before & lanes
        if twice and (not waits or twice & current.again.get(warp, 0)):
            frame.error(
                InvalidOperandError,
                f"warp {warp} arrives a second time at barrier {number} before it is complete",
                code="named-barrier",
                got=f"warp {warp} again",
                expected=f"{counted(current.needed(cta), 'thread')}, of which {current.reached(cta)} have arrived",
                hint="the counts of this barrier's users do not add up, or a loop runs ahead of the other warps",
            )
        current.arrived[warp] = before | lanes
        if twice:
            current.again[warp] = current.again.get(warp, 0) | twice
    threads = lanes.bit_count() * frame.warps
    current.threads += threads
    current.votes += votes
    event = Event.now("arrive", threads, Issuer.of(frame))
    current.log.append(event)
    for listener in frame.machine.events.arrived:
        listener(current, event)
    reached = current.reached(cta)
    if count is not None and reached > count:
        frame.error(
            InvalidOperandError,
            f"barrier {number} takes {counted(count, 'thread')}, but {reached} arrived",
            code="named-barrier",
            got=reached,
            hint="the thread count must cover all warps that sync or arrive",
        )
    _settle(cta, current)
    return current


def _refuse_part(frame: Frame, absent: int) -> None:
    """An aligned barrier whose guard keeps threads of the warp from it."""
    frame.error(
        InvalidOperandError,
        f"`{frame.instruction.opcode}` must be executed by all threads of its warp",
        (absent & -absent).bit_length() - 1,
        code="named-barrier",
        expected="a guard that is the same for all threads",
        got=f"{absent.bit_count()} of them left out",
        consequence="its result is undefined (.aligned)",
        hint="`barrier` without .aligned lets the threads of a warp arrive one by one",
    )


def _settle(cta: Cta, current: BarrierGeneration) -> bool:
    """Complete a round if all its threads have arrived. True if it is complete."""
    if not current.complete and current.reached(cta) >= current.needed(cta):
        current.complete = True
        rounds = NAMED_BARRIERS.of(cta).rounds
        if rounds.get(current.number) is current:
            del rounds[current.number]
        cta.machine.progress()
    return current.complete


def _wait(frame: Frame, current: BarrierGeneration, resume: Callable[[Frame], None] | None = None) -> Wait:
    cta = frame.cta

    def describe() -> str:
        absent = [warp.index for warp in cta.warps if warp.alive & ~current.arrived.get(warp.index, 0)]
        return (
            f"barrier {current.number}: {current.there(cta)} of {counted(current.needed(cta), 'thread')} have arrived, "
            f"{current.needed(cta) - current.there(cta)} missing; not there: {cta.describe_warps(absent)}"
            + "".join(f"; {one}" for one in _left(cta, current))
        )

    frame.machine.counters.barrier_waits += frame.warps

    def go_on(frame: Frame) -> None:
        for listener in frame.machine.events.waited:
            listener(frame, CompletedWait("cta", frame.active_lanes, current))
        if resume is not None:
            resume(frame)

    return Wait("bar", lambda: _settle(cta, current), describe, go_on, about=lambda: [(current, None)])


def _left(cta: Cta, current: BarrierGeneration) -> list[str]:
    """The warps that have exited and so can no longer arrive where a thread count says who must, by where they left."""
    left: dict[tuple[str, str], list[int]] = {}
    goals = {event.by.operation.pc for event in current.log}
    for warp in cta.warps if current.count is not None else ():
        if warp.exited and warp.index not in current.arrived:
            left.setdefault((exit_place(warp), how_it_left(warp, goals)), []).append(warp.index)
    return [
        f"{cta.describe_warps(warps)} {'has' if len(warps) == 1 else 'have'} exited{place} without arriving{branch}"
        for (place, branch), warps in left.items()
    ]


def _verb(use: str) -> str:
    return "sync or arrive" if use == "sync" else f"red.{use}"


def _count(count: int | None) -> str:
    return "no count (all threads)" if count is None else counted(count, "thread")


def _numbers(d: Decode) -> Callable[[Frame], tuple[int, int | None]]:
    """A reader of barrier number and thread count; both must be the same for all threads of the warp."""
    number = d.source("a")
    count = d.source("b") if d.has("b") else -1

    def read(frame: Frame) -> tuple[int, int | None]:
        lane = int(frame.active_lanes[0])
        for slot in (number, count):
            value = frame.values[slot] if slot >= 0 else None
            if isinstance(value, np.ndarray) and (value[frame.active] != value[lane]).any():
                frame.error(InvalidOperandError, "the threads of a warp name different barriers or counts")
        return lane_value(frame, number, lane), None if count < 0 else lane_value(frame, count, lane)

    return read


def _together(d: Decode) -> Callable[[Frame], list[int]]:
    """Number of warps that arrive as one: as many as the barrier still needs, and then again."""
    number = d.source("a")
    count = d.source("b") if d.has("b") else -1

    def counts(frame: Frame) -> list[int]:
        alone = [1] * frame.warps
        values = frame.values[number], WARP * len(frame.cta.warps) if count < 0 else frame.values[count]
        if any(isinstance(value, np.ndarray) and np.count_nonzero(value != value[0]) for value in values):
            return alone
        which, needed = (int(value.flat[0]) if isinstance(value, np.ndarray) else int(value) for value in values)
        current = NAMED_BARRIERS.of(frame.cta).rounds.get(which)
        if needed % WARP or needed <= 0:
            return alone  # an error
        left, size = frame.warps, (needed - (current.reached(frame.cta) if current is not None else 0)) // WARP
        found = []
        while left > 0:
            found.append(max(1, min(size, left)))
            left, size = left - found[-1], needed // WARP
        return found

    return counts


@HANDLERS.add("bar.sync")
@HANDLERS.add("barrier.sync")
def sync(d: Decode) -> Step:
    read = _numbers(d)
    d.operation.together = _together(d)

    def step(frame: Frame) -> Wait:
        number, count = read(frame)
        return _wait(frame, _enter(frame, number, count, "sync"))

    return step


@HANDLERS.add("bar.arrive")
@HANDLERS.add("barrier.arrive")
def arrive(d: Decode) -> Step:
    read = _numbers(d)

    def step(frame: Frame) -> None:
        number, count = read(frame)
        _enter(frame, number, count, "sync", waits=False)

    return step


@HANDLERS.add("bar.red_popc", "bar.red_popc_count", "bar.red", "bar.red_count")
@HANDLERS.add("barrier.red_popc", "barrier.red_popc_count", "barrier.red", "barrier.red_count")
def reduce(d: Decode) -> Step:
    read = _numbers(d)
    counts = "popc" in d.match.form.key
    use = "popc" if counts else d.modifier("op")
    result = d.destination("d" if counts else "p")
    vote = d.predicate("c")

    def step(frame: Frame) -> Wait:
        number, count = read(frame)
        votes = int(np.count_nonzero(frame.active & vote(frame)))
        current = _enter(frame, number, count, use, votes)

        def finish(frame: Frame) -> None:
            value = current.result()
            frame.write(result, np.bool_(value) if not counts else np.uint32(value))

        return _wait(frame, current, finish)

    return step
