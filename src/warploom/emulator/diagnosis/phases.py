"""What happened in a phase of a barrier, in words: arrivals, expected and arrived bytes, by whom, on which line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...plural import counted
from ..machine.mbarrier import Event, MBarrier
from ..machine.symbols import warps_named

FEW = 6
"""Entries of one phase that are told; of more, how many are left out."""
Key = tuple[str, str, str]
"""What, who, and the place."""


@dataclass(eq=False)
class Entry:
    """Events of one role, or of one warp, on one line.

    Attributes:
        who: the role, the copy, or the warp; warp: -1 if `who` is not a warp.
        lanes: the threads that came alone, None for a whole warp; ctas: their CTAs.
    """

    what: str
    who: str
    place: str
    warp: int
    amount: int = 0
    times: int = 0
    lanes: set[int | None] = field(default_factory=set)
    ctas: set[str] = field(default_factory=set)

    def words(self) -> str:
        of = f" of {len(self.ctas)} CTAs" if len(self.ctas) > 1 else ""
        often = f", {self.times} times" if self.times > 1 else ""
        if self.what == "arrive":
            return f"{counted(self.amount, 'arrival')}: {self.who}{of}{self.place}"
        verb = "expected" if self.what == "expect" else "completed"
        return f"{verb} {self.amount} bytes: {self.who}{of}{self.place}{often}"


def came_in(events: Iterable[Event]) -> dict[Key, Entry]:
    """The events of a phase, by role or warp and by line."""
    found: dict[Key, Entry] = {}
    for event in events:
        by = event.by
        location = by.operation.instruction.location
        # The coordinates of a box differ from CTA to CTA, but the cause does not.
        copy = re.sub(r" at \([^)]*\)", "", event.description) if event.what == "complete" else ""
        place = "" if copy or not location else f" at {location}"
        threads = sum(count for _, count in event.warps)
        for warp, count in event.warps:
            role = copy or by.frame.machine.code.role(warp)
            who = role or f"warp {warp}"
            entry = found.setdefault((event.what, who, place), Entry(event.what, who, place, -1 if role else warp))
            entry.amount += event.amount * count // threads
            entry.times += 1
            entry.lanes.add(None if by.lane is None else by.thread)
            entry.ctas.add(by.frame.cta.describe())
    for entry in found.values():
        if entry.warp >= 0 and len(entry.lanes) == 1 and None not in entry.lanes:
            entry.who = f"thread {next(iter(entry.lanes))}"
    return found


def told(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Entries in words, those of several warps on one line as one, and not more than a few."""
    lines: dict[tuple[object, ...], list[Entry]] = defaultdict(list)
    for entry in entries:
        alike = entry.what, entry.place, len(entry.ctas)
        lines[(*alike, "") if entry.warp >= 0 else (*alike, entry.who)].append(entry)
    words = [_together(some).words() for some in lines.values()]
    left = len(words) - FEW
    return (*words[:FEW], *((f"and {left} more",) if left > 0 else ()))


def _together(some: list[Entry]) -> Entry:
    """One entry for those of several warps."""
    if len(some) == 1:
        return some[0]
    first = some[0]
    every = Entry(first.what, warps_named(sorted({one.warp for one in some})), first.place, first.warp)
    every.amount, every.times = sum(one.amount for one in some), sum(one.times for one in some)
    every.ctas = set().union(*(one.ctas for one in some))
    return every


def history(barrier: MBarrier) -> tuple[str, ...]:
    """A line for each of the latest phases of a barrier: its state, and what arrived."""
    lines = []
    for phase in sorted({*barrier.log, barrier.phase}):
        came = "; ".join(told(came_in(barrier.log.get(phase, [])).values()))
        state = "complete" if phase < barrier.phase else barrier.missing() if came else "no arrivals yet"
        lines.append(f"{barrier.name}, phase {phase}, {state}" + (f": {came}" if came else ""))
    return tuple(lines)
