"""What happened in a phase of an mbarrier, in words: arrivals, expected and arrived bytes, by whom, on which line."""

from __future__ import annotations

import re
from collections import defaultdict

from ...plural import counted
from ..machine.mbarrier import Event, MBarrier
from ..machine.registers import WARP


def came_in(events: list[Event]) -> dict[tuple[str, str, str], str]:
    """Events of a phase -> words, by (what, who, place); events of one role or warp on one line are merged."""
    together: dict[tuple[str, str, str, int], list[Event]] = defaultdict(list)
    for event in events:
        by = event.by
        warp = by.frame.first_warp + (by.lane or 0) // WARP
        location = by.operation.instruction.location
        # The coordinates of a box differ from CTA to CTA, but the cause does not.
        what = re.sub(r" at \([^)]*\)", "", event.description) if event.what == "complete" else ""
        who = what or by.frame.machine.code.role(warp)
        together[event.what, who, "" if what or not location else f" at {location}", -1 if who else warp].append(event)
    words = {}
    for (what, name, place, warp), some in together.items():
        who = name or (some[0].by.who() if len({one.by.lane for one in some}) == 1 else f"warp {warp}")
        ctas = len({one.by.frame.cta.describe() for one in some})
        words[what, who, place] = _words(what, who, place, sum(one.amount for one in some), len(some), ctas)
    return words


def _words(what: str, who: str, place: str, amount: int, times: int, ctas: int) -> str:
    of = f" of {ctas} CTAs" if ctas > 1 else ""
    often = f", {times} times" if times > 1 else ""
    if what == "arrive":
        return f"{counted(amount, 'arrival')}: {who}{of}{place}"
    verb = "expected" if what == "expect" else "completed"
    return f"{verb} {amount} bytes: {who}{of}{place}{often}"


def history(barrier: MBarrier) -> tuple[str, ...]:
    """A line for each of the latest phases of a barrier: its state, and what arrived."""
    lines = []
    for phase in sorted({*barrier.log, barrier.phase}):
        came = "; ".join(came_in(barrier.log.get(phase, [])).values())
        state = "complete" if phase < barrier.phase else barrier.missing() if came else "no arrivals yet"
        lines.append(f"{barrier.name}, phase {phase}, {state}" + (f": {came}" if came else ""))
    return tuple(lines)
