"""Sweeps too long for every run: a sample in `make test`, more in `make test-all`, the rest in `make test-slow`.

    @pytest.mark.sample(6)              6 of the cases in `make test`, the rest in `make test-all`
    @pytest.mark.sample(6, full=90)     a fortieth of 84 more in `make test-all`, the rest in `make test-slow`
    @pytest.mark.sample(6, all=20)      20 of them in `make test-all`, the rest in `make test-slow`

`sample(6)` is `sample(6, full=as many as there are)`: of what it leaves out, every fortieth case runs
in `make test-all`, which would take hours otherwise. `sample(0, all=1)` runs nothing in
`make test`.

A test with a parameter `schedule` and no mark runs each of its other cases under 1 schedule in `make test` and
`make test-all`, and under all in `make test-slow`. Which one differs from case to case.

A sample is the same in every run. It holds as many different values of each parameter as it can, so that a sample as
large as the longest axis holds each value once. Cases that are marked `full` or `slow` anyway are left as they are;
those of a module that is marked `full` are thinned for `make test-all`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import pytest

SHARE = 40
SCHEDULES_PER_CASE = 1
"""Schedules of each case in `make test` and `make test-all`."""
FULL, SLOW = pytest.mark.full, pytest.mark.slow


def sample(cases: Mapping[str, Sequence[Hashable]], size: int) -> list[str]:
    """The names of `size` cases, the first of them rich in values that no earlier one has.

    cases: of each case's name, the values of its parameters, in their order.
    """
    names = sorted(cases, key=lambda name: hashlib.sha256(name.encode()).digest())
    values = [frozenset(enumerate(cases[name])) for name in names]
    met: set[tuple[int, Hashable]] = set()
    richest = [(-len(own), place) for place, own in enumerate(values)]  # a heap: what a case brings only decreases
    heapq.heapify(richest)
    chosen: list[int] = []
    while richest and len(chosen) < size:
        brings, place = richest[0]
        now = -len(values[place] - met)
        if now != brings:
            heapq.heapreplace(richest, (now, place))
            continue
        heapq.heappop(richest)
        met |= values[place]
        chosen.append(place)
    return [names[place] for place in chosen]


def thin(items: Sequence[pytest.Item]) -> None:
    """Mark the cases that `make test` leaves out, or `make test-all` too: of `sample` marks, and of schedules."""
    sweeps: dict[tuple[object, ...], list[pytest.Item]] = defaultdict(list)
    cases: dict[tuple[object, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not hasattr(item, "callspec") or {mark.name for mark in item.own_markers} & {"full", "slow"}:
            continue
        test = item.path, item.cls, item.originalname
        if item.get_closest_marker("sample"):
            sweeps[test].append(item)
        elif "schedule" in item.callspec.params:
            others = (id(value) for name, value in item.callspec.params.items() if name not in ("schedule", "seed"))
            cases[(*test, *others)].append(item)
    for sweep in sweeps.values():
        mark = sweep[0].get_closest_marker("sample")
        values = {item.name: [repr(value) for value in item.callspec.params.values()] for item in sweep}
        quick, most = mark.args[0], min(mark.kwargs.get("full", len(values)), len(values))
        chosen = sample(values, mark.kwargs.get("all", quick + max(most - quick, 0) // SHARE))
        _keep(sweep, chosen[:quick], chosen)
    for case in cases.values():
        chosen = sample({item.name: () for item in case}, SCHEDULES_PER_CASE)
        _keep(case, chosen, chosen)


def _keep(items: Sequence[pytest.Item], quick: Sequence[str], full: Sequence[str]) -> None:
    """Mark what is not in the sample of `make test`, or not in that of `make test-all`."""
    for item in items:
        if item.name not in full:
            item.add_marker(SLOW)
        elif item.name not in quick:
            item.add_marker(FULL)


SCHEDULES = [("eager", 0), ("random", 1), ("starve", 0), ("random", 2), ("random", 3), ("starve", 1), ("starve", 5)]
"""(schedule, seed) in addition to the default."""
