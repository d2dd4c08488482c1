"""The sample of a sweep: the same in every run, every value of each parameter met before one is met twice."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import SimpleNamespace

import pytest

from tests.thinning import sample, thin

SWEEP = {f"{a}-{b}": (a, b) for a, b in product("abc", range(5))}


def test_a_sample_as_large_as_the_longest_axis_holds_every_value_of_each() -> None:
    chosen = [SWEEP[name] for name in sample(SWEEP, 5)]
    assert {a for a, _ in chosen} == set("abc") and {b for _, b in chosen} == set(range(5))


def test_a_larger_sample_holds_the_smaller_one() -> None:
    assert sample(SWEEP, 9)[:4] == sample(SWEEP, 4)
    assert sorted(sample(SWEEP, 15)) == sorted(sample(SWEEP, 99)) == sorted(SWEEP)


def test_the_order_in_which_cases_are_written_does_not_matter() -> None:
    assert sample(dict(reversed(SWEEP.items())), 7) == sample(SWEEP, 7)


class Case:
    """A test item without a mark, with the parameters `rule` and `schedule`."""

    path, cls, originalname = None, None, "test"

    def __init__(self, rule: int, schedule: int) -> None:
        self.name = f"test[{rule}-{schedule}]"
        self.callspec = SimpleNamespace(params={"rule": rule, "schedule": schedule})
        self.own_markers: list[pytest.Mark] = []

    def get_closest_marker(self, name: str) -> None:
        return None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.own_markers.append(mark.mark)


def test_a_case_runs_under_one_schedule_in_make_test_and_in_make_test_all() -> None:
    items = [Case(rule, schedule) for rule, schedule in product(range(20), range(7))]
    thin(items)
    for rule in range(20):
        cases = [item for item in items if item.callspec.params["rule"] == rule]
        marks = Counter(mark.name for item in cases for mark in item.own_markers)
        assert marks == {"slow": 6}
    assert {item.callspec.params["schedule"] for item in items if not item.own_markers} == set(range(7))


def test_every_sweep_keeps_a_case_for_make_test(request: pytest.FixtureRequest) -> None:
    """Of what this session collected: no `sample` mark leaves a test without a quick case, but `sample(0, …)`."""
    quick: dict[object, bool] = {}
    for item in request.session.items:
        if (mark := item.get_closest_marker("sample")) and mark.args[0] > 0:
            sweep = item.path, item.cls, item.originalname
            quick[sweep] = quick.get(sweep, False) or not {mark.name for mark in item.iter_markers()} & {"full", "slow"}
    assert all(quick.values())
