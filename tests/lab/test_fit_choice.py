"""The correction of the choice: its weights are those of the evidence, judged on layers left out, and stable."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import fit_choice as fit
from tests.errors import refused
from warploom.operators.families import correction
from warploom.operators.select import choose, ranking
from warploom.operators.spec.gpu import EMULATED
from warploom.operators.spec.problem import Problem

SHOWN = json.loads(fit.MODEL.read_text())


def sample(count: int) -> list[fit.Group]:
    rows = json.loads(fit.SWEEPS[0].read_text())["rows"]
    return fit.groups(rows[:: len(rows) // count])


def test_the_weights_are_those_of_the_evidence():
    quadratic = correction.quadratic()
    weights = np.array([quadratic[i, j] for i, j in fit.PAIRS])
    found = sample(40)
    regrets = [fit.regret(group, weights) for group in found]
    assert np.mean(regrets) < 0.03 and SHOWN["in_sample"]["regret_mean"] < 0.02


def test_the_evidence_judges_layers_left_out_of_the_fit_better_than_the_estimates_alone():
    assert SHOWN["left_out"]["products"] >= 250
    assert SHOWN["left_out"]["regret_mean"] < 0.6 * SHOWN["estimates_alone"]["regret_mean"]
    assert SHOWN["left_out"]["best_of_two_p99"] <= 0.08
    found = sample(30)
    dealt: dict[int, set[tuple[int, int]]] = {}
    for group, fold in zip(found, fit.folds(found), strict=True):
        dealt.setdefault(fold, set()).add((group.problem.n, group.problem.k))
    layers = list(dealt.values())
    assert not any(one & other for at, one in enumerate(layers) for other in layers[at + 1 :])


def test_a_fit_finds_what_makes_one_kind_slower_than_its_estimate():
    found = sample(30)
    slow = correction.FEATURES.index("moved"), correction.FEATURES.index("moved")
    column = fit.PAIRS.index(slow)
    for group in found:
        group.considered[:] = True
        group.times = group.estimates * np.exp(0.3 * group.terms[:, column])
    weights = fit.fitted(found, ridge=1e-3)
    assert max(fit.regret(group, weights) for group in found) < 0.01


@pytest.mark.parametrize(
    "text", ["", "{}", '{"weights": [["one", "nothing", 1]]}', '{"weights": [["one", "free", "x"]]}']
)
def test_a_file_that_is_no_model_is_refused(tmp_path, text):
    (tmp_path / "choice.json").write_text(text)
    with refused("argument", got="choice.json"):
        correction.quadratic(tmp_path / "choice.json")


@pytest.mark.parametrize(
    "shape", [(1, 4096, 4096), (64, 28672, 4096), (1000, 5120, 2560), (16384, 512, 131072), (1, 1, 8)]
)
def test_every_order_is_finite_and_the_estimates_keep_their_size(shape):
    problem = Problem.of(*shape)
    order = ranking(problem)
    times = [estimate.time_us for _, estimate in order]
    assert times == sorted(times) and np.isfinite(times).all()
    assert choose(problem).config == order[0][0] or choose(problem).source != "model"
    for config, estimate in order[:3]:
        plain = correction.numbers(config, problem, EMULATED, estimate.time_us)[0]
        assert 0.5 < estimate.time_us / plain < 2
