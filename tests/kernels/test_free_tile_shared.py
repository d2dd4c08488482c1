"""Free tiles whose cluster CTAs share an operand by multicast: edges and epilogues, and mutants of the hand-over."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.kernels.test_free_tile import ENDS, NUMPY, RELAXED, SCHEDULES, SMS, rounded, run, stored
from warploom.errors import WarploomError
from warploom.kernels.hopper.description import Product
from warploom.kernels.hopper.free_tile import build
from warploom.kernels.hopper.free_tile_config import named
from warploom.runtime.machine import H200
from warploom.types import bf16

MEETING = re.escape("barrier.cluster.arrive.relaxed.aligned;\n    barrier.cluster.wait.acquire.aligned;")
GRID_MUTANTS = {
    "a stage that is free when two of three mates have read it": (
        r"(mbarrier\.init\.shared::cta\.b64 \[smem\+\d+\]), 3;", r"\1, 2;"),
    "a mate that is never told": (r"(setp\.lt\.u32 %p\d+, %r\d+), 3;", r"\1, 2;"),
    "the mate of the column is taken for one of the row": (r"(selp\.b32 %r\d+, (%r\d+)), %r\d+, %p1;", r"\1, \2, %p1;"),
    "slices go to the row above": (r"(shl\.b32 %r\d+, %r\d+), %r\d+(;\s+cvt\.u16\.u32)", r"\1, 0\2"),
}  # fmt: skip
"""Of clusters that share both operands, in addition to those of all."""
MUTANTS = {
    "neighbours that do not meet first": (MEETING, "bar.sync 0;"),
    "neighbours that leave each other": (r"barrier\.cluster\.(arrive\.release|wait\.acquire)\.aligned;(?!\s+setp)", ""),
    "a stage that is free when one of two has read it": (r"(mbarrier\.init\.shared::cta\.b64 \[smem\+\d+\]), 2;",
                                                         r"\1, 1;"),
    "all is told to the first": (r"(mapa\.shared::cluster\.u32 %r\d+, %r\d+), %r\d+;", r"\1, 0;"),
    "a slice for its own CTA alone": (r"(mov\.b16 %rs\d+), 3;", r"\1, 1;"),
    "the same slice twice": (r"(mov\.u32 %r\d+), %cluster_ctarank;(\s+mul\.lo\.u32 %r\d+, %r\d+, (?:16|40))",
                             r"\1, 0;\2"),
    "a stage that is never said to be free": (r"@%p\d+ mbarrier\.arrive\.relaxed\.cluster",
                                              "@%p0 mbarrier.arrive.relaxed.cluster"),
}  # fmt: skip


def fails(name: str, text: str, product: Product = Product()) -> bool:  # noqa: B008 - frozen
    """True if a text is found out, by a finding or a wrong result, under any schedule."""
    draw = np.random.default_rng(0)
    a, w = (draw.integers(-2, 3, (rows, 264)).astype(NUMPY[bf16]) for rows in (136, 136))
    given = stored(a, product.a_major), stored(w, product.b_major)
    right = rounded(a.astype(np.float32) @ w.astype(np.float32).T)
    for schedule, seed in (*SCHEDULES, ("starve", 0), ("random", 2)):
        try:
            report = build(product, named(name)).emulate(
                *given, machine=H200(sms=SMS), ptx=text, schedule=schedule, seed=seed
            )
        except WarploomError:
            return True
        rules = {finding.rule for finding in report.findings} - RELAXED
        if rules or not np.array_equal(report.outputs[0].astype(np.float32), right):
            return True
    return False


@pytest.mark.sample(4, full=8)
@pytest.mark.parametrize("name", ["s64x40_3_n2a_f3", "u64x80_3_p_n2w_f3"])
@pytest.mark.parametrize("right, wrong", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_multicast_is_found(name: str, right: str, wrong: str):
    text = build(Product(), named(name)).ptx()
    mutant = re.sub(right, wrong, text)
    assert mutant != text and fails(name, mutant)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["s64x40_3_n4b_f3", "u64x40_3_p_n4b_f3"])
@pytest.mark.parametrize("right, wrong", GRID_MUTANTS.values(), ids=GRID_MUTANTS)
def test_a_mutant_of_what_mates_share_is_found(name: str, right: str, wrong: str):
    text = build(Product(), named(name)).ptx()
    mutant = re.sub(right, wrong, text)
    assert mutant != text and fails(name, mutant)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("name", ["u64x80_3_p_n2w_f3", "s64x40_3_n4b_f3"])
def test_what_is_no_mutant_is_clean(name: str):
    assert not fails(name, build(Product(), named(name)).ptx())


@pytest.mark.sample(5, all=5)
@pytest.mark.parametrize(
    "name", ["s64x40_3_n2a_f3_z", "u64x40_3_p_n2w_f3_z", "s64x40_3_n8b_f3_z", "u64x40_3_p_n4b_f3_z"]
)
@pytest.mark.parametrize("m, n", [(1, 64), (41, 40), (129, 72), (64, 136)])
def test_multicast_is_right_at_every_edge(name: str, m: int, n: int):
    result, a, w, rules = run(name, m, n, 72)
    np.testing.assert_array_equal(result, rounded(a @ w.T))
    assert rules <= RELAXED


@pytest.mark.sample(2)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", ["u128x56w2_3_n2w_f3_z", "s64x40k2_3_p_n2a_f3_z", "u128x56w2_3_n4b_f3_z"])
def test_epilogues_with_multicast(name: str, end: str):
    """The CTA that repeats a tile reads no gate and no addend in its place, and stores nothing over it."""
    m, n, k, fusion, draw = 137, 136, 72, ENDS[end], np.random.default_rng(4)
    gate, c = (draw.integers(-2, 3, (m, n)).astype(NUMPY[bf16]) for _ in range(2))
    extra = (
        [gate] * fusion.gate + [c] * fusion.addend + [np.float32(0.5)] * fusion.alpha + [np.float32(2)] * fusion.addend
    )
    result, a, w, rules = run(name, m, n, k, Product(), fusion, tuple(extra))
    expected = a @ w.T * (0.5 if fusion.alpha else 1)
    expected = np.maximum(expected, 0) if fusion.activation else expected
    expected = expected * gate.astype(np.float32) if fusion.gate else expected
    np.testing.assert_array_equal(result, rounded(expected + 2 * c.astype(np.float32) if fusion.addend else expected))
    assert rules <= {"uncoalesced-access", "bank-conflict"} | RELAXED


# -- on a GPU --------------------------------------------------------------------------------------------------------

ON_GPU = {
    "s64x152_8_n2a_f3": (1063, 1152, 4304),
    "s192x88w3_6_n2w_f3": (162, 12288, 4096),
    "s64x40_3_n4a_f2": (41, 392, 136),
    "u64x48_3_n3w_f2": (200, 104, 72),
    "s128x136w2_5_p_n2w_f3": (260, 4100 * 8, 512),
    "u128x56w2_3_p_n2a_f3": (1001, 2808, 264),
    "s256x136w2_4_p_n2w_r_f3": (815, 3072, 1024),
    "s128x72w2k2_2_n2w_cw": (333, 2048, 328),
    "u64x24_3_n2w_1_f3": (65, 67, 136),
    "s64x120_9_n4b_f3": (700, 1280, 5120),
    "u128x144w2_6_n4b_f3": (512, 4096, 4096),
    "s128x160w2_5_p_n8b_f3": (4135, 5120, 1280),
    "u64x128_9_n8b_cw": (1001, 2808, 264),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name, shape", ON_GPU.items(), ids=ON_GPU)
def test_on_a_gpu_sums_are_exact_and_nothing_behind_them_is_written(name: str, shape: tuple[int, int, int]):
    torch = pytest.importorskip("torch")
    m, n, k = shape
    draw = torch.Generator("cuda").manual_seed(0)
    a, w = (torch.randint(-2, 3, size, generator=draw, device="cuda").to(torch.bfloat16) for size in ((m, k), (n, k)))
    expected = (a.double() @ w.double().T).to(torch.bfloat16)
    kernel = build(Product(), named(name))
    memory = torch.full((m + 64, n), 7.0, device="cuda", dtype=torch.bfloat16)
    for _ in range(20):  # one after the other, each beginning before the previous one has ended
        kernel(a, w, out=memory[:m])
    torch.cuda.synchronize()
    assert torch.equal(memory[:m], expected)
    assert bool((memory[m:] == 7.0).all())
