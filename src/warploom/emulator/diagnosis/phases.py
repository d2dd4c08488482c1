"""What a phase of an mbarrier saw, in words: arrivals, bytes announced and brought, by whom and from which line."""

from __future__ import annotations

import re
from collections import defaultdict

from ..machine.mbarrier import Event, MBarrier


def came_in(events: list[Event]) -> dict[tuple[str, str, str], str]:
    """Events of a phase, those of one role at one line together: (what, who, place) -> words."""
    amounts: dict[tuple[str, str, str], int] = defaultdict(int)
    actors: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    times: dict[tuple[str, str, str], int] = defaultdict(int)
    for event in events:
        by = event.by
        role = by.frame.machine.code.role(by.frame.first_warp + (by.lane or 0) // 32)
        location = by.operation.instruction.location
        # The coordinates of a box differ from CTA to CTA, and the cause does not.
        what = re.sub(r" at \([^)]*\)", "", event.description) if event.what == "complete" else ""
        key = (event.what, what or role or by.who(), "" if what else f" at {location}" if location else "")
        amounts[key] += event.amount
        times[key] += 1
        actors[key].add(by.frame.cta.describe())
    return {key: _words(*key, amounts[key], times[key], len(actors[key])) for key in amounts}


def _words(what: str, who: str, place: str, amount: int, times: int, ctas: int) -> str:
    of = f" of {ctas} CTAs" if ctas > 1 else ""
    often = f", {times} times" if times > 1 else ""
    if what == "arrive":
        return f"{amount} arrival{'s' if amount > 1 else ''}: {who}{of}{place}"
    verb = "expected" if what == "expect" else "completed"
    return f"{verb} {amount} bytes: {who}{of}{place}{often}"


def history(barrier: MBarrier) -> tuple[str, ...]:
    """A line for each of the latest phases of a barrier: whether it is complete, and what came."""
    lines = []
    for phase in sorted({*barrier.log, barrier.phase}):
        came = "; ".join(came_in(barrier.log.get(phase, [])).values())
        state = "complete" if phase < barrier.phase else barrier.missing() if came else "nobody has come yet"
        lines.append(f"{barrier.name}, phase {phase}, {state}" + (f": {came}" if came else ""))
    return tuple(lines)
