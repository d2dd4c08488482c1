"""The correction of the choice: its trees are those of the evidence, judged on held-out layers, and stable."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import fit_choice as fit
from tests.errors import refused
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.operators.families import correction
from warploom.operators.families.traffic import TRAFFIC, at_least, memory_us, traffic
from warploom.operators.select import choose, ranking
from warploom.operators.spec.gpu import EMULATED
from warploom.operators.spec.problem import Problem

SHOWN = json.loads(fit.MODEL.read_text())
H100 = fit.CARDS["NVIDIA H100 80GB HBM3"]


def sample(count: int) -> list[fit.Group]:
    rows = json.loads(next(iter(fit.SWEEPS)).read_text())["rows"]
    return fit.groups(rows[:: len(rows) // count])


def test_the_trees_are_those_of_the_evidence():
    found = sample(40)
    regrets = [fit.regret(group, fit.order_of(group, correction.forest())) for group in found]
    assert np.mean(regrets) < 0.03 and SHOWN["in_sample"]["regret_mean"] < 0.02


def test_products_with_mn_major_operands_are_chosen_by_the_same_trees():
    found = [group for path in fit.SWEEPS if path.stem in ("sweep-gradients", "sweep-long-k-2")
             for group in fit.groups(json.loads(path.read_text())["rows"], H100)]  # fmt: skip
    trees = correction.forest()
    before, after = ([fit.regret(group, fit.order_of(group, each)) for group in found] for each in (None, trees))
    assert np.mean(after) < 0.7 * np.mean(before) and np.mean(after) < 0.03


def test_the_evidence_judges_layers_left_out_of_the_fit_better_than_the_estimates_alone():
    assert SHOWN["left_out"]["products"] >= 250 * SHOWN["deals"] >= 500
    assert SHOWN["left_out"]["regret_mean"] < 0.6 * SHOWN["estimates_alone"]["regret_mean"]
    assert SHOWN["left_out"]["regret_mean"] <= 0.02 and SHOWN["left_out"]["best_of_two_p99"] <= 0.08
    assert 0 < SHOWN["noise"]["regret_p99"] < SHOWN["left_out"]["regret_p99"]
    found = sample(30)
    dealt: dict[int, set[tuple[int, int]]] = {}
    for group, fold in zip(found, fit.folds(found, 1), strict=True):
        dealt.setdefault(fold, set()).add((group.problem.n, group.problem.k))
    layers = list(dealt.values())
    assert not any(one & other for at, one in enumerate(layers) for other in layers[at + 1 :])


def test_a_fit_finds_what_makes_one_kind_slower_than_its_estimate(monkeypatch):
    monkeypatch.setattr(fit.gradient_boosting, "TREES", 60)
    monkeypatch.setattr(fit.gradient_boosting, "FORESTS", 1)
    found, place = sample(30), correction.FEATURES.index("swapped")
    for group in found:
        group.considered[:] = True
        group.times = group.estimates * np.exp(0.3 * group.features[:, place])
    trees = fit.fitted(found)
    before, after = ([fit.regret(g, fit.order_of(g, each)) for g in found] for each in (None, trees))
    assert np.mean(before) > 0.02 and np.mean(after) < 0.2 * np.mean(before)


def test_timings_at_another_clock_are_brought_together_by_what_both_have():
    point = {"us": {"cublas": 10.0, "a": 8.0, "b": 9.0, "c": 9.5}, "final_us": {"cublas": 11.0, "a": 8.8, "b": 9.9}}
    assert fit.timed(point) == pytest.approx(point["us"])
    point["final_us"] |= {"d": 1.0, "b": 9.9 * 2}  # one that departs is kept as measured, mostly by the longer timing
    assert fit.timed(point) == pytest.approx({**point["us"], "b": 9.0 * 2**fit.LONGER})


def test_noise_is_the_regret_of_who_chooses_by_a_timing():
    calm = {"us": {"cublas": 9.0, "a": 1.0, "b": 2.0}, "final_us": {"cublas": 9.0, "a": 1.1, "b": 2.2}}
    turned = {"us": {"cublas": 9.0, "a": 1.0, "b": 1.01}, "final_us": {"cublas": 9.0, "a": 1.1, "b": 1.0}}
    assert fit.noise([calm]) == {"products": 1, "regret_mean": 0, "regret_p99": 0, "regret_most": 0, "spread": 0}
    assert fit.noise([calm, turned])["regret_mean"] == 0.05


def test_no_estimate_is_below_the_time_in_which_the_memory_moves_the_operands_and_the_result():
    problem = Problem.of(8192, 8192, 64)
    memory = memory_us(problem, EMULATED)
    moved = (2 * 8192 * 64 + 8192 * 8192) * 2
    assert memory == pytest.approx(moved / 4.8e6 / 0.92) and memory_us(problem, H100) > 1.4 * memory
    assert at_least(0.1 * memory, memory) == pytest.approx(memory)
    assert at_least(10 * memory, memory) == pytest.approx(10 * memory)
    assert 1.05 * memory < at_least(memory, memory) < 1.1 * memory


def test_traffic_counts_what_waves_read_again_and_what_tiles_compute_outside():
    def of(config, m, n, k, **more):
        return traffic(config, Problem.of(m, n, k, **more), EMULATED, 10.0)

    square = FreeTileConfig(tile_m=128, tile_n=128)
    assert set(of(square, 128, 128, 64)) == set(TRAFFIC)
    one, several = of(square, 1024, 1024, 1024), of(replace(square, persistent=True), 8192, 8192, 1024)
    assert one["reads of waves"] == 0 and one["computed outside"] == 0 and several["reads of waves"] > 1
    assert of(square, 129, 128, 1024)["computed outside"] == pytest.approx(math.log2(256 / 129))
    assert of(square, 1024, 1024, 65)["k outside"] == pytest.approx(128 / 65 - 1)
    assert of(square, 1024, 1024, 1032)["inside sectors"] == 1  # rows of 2064 bytes: half begin inside sectors, of both
    assert of(square, 1024, 1024, 1024, layout="nt")["run of weights"] == 1  # 256 bytes of a row of k, not 128


def written(**changes):
    limits = {name: [0.5] for name in correction.FEATURES}
    return json.dumps({"limits": limits, "trees": [[[0], [0], [1, 2]]], **changes})


@pytest.mark.parametrize("text", [
    "", "{}", "[]", written(limits={"rows": [1]}), written(trees=[]), written(trees=[[[0], [0], [1, 2, 3]]]),
    written(trees=[[[0], [0, 1], [1, 2]]]), written(trees=[[[999], [0], [1, 2]]]), written(trees=[[[0], [2], [1, 2]]]),
    written(trees=[[[0], [0], ["x", 2]]]), written(trees=3)])  # fmt: skip
def test_a_file_that_is_no_model_is_refused(tmp_path, text):
    (tmp_path / "choice.json").write_text(text)
    with refused("argument", got="choice.json"):
        correction.forest(tmp_path / "choice.json")


@pytest.mark.parametrize("layout", ["tn", "tt", "nt"])
@pytest.mark.parametrize(
    "shape", [(1, 4096, 4096), (64, 28672, 4096), (1000, 5120, 2560), (16384, 512, 131072), (1, 1, 8)]
)
def test_every_order_is_finite_and_the_estimates_keep_their_size(shape, layout):
    problem = Problem.of(*shape, layout=layout)
    order = ranking(problem)
    times = [estimate.time_us for _, estimate in order]
    assert times == sorted(times) and np.isfinite(times).all()
    assert choose(problem).config == order[0][0] or choose(problem).source != "model"
    for config, estimate in order[:3]:
        plain = correction.numbers(config, problem, EMULATED, estimate.time_us)[0]
        assert 0.5 < estimate.time_us / plain < 2
