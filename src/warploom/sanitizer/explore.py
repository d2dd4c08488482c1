"""Runs a kernel under several schedules and returns the simplest one that shows an error.

Races are found under any schedule, but deadlocks and phases that complete early only under some. The pairs are tried
starting with the simplest, so the first that fails is the one to look at; running it again replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..emulator.diagnosis.report import Report
from ..errors import EmulationError

EXPLORED: tuple[tuple[str, int], ...] = (
    ("lazy", 0), ("eager", 0), ("starve", 0), ("starve", 1), ("random", 0), ("random", 1), ("pct", 0), ("pct", 1),
)  # fmt: skip
"""The pairs of a default exploration, simplest first."""


@dataclass(frozen=True)
class Exploration:
    """The pairs that were tried, and the first one that failed, if any."""

    tried: tuple[tuple[str, int], ...]
    failing: tuple[str, int] | None


def explore(run: Callable[[str, int], Report], pairs: Sequence[tuple[str, int]] = EXPLORED) -> Exploration:
    """Try the pairs in order until one fails: an error of the machine, an error-level finding or a wrong result.

    `run(schedule, seed)` emulates on fresh copies of the arguments; it raises AssertionError if a result is wrong.
    """
    tried: list[tuple[str, int]] = []
    for schedule, seed in pairs:
        tried.append((schedule, seed))
        try:
            failed = not run(schedule, seed).ok
        except (AssertionError, EmulationError):
            failed = True
        if failed:
            return Exploration(tuple(tried), (schedule, seed))
    return Exploration(tuple(tried), None)
