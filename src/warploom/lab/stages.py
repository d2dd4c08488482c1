"""The states of a ring's stages over time, derived from a timeline: empty, acquired, filled, read."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from ..timing import Timeline
from ..timing.timeline import BARRIER, COPY, MATRIX

STATES = ("empty", "acquired", "filled", "read")
NAMES = (
    ("empty → acquired", "producer_acquire", "producer_acquire", "passing empty[s]; drawn from the first copy on"),
    ("acquired → filled", "producer_commit (bytes of TMA)", "tma.load(…, full)", "the bytes at full[s]"),
    ("filled → read", "consumer_wait", "consumer_wait", "passing full[s]; drawn from the first MMA on"),
    ("read → empty", "consumer_release", "consumer_release", "the consumers' last arrival at empty[s]"),
)
"""Transition, CUTLASS's name, ours, and its cause."""


@dataclass(frozen=True)
class Span:
    """A stage is in a state from `start` to `end`, in clocks."""

    stage: int
    state: str
    start: float
    end: float


def spans(timeline: Timeline, cta: int = 0) -> list[Span]:
    """The states of every stage of a CTA's ring; empty if no copy completes a barrier.

    A stage is acquired when the first copy into it is issued, filled when its barrier's phase completes, read from the
    first MMA of the k-tile on (of a consumer's MMAs, in the order of the fills), and empty when the next barrier of the
    same stage that only has arrivals completes.
    """
    copies: dict[tuple[str, int, int], float] = {}
    for event in timeline.of_kind(COPY):
        if event.cta == cta and event.phase >= 0:
            copies.setdefault((event.barrier, event.stage, event.phase), event.start)
    full = {name for name, _, _ in copies}
    phases = [event for event in timeline.of_kind(BARRIER) if event.cta == cta]
    fills = sorted((one.end, one.stage, one.barrier, one.phase) for one in phases if one.barrier in full)
    releases: dict[int, list[float]] = {}
    for event in phases:
        if event.barrier not in full:
            releases.setdefault(event.stage, []).append(event.end)
    begins: dict[int, float] = {}
    for event in timeline.of_kind(MATRIX):
        if event.cta == cta and event.group >= 0:
            begins.setdefault(event.group, event.start)
    reads = sorted(begins.values())
    found = []
    free: dict[int, float] = {}
    for filled, stage, barrier, phase in fills:
        acquired = copies.get((barrier, stage, phase), filled)
        times = sorted(releases.get(stage, []))
        after = bisect_right(times, filled)
        released = times[after] if after < len(times) else timeline.end
        later = bisect_right(reads, filled)
        read = min(reads[later], released) if later < len(reads) else released
        found += [
            Span(stage, "empty", free.get(stage, 0.0), acquired), Span(stage, "acquired", acquired, filled),
            Span(stage, "filled", filled, read), Span(stage, "read", read, released),
        ]  # fmt: skip
        free[stage] = released
    found += [Span(stage, "empty", start, timeline.end) for stage, start in free.items() if start < timeline.end]
    return [span for span in found if span.end > span.start]
