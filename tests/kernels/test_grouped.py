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
from warploom.types import bf16, e4m3, f32

SMALL = Config(tile_m=128, tile_n=64, ctas=1, epi_stages=1, stages=3)
ONE_CONSUMER = Config(tile_m=64, tile_n=128, consumers=1, ctas=1, epi_stages=1, stages=3)
IN_TURNS = Config("ping_pong", tile_m=64, tile_n=64, ctas=1, epi_stages=1, stages=3)
EACH = pytest.mark.parametrize("config", [SMALL, ONE_CONSUMER, IN_TURNS], ids=Config.name)
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
@EACH
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{len(sizes)} groups")
def test_segments_of_any_length(sizes: list[int], config: Config, schedule: str):
    check(config, *contiguous(sizes), n=72, k=136, schedule=schedule, seed=2)


@EACH
def test_padded_groups_that_are_partly_filled(config: Config):
    begins = [0, 128, 256, 384]
    check(config, begins, [begin + filled for begin, filled in zip(begins, (5, 128, 0, 77), strict=True)], 512, 64, 64)


@pytest.mark.sample(2, all=4)
@pytest.mark.parametrize("schedule", ["lazy", "eager", "random", "starve"])
@EACH
def test_fewer_rows_than_a_tile_and_a_last_tile_that_begins_in_another_group(config: Config, schedule: str):
    """The box is clipped to the rows of A; with more rows, the last tile is moved back over rows of other groups."""
    for sizes in ([3, 0, 7, 1], [40, 50, 39], [130, 1]):
        begins, ends, _ = contiguous(sizes)
        check(config, begins, ends, rows=ends[-1], n=72, k=200, schedule=schedule, seed=1)


@pytest.mark.sample(2, all=4)
@pytest.mark.parametrize("schedule", ["lazy", "eager", "random", "starve"])
@pytest.mark.parametrize("config", [SMALL, ONE_CONSUMER, IN_TURNS, tile(256, 64)], ids=Config.name)
def test_scales_and_bias_of_every_tile_are_its_own(config: Config, schedule: str):
    """A CTA has several tiles, so that a consumer loads the vectors of one while another may read those before."""
    sizes, n, k, groups = [70, 0, 3, 129, 1], 136, 160, 5
    begins, ends, _ = contiguous(sizes)
    draw, rows = np.random.default_rng(0), ends[-1]
    a, b = (draw.integers(-4, 5, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((rows, k), (groups * n, k)))
    scale_a, scale_b = (2.0 ** draw.integers(-3, 4, count).astype(np.float32) for count in (rows, groups * n))
    bias = draw.integers(-9, 10, groups * n).astype(ml_dtypes.bfloat16)
    fusion = Fusion(scales="row", bias="column", bias_dtype=bf16)
    kernel = build(Product(e4m3, e4m3, f32), config, fusion, "offsets")
    out = np.full((rows, n), UNTOUCHED, np.float32)
    report = kernel.emulate(
        a, b, np.array(ends, np.int32), scale_a, scale_b, bias, out, machine=H200(sms=2), schedule=schedule, seed=3
    )
    assert report.ok, report.findings
    for g, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        mine = slice(g * n, (g + 1) * n)
        exact = a[begin:end].astype(np.float32) @ b[mine].astype(np.float32).T
        exact = exact * scale_a[begin:end, None] * scale_b[mine] + bias[mine].astype(np.float32)
        np.testing.assert_array_equal(report.outputs[0][begin:end], exact)


@pytest.mark.sample(3)
@pytest.mark.parametrize("n", [4, 12, 68])
@EACH
def test_columns_that_end_within_an_atom_stay_in_their_row(config: Config, n: int):
    """f32 rows of 16 bytes' worth are 4 columns, an atom of the accumulators is 8."""
    a, b = (np.ones((rows, 32), ml_dtypes.bfloat16) for rows in (8, 2 * n))
    room = np.full((8, n), UNTOUCHED, np.float32)
    kernel = build(Product(out=f32), config, limits="offsets")
    report = kernel.emulate(a, b, np.array([3, 7], np.int32), room, machine=H200(sms=2))
    assert report.ok, report.findings
    assert np.all(report.outputs[0][:7] == 32) and np.all(report.outputs[0][7:] == UNTOUCHED)


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
@pytest.mark.parametrize("config", [CONFIG, SMALL_GROUPS, tile(64, 256, "ping_pong")], ids=Config.name)
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
    with refused("configuration", expected="a cooperative or ping-pong form, one CTA, both operands contiguous in k"):
        build(config=Config())
