"""Estimates the time of an emulation before it starts, so that nobody waits an hour by surprise.

The first cluster of the grid is run on copies, for a bounded number of steps, and its time multiplied by the number
of clusters. This is rough (loops may differ from CTA to CTA), and only done if the grid is large enough for the
estimate to matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import CostLimitError, EmulationError, StepLimitError

CLUSTERS_THAT_MATTER = 64
SAMPLE_STEPS = 20_000


@dataclass(frozen=True)
class Estimate:
    """The expected time of an emulation.

    Attributes:
        seconds: expected time; a lower bound if `at_least`.
        clusters: in the grid.
        sample_s: time of the cluster that was run.
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


def estimate(clusters: int, sample: Callable[[int], float]) -> Estimate | None:
    """Estimate from a sample. `sample(steps)` runs one cluster for at most `steps` and returns seconds.

    None if the grid is too small to matter, or if the first cluster cannot run alone (it waits for others, or it
    fails, which the real run will report).
    """
    if clusters < CLUSTERS_THAT_MATTER:
        return None
    try:
        seconds = sample(SAMPLE_STEPS)
    except StepLimitError as error:
        seconds = float(getattr(error, "seconds", 0.0))
        return Estimate(seconds * clusters, clusters, seconds, at_least=True) if seconds else None
    except EmulationError:
        return None
    return Estimate(seconds * clusters, clusters, seconds)


def refuse_if_long(found: Estimate | None, limit_s: float, title: str) -> None:
    """Raise CostLimitError for an estimate above the limit."""
    if found is not None and found.seconds > limit_s:
        raise CostLimitError(
            f"emulating {title} would take {found}",
            expected=f"at most {spoken(limit_s)} (config.emulator.limit_s)",
            got=f"{found.clusters} clusters, one of which took {found.sample_s:.2f} s",
            hint='use smaller arrays, or allow it: with warploom.config.override(emulator={"limit_s": '
            f"{int(found.seconds * 2) + 1}" + "}): …",
        )
