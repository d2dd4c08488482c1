"""Grouped products: any sizes of groups, empty ones, rows between them untouched."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import refused
from warploom.driver import toolchain
from warploom.kernels.hopper.description import Config, Fusion, Product
from warploom.kernels.hopper.grouped import build
from warploom.kernels.hopper.grouped_config import CHOICES, CONFIG, MEDIUM_GROUPS, SMALL_GROUPS, tile
from warploom.runtime.machine import H200
from warploom.types import e4m3

SMALL = Config(tile_m=128, tile_n=64, ctas=1, epi_stages=1, stages=3)
ONE_CONSUMER = Config(tile_m=64, tile_n=128, consumers=1, ctas=1, epi_stages=1, stages=3)
BOTH = pytest.mark.parametrize("config", [SMALL, ONE_CONSUMER], ids=Config.name)
MOST_SHARED_BYTES = 232_448
UNTOUCHED = 7.0
BOUND = 2.5e-3


def check(config: Config, begins: list[int], ends: list[int], rows: int, n: int, k: int, **options) -> None:
    """Run, and compare group by group; what is in no group keeps its value."""
    draw = np.random.default_rng(0)
    a = draw.standard_normal((rows, k)).astype(ml_dtypes.bfloat16)
    b = draw.standard_normal((len(begins) * n, k)).astype(ml_dtypes.bfloat16)
    d = np.full((rows, n), UNTOUCHED, ml_dtypes.bfloat16)
    bounds = (np.array(begins, np.int32), np.array(ends, np.int32))
    report = build(config=config).emulate(a, b, *bounds, d, machine=H200(sms=3), **options)
    assert report.ok, report.findings
    exact = np.full((rows, n), UNTOUCHED)
    for group, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        matrix = b[group * n : (group + 1) * n].astype(np.float64)
        exact[begin:end] = a[begin:end].astype(np.float64) @ matrix.T
    inside = np.zeros(rows, bool)
    for begin, end in zip(begins, ends, strict=True):
        inside[begin:end] = True
    found = report.outputs[0].astype(np.float64)
    np.testing.assert_array_equal(found[~inside], UNTOUCHED)
    if inside.any():
        assert np.linalg.norm(found - exact) / np.linalg.norm(exact[inside]) < BOUND


def contiguous(sizes: list[int]) -> tuple[list[int], list[int], int]:
    offsets = [0, *np.cumsum(sizes).tolist()]
    return offsets[:-1], offsets[1:], offsets[-1] + 10


SIZES = [[100, 0, 70, 128, 1], [0, 0, 3], [64] * 40, [500], [0], [1] * 33]


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", ["lazy", "random"])
@pytest.mark.parametrize("config", [SMALL, ONE_CONSUMER], ids=Config.name)
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{len(sizes)} groups")
def test_segments_of_any_length(sizes: list[int], config: Config, schedule: str):
    check(config, *contiguous(sizes), n=72, k=136, schedule=schedule, seed=2)


@BOTH
def test_padded_groups_that_are_partly_filled(config: Config):
    begins = [0, 128, 256, 384]
    check(config, begins, [begin + filled for begin, filled in zip(begins, (5, 128, 0, 77), strict=True)], 512, 64, 64)


@pytest.mark.full
@given(sizes=st.lists(st.integers(0, 200), min_size=1, max_size=9), n=st.integers(1, 20), k=st.integers(1, 20))
@settings(max_examples=2)
def test_any_groups(sizes: list[int], n: int, k: int):
    check(SMALL, *contiguous(sizes), n=8 * n, k=8 * k, schedule="random")


@pytest.mark.sample(4)
@pytest.mark.parametrize("config", CHOICES, ids=Config.name)
@pytest.mark.parametrize("limits", ["offsets", "sizes", "bounds"])
def test_every_tile_that_may_be_chosen_fits_with_every_end(config: Config, limits: str):
    for fusion in (Fusion(), Fusion(scales="row"), Fusion(scales="row", bias="column", activation="gelu")):
        assert build(Product(e4m3, e4m3), config, fusion, limits).program().dynamic_smem <= MOST_SHARED_BYTES


@pytest.mark.sample(1)
@pytest.mark.parametrize("config", [tile(64, 256), tile(256, 96)], ids=Config.name)
def test_tiles_of_one_wide_consumer_and_of_two_with_128_rows_each(config: Config):
    check(config, *contiguous([70, 0, 300, 1]), n=264, k=72)


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("product", [Product(), Product(e4m3, e4m3)], ids=str)
@pytest.mark.parametrize("config", [CONFIG, SMALL_GROUPS], ids=Config.name)
def test_it_is_built_without_spills_and_remarks(config: Config, product: Product):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    resources = build(product, config).resources()
    assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


@pytest.mark.sample(0, all=1)
@pytest.mark.skipif(toolchain.ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize(
    "config", [SMALL_GROUPS, pytest.param(CONFIG, marks=pytest.mark.slow), MEDIUM_GROUPS], ids=Config.name
)
def test_with_scales_it_is_built_without_spills_and_remarks(config: Config):
    for fusion in (Fusion(scales="row"), Fusion(scales="row", bias="column", activation="gelu")):
        resources = build(Product(e4m3, e4m3), config, fusion, "offsets").resources()
        assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


def test_what_cannot_be_built_is_said():
    with refused("configuration", expected="a cooperative form, one CTA, both operands contiguous in k"):
        build(config=Config())
