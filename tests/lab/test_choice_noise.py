"""The noise of the choice's sweeps: what repeated timings say of it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import choice_noise as noise
from benchmarks import fit_choice as fit
from warploom.lab.work import GemmWork
from warploom.operators.spec.gpu import EMULATED

SIZES = {"m": 64, "n": 128, "k": 256}
PRODUCT = (EMULATED.name, GemmWork(**SIZES))


def point(us: dict[str, float], final_us: dict[str, float] | None = None) -> dict:
    return {**SIZES, "us": {fit.CUBLAS: 1.0, fit.LIBRARY: 1.0, **us}, "final_us": final_us or {}}


def group(times: list[float]) -> fit.Group:
    count = len(times)
    return fit.Group(PRODUCT[1], EMULATED, ["x", "y", "z"][:count], np.ones(count), np.zeros((count, 1)),
                     np.array(times), np.ones(count, bool), 1.0)  # fmt: skip


def test_the_fastest_of_one_sweep_is_judged_by_the_other():
    sweeps = [
        {"gpu": EMULATED.name, "rows": [point(us)]} for us in ({"x": 10, "y": 11, "z": 12}, {"x": 22, "y": 20, "z": 30})
    ]
    timed = noise.runs(sweeps)
    assert list(timed) == [PRODUCT]
    assert noise.repeated(timed) == [pytest.approx(0.1), pytest.approx(0.1)]
    assert noise.repeated(noise.runs(sweeps[:1])) == []


def test_the_longer_timing_judges_both_the_choice_and_the_fastest_of_the_shorter():
    points = [point({"x": 10, "y": 11, "z": 12}, {"x": 11, "y": 10.5, "z": 11.55})]
    assert noise.by_second("z", points) == [pytest.approx(0.05)]
    assert noise.by_second("y", points) == [pytest.approx(10.5 / 11 - 1)]
    assert noise.by_second("w", points) == []


def test_products_whose_choice_was_timed_once_are_apart():
    timed = {PRODUCT: [point({"x": 10, "y": 11, "z": 12}, {"x": 10, "y": 11})]}
    times = group([10.0, 11.0, 12.0])
    found = noise.judged([times, times], [np.array([1, 0, 2]), np.array([2, 0, 1])], timed)
    assert found["timed_again"]["regret"]["mean"] == found["timed_again"]["by_second"]["mean"] == pytest.approx(0.1)
    assert (found["timed_once"]["count"], found["timed_once"]["mean"]) == (1, pytest.approx(0.2))
    assert found["all"]["count"] == 2
