"""Rates that were measured at some points, and queues in series."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def between(where: float, measured: Sequence[tuple[float, float]]) -> float:
    """Interpolate between measured points, linearly in the logarithm; outside them, return the nearest."""
    at = min(max(where, measured[0][0]), measured[-1][0])
    for (before, first), (after, second) in itertools.pairwise(measured):
        if at <= after:
            return first + (second - first) * math.log(at / before) / math.log(after / before)
    raise AssertionError(where)


def together(sharpness: float, *rates: float) -> float:
    """Return the combined rate of queues in series.

    Requests come in bursts, so one queue is sometimes idle while another is full: two equally busy queues are slower
    together than each alone, and a hardly busy queue costs nothing.
    """
    return float(sum(rate**-sharpness for rate in rates) ** (-1 / sharpness))
