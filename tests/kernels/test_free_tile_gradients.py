"""Free tiles of operands that are contiguous in m or n, as a layer's gradients have them: exact and clean."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.errors import refused
from tests.kernels.test_free_tile import CHIP, ENDS, NUMPY, PROMISE, RELAXED, SCHEDULES, SMS, rounded, run
from tests.kernels.test_free_tile_shared import GRID_MUTANTS, MUTANTS, fails
from warploom.kernels.hopper.description import Product
from warploom.kernels.hopper.free_tile import build
from warploom.kernels.hopper.free_tile_choice import fitting, terms
from warploom.kernels.hopper.free_tile_config import FreeTileConfig, named
from warploom.runtime.machine import H200
from warploom.types import bf16, e4m3

INPUT = Product(b_major="MN")
WEIGHT = Product(a_major="MN", b_major="MN")
OTHER = Product(a_major="MN")
CASES = {
    "weights on m": ("s64x24_3_f3", INPUT, (23, 128, 192)),
    "weights on m, last tiles moved on both axes": ("s128x40w2_3_f3", INPUT, (41, 200, 328)),
    "weights on n": ("u64x64_3_f3", INPUT, (100, 136, 200)),
    "two blocks of a consumer, two k-tiles a barrier": ("s128x24k2_2_f2", INPUT, (30, 264, 200)),
    "K in three parts, one of them empty": ("s64x40_3_S3_f1", INPUT, (43, 72, 128)),
    "several tiles of a CTA": ("s64x72_3_p_f3", INPUT, (100, 336, 72)),
    "registers move, several tiles": ("s256x24w2_3_p_r_f3", INPUT, (41, 304, 136)),
    "constant weights": ("s128x72w2k2_2_cw", INPUT, (100, 200, 320)),
    "fewer tokens than a tile": ("s64x40k2_3_f3_z", INPUT, (7, 80, 136)),
    "fewer weights than a tile, which TMA completes": ("s128x32w2_3_f3_z", INPUT, (32, 72, 136)),
    "one row and one k-tile": ("s64x8_2_f3_z", INPUT, (1, 64, 64)),
    "one k": ("s64x64_2_f3", WEIGHT, (64, 64, 1)),
    "two share weights": ("s64x40_3_n2w_f3", INPUT, (128, 80, 192)),
    "three share weights, 24, 24 and 16 rows of k": ("u64x64_3_n3w_f2", INPUT, (200, 104, 72)),
    "two share tokens, an odd number of tiles, moved": ("s64x24k2_3_n2a_f3", INPUT, (50, 184, 264)),
    "both on panels": ("u128x64w2_3_f3", WEIGHT, (136, 136, 200)),
    "both, in two parts of K": ("s64x64_3_S2_f3", WEIGHT, (72, 136, 330)),
    "both, several tiles that share tokens": ("s64x64_3_p_n2a_f3", WEIGHT, (104, 336, 72)),
    "both, four share both": ("u128x64w2_3_n4b_f3", WEIGHT, (304, 336, 200)),
    "tokens on m": ("u64x24_3_p_n2a_f3", OTHER, (304, 200, 200)),
}  # fmt: skip
CASE = pytest.mark.parametrize("name, product, shape", CASES.values(), ids=CASES)


@pytest.mark.sample(5, all=5)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@CASE
def test_sums_are_exact_and_clean_under_every_schedule(
    name: str, product: Product, shape: tuple[int, int, int], schedule: str, seed: int
):
    result, a, w, rules = run(name, *shape, product, schedule=schedule, seed=seed)
    np.testing.assert_array_equal(result, rounded(a @ w.T))
    assert rules <= (PROMISE if name.endswith("_cw") else set()) | (RELAXED if named(name).multicast else set())


@pytest.mark.parametrize("name, product", [
    ("s64x24_3_1_f3", INPUT), ("u64x64_3_1_f3", WEIGHT), ("s64x64_3_p_n2a_1_f3", WEIGHT),
])  # fmt: skip
def test_boxes_start_at_multiples_of_16_bytes_though_the_last_tile_is_moved(name: str, product: Product):
    """A box of an MN-major operand may start nowhere else, so a moved tile ends up to 7 columns outside."""
    draw = np.random.default_rng(0)
    a, w = (draw.integers(-2, 3, shape).astype(NUMPY[bf16]) for shape in ((131, 136), (141, 136)))
    given = []
    for operand, major in ((a, product.a_major), (w, product.b_major)):
        memory = np.zeros((136, 160), NUMPY[bf16])
        memory[:, : len(operand)] = operand.T
        given.append(operand if major == "K" else memory[:, : len(operand)])
    report = build(product, named(name)).emulate(*given, machine=H200(sms=SMS))
    np.testing.assert_array_equal(
        report.outputs[0].astype(np.float32), rounded(a.astype(np.float32) @ w.astype(np.float32).T)
    )
    assert {finding.rule for finding in report.findings} <= {"uncoalesced-access", "bank-conflict"} | RELAXED


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["s128x40w2_3_f3", "s64x40_3_S2_f3", "u64x64_3_p_f3"])
def test_a_gradient_is_added_to_what_was_accumulated_before(name: str):
    m, n, k, draw = 40, 136, 200, np.random.default_rng(4)
    c = draw.integers(-2, 3, (m, n)).astype(NUMPY[bf16])
    before = c.astype(np.float32)
    _, a, w, rules = run(name, m, n, k, INPUT, ENDS["addend"], (c, np.float32(0.5), np.float32(1)), out=c)
    np.testing.assert_array_equal(c.astype(np.float32), rounded(a @ w.T * 0.5 + before))
    assert rules <= {"uncoalesced-access", "bank-conflict"}


# -- mutants -----------------------------------------------------------------------------------------------------------


@pytest.mark.sample(2, all=3)
@pytest.mark.parametrize("right, wrong", MUTANTS.values(), ids=MUTANTS)
@pytest.mark.parametrize("name", ["s64x40_3_n2w_f3", "u64x64_3_p_n2a_f3"])
def test_a_mutant_of_multicast_is_found(name: str, right: str, wrong: str):
    """The slices are of 32 rows of k."""
    text = build(WEIGHT if name[0] == "u" else INPUT, named(name)).ptx()
    mutant = re.sub(right.replace("16|40", "16|32|40"), wrong, text)
    assert mutant != text and fails(name, mutant, WEIGHT if name[0] == "u" else INPUT)


@pytest.mark.sample(1, all=2)
@pytest.mark.parametrize("right, wrong", GRID_MUTANTS.values(), ids=GRID_MUTANTS)
def test_a_mutant_of_what_mates_share_is_found(right: str, wrong: str):
    text = build(WEIGHT, named("u64x64_3_n4b_f3")).ptx()
    mutant = re.sub(right, wrong, text)
    assert mutant != text and fails("u64x64_3_n4b_f3", mutant, WEIGHT)


COMMON = {
    "consumers that do not wait for the bytes": (
        r"mbarrier\.arrive\.expect_tx([^;]*), %r\d+;", r"mbarrier.arrive.expect_tx\1, 0;"),
    "a ring that is free before it is read": (
        r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),
    "panels that exchange row and k": (r"\{%r(\d+), %r(\d+)\}\], \[", r"{%r\2, %r\1}], ["),
}  # fmt: skip


@pytest.mark.parametrize("right, wrong", COMMON.values(), ids=COMMON)
def test_a_mutant_of_the_ring_is_found(right: str, wrong: str):
    text = build(INPUT, named("s64x40_3_f3")).ptx()
    mutant = re.sub(right, wrong, text)
    assert mutant != text and fails("s64x40_3_f3", mutant, INPUT)


# -- what is refused, and what is chosen -------------------------------------------------------------------------------


@pytest.mark.parametrize("product, changed, got", [
    (INPUT, {"tile_n": 96}, "96"), (OTHER, {"swap_ab": True, "tile_n": 72}, "72"),
    (Product(e4m3, e4m3, bf16, b_major="MN"), {"tile_n": 64}, "b contiguous along N"),
])  # fmt: skip
def test_a_tile_without_whole_panels_is_refused(product: Product, changed: dict[str, object], got: str):
    with refused("configuration", got=got):
        build(product, replace(FreeTileConfig(), **changed))


@pytest.mark.parametrize("product", [INPUT, WEIGHT, OTHER], ids=["input", "weight", "other"])
@pytest.mark.parametrize("shape", [(7, 4608, 3584), (256, 6144, 4096), (1152, 4608, 4304)])
def test_everything_that_fits_can_be_built(product: Product, shape: tuple[int, int, int]):
    found = list(fitting(*shape, product, sms=CHIP))
    assert {config.swap_ab for config in found} == {False, True}
    for config in found:
        config.check(product)


def test_rows_of_k_outside_the_tensor_cost_time():
    config = named("s128x64w2_6_f3")
    assert terms(config, 64, 8192, 4097, INPUT, sms=CHIP).tma > terms(config, 64, 8192, 4160, INPUT, sms=CHIP).tma
