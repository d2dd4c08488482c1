"""Sweeps too long for every submission: some cases always, the rest under the mark `slow`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

SLOW = pytest.mark.slow


def thinned(cases: Iterable[Any], step: int) -> list[Any]:
    """Every `step`-th case as it is, the others marked slow."""
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=() if at % step == 0 else SLOW) for at, case in enumerate(listed)]


def crossed(*axes: Iterable[Any], step: int) -> list[Any]:
    """All combinations, thinned. A step that shares no factor with the axes' lengths meets every value of each."""
    return thinned(product(*axes), step)


SCHEDULES = [
    *(pytest.param(*pair, id="-".join(map(str, pair))) for pair in (("eager", 0), ("random", 1), ("starve", 0))),
    *(
        pytest.param(*pair, id="-".join(map(str, pair)), marks=SLOW)
        for pair in (("random", 2), ("random", 3), ("starve", 1), ("starve", 5))
    ),
]
"""(schedule, seed) beside the default: one of each kind, and more under slow."""
