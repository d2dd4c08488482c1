"""Free tiles whose splits of K meet in a workspace: exact, clean, in one order, and not mixed up when wrong."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.errors import refused
from tests.kernels.test_free_tile import NUMPY, SCHEDULES, SMS, rounded, stored
from warploom.errors import WarploomError
from warploom.kernels.hopper.description import Fusion, Product
from warploom.kernels.hopper.free_tile import build
from warploom.kernels.hopper.free_tile_choice import fitting, waves_of
from warploom.kernels.hopper.free_tile_config import FreeTileConfig, named
from warploom.runtime.machine import H200
from warploom.types import bf16

INPUT = Product(b_major="MN")
WEIGHT = Product(a_major="MN", b_major="MN")
CASES = {
    "two parts": ("u64x64_3_S2_f3", INPUT, (100, 64, 320)),
    "five parts, three of them empty, moved": ("s64x40_3_S5_f1", INPUT, (43, 72, 128)),
    "two blocks of each consumer": ("s256x24w2_3_S3_r_f3", INPUT, (41, 304, 392)),
    "both operands on panels": ("u128x64w2_3_S2_f3", WEIGHT, (136, 72, 200)),
    "K-major, two k-tiles a barrier, odd columns": ("s128x24k2_2_S3_1_f2", Product(), (30, 141, 520)),
}  # fmt: skip


def last(name: str) -> FreeTileConfig:
    return replace(named(name), split_by="last")


def arrays(config: FreeTileConfig, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    shape, counters = config.workspace(m, n, SMS)
    return np.full(shape, np.nan, np.float32), np.zeros(counters, np.uint32)


def run(name: str, product: Product, shape: tuple[int, int, int], text: str = "", **options):
    """D, what it should be, the counters afterwards, and the rules of the findings."""
    (m, n, k), draw, config = shape, np.random.default_rng(0), last(name)
    a, w = (draw.integers(-2, 3, (rows, k)).astype(NUMPY[bf16]) for rows in (m, n))
    memory, kernel = arrays(config, m, n), build(product, config)
    given = (stored(a, product.a_major), stored(w, product.b_major), *memory)
    report = (kernel.with_ptx(text) if text else kernel).emulate(*given, machine=H200(sms=SMS), **options)
    wanted = rounded(a.astype(np.float32) @ w.astype(np.float32).T)
    return report.outputs[0].astype(np.float32), wanted, memory[1], {finding.rule for finding in report.findings}


@pytest.mark.sample(4, all=10)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("name, product, shape", CASES.values(), ids=CASES)
def test_sums_are_exact_and_clean_under_every_schedule(
    name: str, product: Product, shape: tuple[int, int, int], schedule: str, seed: int
):
    result, wanted, counters, rules = run(name, product, shape, schedule=schedule, seed=seed)
    np.testing.assert_array_equal(result, wanted)
    assert not rules - {"uncoalesced-access", "bank-conflict"} and not counters.any()
