"""Estimates the time of an emulation before it starts, so that nobody waits an hour by surprise.

The first cluster of the grid is run on copies, for a bounded number of steps, and its time multiplied by the number
of clusters. That includes what each run does once: a short cluster looks several times as long as it is. So a launch
that seems too long is estimated again, from several clusters. Both are rough (loops may differ from CTA to CTA), and
only done if the grid is large enough for the estimate to matter.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ..errors import CostLimitError, EmulationError, StepLimitError

CLUSTERS_THAT_MATTER = 64
SAMPLE_STEPS = 20_000
SEVERAL = 16


@dataclass(frozen=True)
class Estimate:
    """The expected time of an emulation.

    Attributes:
        seconds: expected time; a lower bound if `at_least`.
        clusters: in the grid.
        sample_s: time of one cluster, of those that were run.
    """

    seconds: float
    clusters: int
    sample_s: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'about'} {spoken(self.seconds)}"


def spoken(seconds: float) -> str:
    """Seconds as text for people: "45 s", "12 min", "3.1 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def allow(seconds: float) -> str:
    """How to allow an emulation of that time, from the command line and in Python."""
    limit = int(seconds * 2) + 1
    return f"set WARPLOOM_EMULATOR_LIMIT_S={limit}, or use warploom.config.override(emulator={{'limit_s': {limit}}})"


def estimate(clusters: int, sample: Callable[[int, int], float], limit_s: float = 0.0) -> Estimate | None:
    """Estimate from samples. `sample(number, steps)` runs the first `number` clusters for at most `steps` warp
    instructions and returns seconds of the processor.

    limit_s: up to that time the estimate may be too high.

    None if the grid is too small to matter, or if the first cluster cannot run alone (it waits for others, or it
    fails, which the real run will report).
    """
    if clusters < CLUSTERS_THAT_MATTER:
        return None
    try:
        seconds = sample(1, SAMPLE_STEPS)
    except StepLimitError as error:
        seconds = float(getattr(error, "seconds", 0.0))
        return Estimate(seconds * clusters, clusters, seconds, at_least=True) if seconds else None
    except EmulationError:
        return None
    if seconds * clusters > limit_s:
        with suppress(EmulationError):  # the real run will report it
            seconds = min(seconds, sample(SEVERAL, SAMPLE_STEPS * SEVERAL) / SEVERAL)
    return Estimate(seconds * clusters, clusters, seconds)


def refuse_if_long(found: Estimate | None, limit_s: float, title: str) -> None:
    """Raise CostLimitError for an estimate above the limit."""
    if found is not None and found.seconds > limit_s:
        raise CostLimitError(
            f"emulating {title} would take {found}",
            expected=f"at most {spoken(limit_s)} (config.emulator.limit_s)",
            got=f"{found.clusters} clusters, one of which takes {found.sample_s * 1e3:.3g} ms",
            hint=f"use smaller arrays, or allow it: {allow(found.seconds)}",
        )
