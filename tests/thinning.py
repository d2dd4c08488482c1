"""Sweeps too long for every run: a sample in `make test`, more in `make test-all`, the rest in `make test-slow`.

    @pytest.mark.sample(6)              6 of the cases in `make test`, the rest in `make test-all`
    @pytest.mark.sample(6, full=20)     a quarter of 14 more in `make test-all`, the rest in `make test-slow`
    @pytest.mark.sample(6, all=20)      20 of them in `make test-all`, the rest in `make test-slow`

`sample(6)` is `sample(6, full=as many as there are)`: of what it leaves out, every fourth case runs in `make test-all`,
which so stays within a quarter of an hour on two cores. `sample(0, all=1)` runs nothing in `make test`.

A sample is the same in every run. It holds as many different values of each parameter as it can, so that a sample as
large as the longest axis holds each value once. Cases that are marked `full` or `slow` anyway are left as they are.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import pytest

SHARE = 4
FULL, SLOW = pytest.mark.full, pytest.mark.slow


def sample(cases: Mapping[str, Sequence[Hashable]], size: int) -> list[str]:
    """The names of `size` cases, the first of them rich in values that no earlier one has.

    cases: of each case's name, the values of its parameters, in their order.
    """
    left = sorted(cases, key=lambda name: hashlib.sha256(name.encode()).digest())
    met: set[tuple[int, Hashable]] = set()
    chosen: list[str] = []
    while left and len(chosen) < size:
        best = max(left, key=lambda name: len(set(enumerate(cases[name])) - met))
        left.remove(best)
        met |= set(enumerate(cases[best]))
        chosen.append(best)
    return chosen


def thin(items: Sequence[pytest.Item]) -> None:
    """Mark the cases that a `sample` mark leaves out of `make test`, or out of `make test-all` too."""
    sweeps: dict[tuple[object, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") and hasattr(item, "callspec") and not set(_marks(item)) & {"full", "slow"}:
            sweeps[item.path, item.cls, item.originalname].append(item)
    for sweep in sweeps.values():
        mark = sweep[0].get_closest_marker("sample")
        cases = {item.name: [repr(value) for value in item.callspec.params.values()] for item in sweep}
        quick, most = mark.args[0], min(mark.kwargs.get("full", len(cases)), len(cases))
        tested = set(sample(cases, quick))
        tested_by_all = set(sample(cases, mark.kwargs.get("all", quick + -(-max(most - quick, 0) // SHARE))))
        for item in sweep:
            if item.name not in tested_by_all:
                item.add_marker(SLOW)
            elif item.name not in tested:
                item.add_marker(FULL)


def _marks(item: pytest.Item) -> list[str]:
    return [mark.name for mark in item.iter_markers()]


SCHEDULES = [("eager", 0), ("random", 1), ("starve", 0), ("random", 2), ("random", 3), ("starve", 1), ("starve", 5)]
"""(schedule, seed) in addition to the default."""
