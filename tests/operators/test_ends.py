"""What the ends of tiles cost: the constants are those of the files that they name, and choices follow them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fit_choice import groups
from warploom.collective.epilogue.spec import Fusion
from warploom.isa.dtypes import bf16, e4m3
from warploom.kernels.hopper.description import Config, Product
from warploom.kernels.hopper.free_tile_choice import waves_of
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.names import any_config
from warploom.lab import evidence
from warploom.operators import Problem
from warploom.operators.families import candidates, from_text, hopper_large
from warploom.operators.families.correction import (
    LARGE_FROM,
    SCALES_OF_ELEMENT_US,
    SCALES_OF_LARGE_US,
    SCALES_US,
    ends_us,
)
from warploom.operators.spec.gpu import EMULATED

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results/nvidia-h200"
PLAIN, FUSED = Fusion(), Fusion(activation="silu", gate=True)


def e4m3_problem(m, n, k, scales):
    return replace(Problem.of(m, n, k), product=Product(e4m3, e4m3, bf16), fusion=Fusion(scales=scales))


def of_a_file(name):
    """Configuration and microseconds of this library's kernel, by the product's size."""
    rows = [row for row in evidence.read(RESULTS / name)["rows"] if row["provider"] == "warploom"]
    return {(row["m"], row["n"], row["k"]): (from_text(row["config"]), row["us"]["median"]) for row in rows}


@pytest.fixture(scope="module")
def differences():
    """Size, configuration, and how much longer it takes with scales of rows than of the tensor."""
    tensor, row = of_a_file("sample-fp8-tensor.json"), of_a_file("sample-fp8-row.json")
    both = [(size, *tensor[size], *row[size]) for size in tensor if size in row]
    return [(size, config, us - without) for size, config, without, other, us in both if config == other]


def test_scales_of_rows_cost_a_free_tile_what_was_read(differences):
    free = [(size, config, us) for size, config, us in differences if isinstance(config, FreeTileConfig)]
    elements = [[1.0, config.tile_m * config.tile_n / config.split] for _, config, _ in free]
    each = [us / waves_of(config, *size[:2], EMULATED.sms) for size, config, us in free]
    found = np.linalg.lstsq(np.array(elements), np.array(each), rcond=None)[0]
    assert found == pytest.approx([SCALES_US, SCALES_OF_ELEMENT_US], rel=0.02)


def test_scales_of_rows_cost_a_large_tile_what_was_read(differences):
    """More than the family's own estimate says of them."""
    rounds = []
    for size, config, us in differences:
        if isinstance(config, Config):
            tensor, row = (hopper_large.estimate(config, e4m3_problem(*size, kind), EMULATED)
                           for kind in ("tensor", "row"))  # fmt: skip
            rounds.append((us - (row.time_us - tensor.time_us)) / row.waves)
    assert len(rounds) > 5 and np.median(rounds) == pytest.approx(SCALES_OF_LARGE_US, abs=0.01)


def test_every_tile_in_turn_pays_for_its_end():
    free, large = FreeTileConfig(tile_n=128, persistent=True), Config()
    of = partial(e4m3_problem, n=4096, k=4096)
    for config in (free, large):
        costs = [ends_us(config, of(m, scales="row"), EMULATED) for m in (512, 8192)]
        assert costs[1] > 2 * costs[0] > 0
        assert ends_us(config, of(8192, scales="tensor"), EMULATED) == 0
    assert ends_us(free, replace(Problem.of(512, 4096, 4096), fusion=FUSED), EMULATED) > 0


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
