"""The cost of epilogues: the constants come from the named files, and choices follow them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fit_choice import groups
from warploom.collective.epilogue.spec import Fusion
from warploom.isa.dtypes import bf16, e4m3
from warploom.kernels.hopper.description import Config, Product
from warploom.kernels.hopper.free_tile_choice import from_small_m, waves_of
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.names import any_config
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.lab import evidence
from warploom.operators import Problem
from warploom.operators.families import candidates, from_text, hopper_large
from warploom.operators.families.correction import (
    LARGE_FROM,
    OF_ELEMENT_US,
    OF_PAIR_US,
    OPERAND_OF_LARGE_US,
    OPERAND_US,
    SCALES_OF_LARGE_US,
    epilogue_us,
)
from warploom.operators.spec.gpu import EMULATED

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results/nvidia-h200"
PLAIN, FUSED = Fusion(), Fusion(activation="silu", gate=True)


def e4m3_problem(m, n, k, scales):
    return replace(Problem.of(m, n, k), product=Product(e4m3, e4m3, bf16), fusion=Fusion(scales=scales))


def of_a_file(name):
    """Microseconds of each configuration, by the product's size."""
    rows = evidence.read(RESULTS / name)["rows"]
    return {(row["m"], row["n"], row["k"]): {**row["us"], **row["final_us"]} for row in rows}


@pytest.fixture(scope="module")
def scaled():
    """Size, configuration, and how much longer it takes with scales of rows than of the tensor."""
    tensor, row = of_a_file("sweep-e4m3-tensor.json"), of_a_file("sweep-e4m3-row.json")
    return [
        (size, any_config(name), us - tensor[size][name])
        for size, times in row.items() for name, us in times.items()
        if name in tensor[size] and name not in ("cublas", "library")
    ]  # fmt: skip


def test_scales_of_rows_cost_a_free_tile_nothing(scaled):
    each = [us / waves_of(config, *size[:2], EMULATED.sms) for size, config, us in scaled
            if isinstance(config, FreeTileConfig)]  # fmt: skip
    assert len(each) > 150 and abs(np.median(each)) < 0.05


def test_scales_of_rows_cost_a_large_tile_what_was_read(scaled):
    """More than the family's own estimate says of them."""
    rounds = []
    for size, config, us in scaled:
        if isinstance(config, Config):
            tensor, row = (hopper_large.estimate(config, e4m3_problem(*size, kind), EMULATED)
                           for kind in ("tensor", "row"))  # fmt: skip
            rounds.append((us - (row.time_us - tensor.time_us)) / row.waves)
    assert len(rounds) > 40 and np.median(rounds) == pytest.approx(SCALES_OF_LARGE_US, abs=0.02)


@pytest.fixture(scope="module")
def fused():
    """Size, configuration, and how much longer it takes with a gate or an addend than without."""
    times: dict[tuple, dict[str, float]] = {}
    for row in evidence.read(RESULTS / "fused-ends.json")["rows"]:
        times.setdefault((row["m"], row["n"], row["k"], row["config"]), {})[row["end"]] = row["us"]
    return [
        ((m, n, k), from_text(name), of[end] - of["plain"])
        for (m, n, k, name), of in times.items() for end in ("addend", "gate") if end in of and "plain" in of
    ]  # fmt: skip


def test_an_operand_costs_what_was_read(fused):
    free, small, large = [], [], []
    for (m, n, k), config, us in fused:
        if isinstance(config, Config):
            large.append(us / hopper_large.estimate(config, Problem.of(m, n, k), EMULATED).waves)
            continue
        tile = from_small_m(config) if isinstance(config, SmallMConfig) else config
        of = small if isinstance(config, SmallMConfig) else free
        of.append((tile.accumulators / tile.split_k, us / waves_of(tile, m, n, EMULATED.sms)))
    fitted = np.linalg.lstsq(np.array([[1, sums] for sums, _ in free]), np.array([us for _, us in free]), rcond=None)[0]
    assert fitted == pytest.approx([OPERAND_US, OF_PAIR_US], rel=0.03)
    assert np.median([us / sums for sums, us in small]) == pytest.approx(OF_ELEMENT_US, abs=0.01)
    assert np.median(large) == pytest.approx(OPERAND_OF_LARGE_US, abs=0.1)


def test_every_tile_in_turn_pays_for_its_end():
    free, large = FreeTileConfig(tile_n=128, persistent=True), Config()
    for config in (free, large):
        costs = [epilogue_us(config, replace(Problem.of(m, 4096, 4096), fusion=FUSED), EMULATED) for m in (512, 8192)]
        assert costs[1] > 2 * costs[0] > 0
        assert epilogue_us(config, e4m3_problem(8192, 4096, 4096, "tensor"), EMULATED) == 0
    assert epilogue_us(large, e4m3_problem(8192, 4096, 4096, "row"), EMULATED) > 0


def test_large_tiles_are_candidates_where_the_sweep_saw_them_win():
    """And below that where an end is fused, which they hide."""

    def has_large(problem):
        return any(isinstance(config, Config) for config in candidates(problem, EMULATED))

    few, many = LARGE_FROM - 1, LARGE_FROM
    assert not has_large(Problem.of(few, 16384, 4096)) and has_large(Problem.of(many, 16384, 4096))
    assert has_large(replace(Problem.of(few, 16384, 4096), fusion=FUSED))


def test_no_large_tile_was_the_fastest_up_to_those_rows():
    seen = 0
    for group in groups(evidence.read(RESULTS / "sweep-free-tile.json")["rows"]):
        large = [isinstance(any_config(name), Config) for name in group.names]
        if group.problem.m < LARGE_FROM and 0 < sum(large) < len(large):
            assert group.times[large].min() > group.times[np.invert(large)].min()
            seen += 1
    assert seen > 70
