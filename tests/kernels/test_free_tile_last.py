"""Free tiles whose splits of K meet in a workspace: exact, clean, in one order, and not mixed up when wrong."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.errors import refused
from tests.kernels.test_free_tile import CHIP, NUMPY, RELAXED, SCHEDULES, SMS, rounded, stored
from warploom.errors import WarploomError
from warploom.kernels.hopper.description import Product
from warploom.kernels.hopper.free_tile import build
from warploom.kernels.hopper.free_tile_choice import fitting, waves_of
from warploom.kernels.hopper.free_tile_config import FreeTileConfig, named
from warploom.runtime.machine import H200
from warploom.types import bf16

INPUT = Product(b_major="MN")
WEIGHT = Product(a_major="MN", b_major="MN")
ALLOWED = {"uncoalesced-access", "bank-conflict", *RELAXED}
CASES = {
    "two parts": ("u64x64_3_S2_f3", INPUT, (100, 64, 320)),
    "five parts, three of them empty, moved": ("s64x40_3_S5_f1", INPUT, (43, 72, 128)),
    "two blocks of each consumer": ("s256x24w2_3_S3_r_f3", INPUT, (41, 304, 392)),
    "both operands on panels": ("u128x64w2_3_S2_f3", WEIGHT, (136, 72, 200)),
    "K-major, two k-tiles a barrier, odd columns": ("s128x24k2_2_S3_1_f2", Product(), (30, 141, 520)),
    "pairs that share weights, one CTA too many": ("s64x24_3_S2_n2w_f3", Product(), (65, 64, 136)),
    "pairs that share tokens, two parts empty": ("s64x40_3_S4_n2a_f1", INPUT, (43, 72, 128)),
    "two blocks of each consumer, on panels, in pairs": ("u256x64w2_2_S2_n2a_r_f3", WEIGHT, (264, 72, 200)),
    "four that share both, one row": ("s64x40_3_S3_n4b_f1", Product(), (1, 136, 392)),
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
    report = kernel.emulate(*given, machine=H200(sms=SMS), **({"ptx": text} if text else {}), **options)
    wanted = rounded(a.astype(np.float32) @ w.astype(np.float32).T)
    return report.outputs[0].astype(np.float32), wanted, memory[1], {finding.rule for finding in report.findings}


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("name, product, shape", CASES.values(), ids=CASES)
def test_sums_are_exact_and_clean_under_every_schedule(
    name: str, product: Product, shape: tuple[int, int, int], schedule: str, seed: int
):
    result, wanted, counters, rules = run(name, product, shape, schedule=schedule, seed=seed)
    np.testing.assert_array_equal(result, wanted)
    assert not rules - ALLOWED and not counters.any()


MUTANTS = {
    "a count that orders nothing": (r"atom\.acq_rel", "atom.relaxed"),
    "a count before all threads have written": (
        r"bar\.sync 1, 128;((?:\s+\.loc[^\n]*)*\s+setp\.eq\.u32 %p\d+, %r\d+, 0;)", r"\1"),
    "the counter of one split too few": (r"(atom\.acq_rel\.gpu(?:\.global)?\.inc\.u32 [^,]*, [^,]*), 1;", r"\1, 0;"),
}  # fmt: skip


OF_CLUSTERS = {
    "an empty part that releases a stage": (
        "pairs that share tokens, two parts empty",
        r"setp\.ne\.u32 (%p\d+, %r\d+, 0;(?:\s+\.loc[^\n]*)*\s+wgmma\.wait_group\.sync\.aligned 0)",
        r"setp.ge.u32 \1"),
    "CTAs of a cluster that add up their sums": (
        "pairs that share weights, one CTA too many",
        r"(mov\.u32 (%r\d+), %ctaid\.x;\s+)and\.b32 (%r\d+), \2, 1;", r"\1mov.b32 \3, 0;"),
    "a tile and a split for each CTA": (
        "pairs that share weights, one CTA too many",
        r"(mov\.u32 (%r\d+), %ctaid\.x;\s+)shr\.u32 (%r\d+), \2, 1;", r"\1mov.b32 \3, \2;"),
}  # fmt: skip
CASE_MUTANTS = {name: ("two parts", *mutant) for name, mutant in MUTANTS.items()} | OF_CLUSTERS


@pytest.mark.parametrize("case, right, wrong", CASE_MUTANTS.values(), ids=CASE_MUTANTS)
def test_a_mutant_of_the_count_is_found(case: str, right: str, wrong: str):
    name, product, shape = CASES[case]
    text = build(product, last(name)).ptx()
    mutant = re.sub(right, wrong, text, count=1)
    assert mutant != text
    for schedule, seed in SCHEDULES:
        try:
            result, wanted, counters, rules = run(name, product, shape, mutant, schedule=schedule, seed=seed)
        except WarploomError:
            return
        if counters.any() or not np.array_equal(result, wanted) or rules - ALLOWED:
            return
    pytest.fail("nothing was found")


def test_a_workspace_that_is_too_small_is_refused():
    config = last("s64x40_3_S2_f3")
    workspace, counters = arrays(config, 43, 72)
    a, w = np.zeros((43, 64), NUMPY[bf16]), np.zeros((64, 72), NUMPY[bf16])
    for memory, what in (((workspace[:-1], counters), len(workspace)), ((workspace, counters[:1]), len(counters))):
        with refused("argument", expected=f"at least {what} for M = 43, N = 72 (FreeTileConfig.workspace)"):
            build(INPUT, config).emulate(a, w, *memory, machine=H200(sms=SMS))


@pytest.mark.parametrize("changed", [{"cluster": 2}, {"persistent": True}])
def test_splits_through_a_workspace_are_of_ctas_that_share_or_of_their_own(changed: dict[str, object]):
    with refused("configuration"):
        build(INPUT, replace(FreeTileConfig(tile_n=64, split_k=2, split_by="last"), **changed))


def test_long_products_with_few_tiles_are_split_until_the_gpu_is_full():
    found = [config for config in fitting(208, 2048, 151936, INPUT, sms=CHIP) if config.shared_workspace]
    assert found and all(waves_of(config, 208, 2048, CHIP) == 1 for config in found)
    assert {config.split_k for config in found} >= {4, 6, 8} and {config.blocks for config in found} >= {1, 2}
    for config in found:
        config.check(INPUT)
    assert not any(config.shared_workspace for config in fitting(208, 2048, 2048, INPUT, sms=CHIP))


# -- on a GPU --------------------------------------------------------------------------------------------------------

ON_GPU = {
    "s128x160w2_6_S8_n2w_f3": (Product(), (320, 1024, 50176)),
    "s64x208_6_S4_n2a_f3": (INPUT, (208, 2048, 8192)),
    "s128x88_5_S5_n4b_f3": (Product(), (700, 640, 9000 * 8)),
    "u256x64w2_3_S3_n2a_r_f3": (WEIGHT, (1000, 640, 4136)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name, case", ON_GPU.items(), ids=ON_GPU)
def test_on_a_gpu_sums_are_exact_again_and_again(name: str, case: tuple[Product, tuple[int, int, int]]):
    torch = pytest.importorskip("torch")
    (product, (m, n, k)), config = case, last(name)
    draw = torch.Generator("cuda").manual_seed(0)
    a, w = (torch.randint(-1, 2, size, generator=draw, device="cuda").to(torch.bfloat16) for size in ((m, k), (n, k)))
    expected = (a.double() @ w.double().T).to(torch.bfloat16)
    given = [each if major == "K" else each.T.contiguous()
             for each, major in ((a, product.a_major), (w, product.b_major))]  # fmt: skip
    shape, counters = config.workspace(m, n, torch.cuda.get_device_properties(0).multi_processor_count)
    workspace = torch.full(shape, float("nan"), device="cuda")
    counts = torch.zeros(counters, dtype=torch.int32, device="cuda").view(torch.uint32)
    kernel, out = build(product, config), torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    for _ in range(20):  # one after the other, each beginning before the previous one has ended
        kernel(*given, workspace, counts, out=out)
    torch.cuda.synchronize()
    assert torch.equal(out, expected) and not counts.view(torch.int32).any()
