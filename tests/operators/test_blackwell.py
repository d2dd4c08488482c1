"""Products on sm_100: `matmul` with the Blackwell kernels, emulated. Not run on hardware."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import warploom
from tests.operators.test_matmul import assert_close, draw, laid_out
from warploom.errors import ArgumentError, UnprovenWarning, WrongResultError
from warploom.kernels.blackwell import gemm, grouped, small_m
from warploom.kernels.blackwell.description import GROUPED, SMALL_GROUPS, Config, SmallMConfig
from warploom.kernels.hopper.description import Fusion, Product
from warploom.operators import Gpu, Problem, choose, explain
from warploom.operators.families import candidates, from_text, to_text
from warploom.operators.families.blackwell import Blackwell
from warploom.runtime import B200 as machine
from warploom.types import e4m3, f32, s8, s32, tf32

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
B200 = Gpu("NVIDIA B200", "sm_100a", 148)
PAIR, SINGLE = Config(tile_n=64, stages=2), Config(tile_m=128, tile_n=32, stages=2)
"""Small tiles, so that a product has several."""

pytestmark = [
    pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning"),
    pytest.mark.filterwarnings("ignore::warploom.errors.UnprovenWarning"),
]


@pytest.mark.parametrize("config", [PAIR, SINGLE], ids=["pair", "one CTA"])
@pytest.mark.parametrize(
    ("types", "layouts", "size"),
    [
        ((BF16, BF16), ("rows", "columns"), (260, 72, 136)),
        ((BF16, BF16), ("columns", "rows"), (136, 72, 40)),
        ((np.float16, np.float16), ("gaps", "anywhere"), (130, 67, 33)),
        ((np.float32, np.float32), ("rows", "columns"), (129, 36, 44)),
        ((E4M3, E4M3), ("rows", "columns"), (130, 40, 144)),
        ((E4M3, E5M2), ("rows", "rows"), (3, 8, 16)),
        ((np.int8, np.int8), ("rows", "columns"), (130, 68, 48)),
    ],
    ids=["bf16", "bf16 the other way round", "f16 anywhere", "tf32", "e4m3", "two of eight bits", "s8"],
)  # fmt: skip
def test_every_type_and_layout_at_ragged_sizes(types, layouts, size, config):
    m, n, k = size
    rng = np.random.default_rng(m)
    a, b = laid_out(draw(rng, (m, k), types[0]), layouts[0]), laid_out(draw(rng, (k, n), types[1]), layouts[1])
    assert_close(warploom.matmul(a, b, config=config), a, b)


@pytest.mark.parametrize("n", [40, 37], ids=["whole rows", "rows that end inside 16 bytes"])
def test_the_end_is_fused(n):
    rng = np.random.default_rng(n)
    a, b = draw(rng, (130, 32), BF16), draw(rng, (32, n), BF16)
    bias, gate, c = draw(rng, (n,), BF16), draw(rng, (130, n), BF16), draw(rng, (130, n), BF16)
    with warploom.config.override(emulator={"check": True}):
        result = warploom.matmul(a, b, alpha=0.5, bias=bias, activation="silu", gate=gate, c=c, beta=2.0, config=SINGLE)
    assert_close(result, a, b, scale=0.5, bias=bias, activation="silu", gate=gate, c=c, beta=2.0)
    row = draw(rng, (130, 1), np.float32)
    assert_close(warploom.matmul(a, b, bias=row, out_dtype=np.float32, config=SINGLE), a, b, bias=row)


def test_scales_of_rows_and_an_eight_bit_result_with_its_maximum():
    rng = np.random.default_rng(4)
    a, b = draw(rng, (130, 64), E4M3), draw(rng, (64, 48), E4M3)
    of_a, of_b = (rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((130, 1), (1, 48)))
    exact = (a.astype(float) * of_a) @ (b.astype(float) * of_b)
    result = warploom.matmul(a, b, scale_a=of_a, scale_b=of_b, config=PAIR)
    np.testing.assert_allclose(result.astype(float), exact, rtol=2**-8, atol=1e-3)
    most = np.zeros(1, np.float32)
    narrow = warploom.matmul(a, b, scale_a=0.25, scale_b=2.0, scale_out=2.0, amax=most, out_dtype=E4M3, config=SINGLE)
    ragged = warploom.matmul(a, b[:, :37], out_dtype=E4M3, config=SINGLE)
    np.testing.assert_array_equal(ragged[:, :32], warploom.matmul(a, b[:, :32], out_dtype=E4M3, config=SINGLE))
    plain = 0.5 * (a.astype(float) @ b.astype(float))
    np.testing.assert_allclose(narrow.astype(float), np.clip(2 * plain, -448, 448), rtol=2**-4, atol=2**-9)
    np.testing.assert_allclose(most, np.abs(plain).max(), rtol=1e-6)


def test_a_batch_and_the_gpu_that_the_emulator_is():
    rng = np.random.default_rng(1)
    a, b = draw(rng, (2, 8, 32), BF16), draw(rng, (2, 32, 16), BF16)
    with warploom.config.override(emulator={"gpu": "B200"}):
        result = warploom.matmul(a, b)
        flat = warploom.linear(a, b[0].T)
    for each in range(2):
        assert_close(result[each], a[each], b[each])
    assert_close(flat.reshape(16, 16), a.reshape(16, 32), b[0])


def test_nobody_ran_them_and_that_is_said_once():
    a = np.ones((8, 16), BF16)
    with pytest.warns(UnprovenWarning) as caught:
        warploom.matmul(a, a.T, config=SINGLE)
        warploom.matmul(a, a.T, config=PAIR)
    assert len(caught) == 1 and UnprovenWarning.code in str(caught[0].message)


@pytest.mark.parametrize("checks", [True, False])
def test_the_first_result_is_checked_unless_told_not_to(checks, monkeypatch):
    build = gemm.build

    def halved(config, product, fusion, whole):
        return build(config, product, Fusion(scale_out=False, activation="relu"), whole=whole)

    config = Config(tile_m=128, tile_n=48, stages=2)  # no other test has it: kernels are kept
    monkeypatch.setattr(gemm, "build", halved)
    a = np.random.default_rng(0).standard_normal((8, 32)).astype(BF16)
    with warploom.config.override(check_unproven=checks):
        if not checks:
            assert (warploom.matmul(a, a.T, config=config) >= 0).all()
            return
        with pytest.raises(WrongResultError) as caught:
            warploom.matmul(a, a.T, config=config)
        assert caught.value.got == "0"
        warploom.matmul(a, a.T, config=config)  # only the first


@pytest.mark.parametrize("size", [(4096, 4096, 4096), (16, 4096, 4096), (100, 8, 64)], ids=str)
def test_a_b200_chooses_among_its_own_kernels_and_says_on_what_it_counts(size):
    problem = Problem.of(*size, "bf16")
    choice, found = choose(problem, B200), explain(problem, B200)
    assert isinstance(choice.config, (Config, SmallMConfig)) and choice == found.choice
    assert Blackwell.unproven in found.text() and from_text(to_text(choice.config)) == choice.config
    assert 0 < choice.estimate.activity <= 1


@pytest.mark.parametrize("config", [PAIR, SINGLE], ids=["pair", "one CTA"])
@pytest.mark.parametrize(("dtype", "k"), [("bf16", 136), ("e4m3", 256)])
def test_what_explain_says_of_a_tile_is_what_the_emulator_counts(config, dtype, k):
    m, n = 2 * config.tile_m, 2 * config.tile_n
    problem = Problem.of(m, n, k, dtype)
    found = explain(problem, B200, config)
    rng = np.random.default_rng(0)
    a, b = (draw(rng, (rows, k), BF16 if dtype == "bf16" else E4M3) for rows in (m, n))
    counters = gemm.build(config, problem.product).emulate(a, b, check=False, machine=machine(sms=4)).counters
    assert len(found.per_tile) == 5 and found.per_tile == found.data()["per_tile"]
    assert {name: 4 * each for name, each in found.per_tile.items()} == {
        name: getattr(counters, name) for name in found.per_tile
    }
    assert f"{found.per_tile['tcgen05']} MMAs" in found.text()


@pytest.mark.parametrize("config", [SmallMConfig(16, 1, 3), SmallMConfig(16, 2, 3), SmallMConfig(32, 4, 3)], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(20, 130, 200), (1, 8, 72), (33, 257, 640)])
def test_what_explain_says_of_few_rows_is_what_the_emulator_counts(config, m, n, k):
    """Of ragged sizes, and where K has fewer parts than the cluster has CTAs."""
    problem = Problem.of(m, n, k, "bf16")
    found = explain(problem, B200, config).per_tile
    a, b = (np.zeros((rows, k), BF16) for rows in (m, n))
    counters = small_m.build(config, problem.product).emulate(a, b, check=False, machine=machine(sms=4)).counters
    tiles = -(-m // config.tokens) * -(-n // 128)
    assert len(found) == 5
    assert {name: tiles * each for name, each in found.items()} == {name: getattr(counters, name) for name in found}


def test_neither_generation_runs_what_is_pinned_for_the_other():
    problem = Problem.of(512, 512, 512, "bf16")
    hopper = Gpu("NVIDIA H200", "sm_90a", 132)
    assert not any(isinstance(config, Config) for config in candidates(problem, hopper))
    for gpu, pinned, arch in ((hopper, "blackwell:tile_n=64", "sm_100a"), (B200, "hopper_large:stages=3", "sm_90a")):
        with pytest.raises(ArgumentError) as caught:
            choose(problem, gpu, pinned)
        assert (caught.value.expected, caught.value.got) == (f"a GPU of {arch}", gpu.arch)


@pytest.mark.parametrize(
    ("wrong", "product"),
    [
        ("tile_m=64", {}), ("tile_n=72", {}), ("tile_n=512", {}), ("buffers=3", {}), ("stages=8", {}),
        ("tile_n=48", {"dtype": "s8"}), ("tile_n=96", {"layout": "tt"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_built_is_refused(wrong, product):
    with pytest.raises(ArgumentError):
        choose(Problem.of(64, 64, 64, **product), B200, f"blackwell:{wrong}")


def test_scales_of_blocks_of_128_have_no_kernel_there():
    with pytest.raises(ArgumentError):
        choose(Problem.of(128, 128, 128, "e4m3", fusion=Fusion(scales="block128")), B200)


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize(
    ("config", "product", "fusion"),
    [
        (Config(stages=7), Product(), Fusion()),
        (Config(128, 256, 4), Product(), Fusion(bias="column", activation="gelu", gate=True, addend=True, amax=True)),
        (Config(128, 128, 7, 4), Product(e4m3, e4m3, e4m3), Fusion(scales="row", scale_out=True)),
        (Config(256, 64, 8, 4), Product(s8, s8, s32), Fusion()),
        (Config(256, 128, 8, 4), Product(tf32, tf32, f32), Fusion(bias="row")),
    ],
    ids=["pair of 7 stages", "all of the end", "eight bits", "s8", "tf32"],
)  # fmt: skip
def test_ptxas_takes_them_without_spills(config, product, fusion):
    resources = gemm.build(config, product, fusion).resources()
    assert resources.arch == "sm_100a" and resources.spill_stores == 0 and resources.stack == 0


@pytest.mark.slow
def test_on_a_gpu_the_call_launches_is_checked_and_kept(on_gpu):
    """A mock driver that only logs calls, and so computes nothing."""
    log = on_gpu(
        """
a, b, out = bf16(300, 128), bf16(192, 128), bf16(300, 192)
a.fill_(1), b.fill_(1), out.fill_(0)
with pytest.warns(errors.UnprovenWarning), pytest.raises(errors.WrongResultError):
    warploom.matmul(a, b.T, out=out)
for _ in range(2):
    assert warploom.matmul(a, b.T, out=out) is out
""",
        FAKE_CUDA_CAPABILITY=100,
    )
    assert len([line for line in log if line.startswith("launch")]) == 3


EXECUTED = """
import torch
import warploom
from tests.driver import executing
from warploom.operators import choose, Gpu, Problem
executing.install()
torch.manual_seed(0)

def product():
    a, b = torch.randn(300, 128).bfloat16(), torch.randn(192, 128).bfloat16()
    exact = a.double() @ b.double().T
    return (warploom.matmul(a, b.T).double() - exact).abs().max()
"""
B200_OF_12 = {"FAKE_CUDA_CAPABILITY": 100, "FAKE_CUDA_SMS": 12}


@pytest.mark.full
@pytest.mark.usefixtures("needs_ptxas")
def test_a_pretended_b200_that_executes_gives_right_products_and_is_told_of_once(pretend):
    log = pretend(EXECUTED + """
with pytest.warns(errors.UnprovenWarning) as said:
    assert product() < 0.2
    assert product() < 0.2
assert len([one for one in said if one.category is errors.UnprovenWarning]) == 1
found = choose(Problem.of(300, 192, 128), Gpu("Fake B200", "sm_100a", 12)).config
assert found.family == "blackwell", found
""", **B200_OF_12)  # fmt: skip
    assert "function blackwell_gemm" in log and len([line for line in log if line.startswith("launch")]) == 2


@pytest.mark.full
@pytest.mark.usefixtures("needs_ptxas")
def test_a_first_result_with_one_wrong_bit_is_an_error_and_no_other_is_looked_at(pretend):
    pretend(EXECUTED + """
warnings.simplefilter("ignore")
with pytest.raises(errors.WrongResultError) as caught:
    product()
assert caught.value.code == "wrong-first-result" and "(299, 191)" in str(caught.value)
assert not product() < 0.2                       # NaN, too: only the first result of a kernel is compared
ones = torch.ones(300, 128).bfloat16()
with settings.config.override(check_unproven=False):
    assert warploom.matmul(ones, ones.T, out_dtype=torch.float32)[-1, -1] != 128
""", FAKE_CUDA_BROKEN="blackwell_gemm", **B200_OF_12)  # fmt: skip


# -- few rows ------------------------------------------------------------------------------------------------------


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize(
    ("types", "layouts", "size", "split"),
    [
        ((BF16, BF16), ("rows", "columns"), (5, 130, 400), 4),
        ((BF16, BF16), ("rows", "rows"), (20, 136, 40), 2),
        ((np.float16, np.float16), ("gaps", "anywhere"), (16, 37, 130), 8),
        ((np.float32, np.float32), ("rows", "columns"), (3, 36, 70), 2),
        ((E4M3, E5M2), ("rows", "columns"), (1, 40, 300), 2),
        ((np.int8, np.int8), ("rows", "columns"), (17, 68, 48), 1),
    ],
    ids=["bf16", "bf16 and a part without k", "f16", "tf32", "two of eight bits", "s8"],
)  # fmt: skip
def test_few_rows_whose_k_a_cluster_divides(types, layouts, size, split):
    m, n, k = size
    rng = np.random.default_rng(m)
    a, b = laid_out(draw(rng, (m, k), types[0]), layouts[0]), laid_out(draw(rng, (k, n), types[1]), layouts[1])
    with warploom.config.override(emulator={"check": split == 2}):
        assert_close(warploom.matmul(a, b, config=SmallMConfig(16, split, 2)), a, b)


def test_few_rows_end_as_many_do():
    rng = np.random.default_rng(9)
    a, b = draw(rng, (5, 96), BF16), draw(rng, (96, 37), BF16)
    bias, gate, c = draw(rng, (37,), BF16), draw(rng, (5, 37), BF16), draw(rng, (5, 37), BF16)
    config = SmallMConfig(16, 2, 2)
    result = warploom.matmul(a, b, alpha=0.5, bias=bias, activation="silu", gate=gate, c=c, beta=2.0, config=config)
    assert_close(result, a, b, scale=0.5, bias=bias, activation="silu", gate=gate, c=c, beta=2.0)
    row = draw(rng, (5, 1), np.float32)
    assert_close(warploom.matmul(a, b, bias=row, out_dtype=np.float32, config=config), a, b, bias=row)
    narrow_a, narrow_b, most = a.astype(E4M3), b.astype(E4M3), np.zeros(1, np.float32)
    of_a, of_b = (rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((5, 1), (1, 37)))
    found = warploom.matmul(narrow_a, narrow_b, scale_a=of_a, scale_b=of_b, amax=most, out_dtype=E4M3, config=config)
    exact = (narrow_a.astype(float) * of_a) @ (narrow_b.astype(float) * of_b)
    np.testing.assert_allclose(found.astype(float), exact, rtol=2**-4, atol=2**-8)
    np.testing.assert_allclose(most, np.abs(exact).max(), rtol=1e-5)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("schedule", ["lazy", "eager", "random", "starve", pytest.param("pct", marks=pytest.mark.slow)])
def test_the_exchange_of_sums_is_clean_under_every_schedule(schedule):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((rows, 264)).astype(BF16) for rows in (18, 130))
    report = small_m.build(SmallMConfig(16, 4, 2)).emulate(a, b, schedule=schedule, seed=1, machine=machine(sms=16))
    exact = a.astype(float) @ b.astype(float).T
    assert report.findings == []
    np.testing.assert_allclose(report.outputs[-1].astype(float), exact, rtol=2**-8, atol=1e-2)


@pytest.mark.parametrize(
    ("wrong", "product"),
    [("tokens=8", {}), ("tokens=144", {}), ("split=3", {}), ("stages=20", {}), ("", {"dtype": "s8"}),
     ("", {"layout": "nn"})],
    ids=["tokens", "many tokens", "split", "stages", "integers", "layout"],
)  # fmt: skip
def test_a_small_m_kernel_that_cannot_be_built_is_refused(wrong, product):
    with pytest.raises(ArgumentError):
        choose(Problem.of(16, 64, 64, **product), B200, f"blackwell_small_m:{wrong}")


@pytest.mark.full
def test_few_rows_do_not_spill():
    everything = Fusion(bias="column", activation="gelu", gate=True, addend=True, amax=True)
    resources = small_m.build(SmallMConfig(128, 8, 4), Product(), everything).resources()
    assert resources.spill_stores == 0 and resources.stack == 0


# -- groups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["lazy", pytest.param("random", marks=pytest.mark.full)])
def test_groups_of_any_length_are_a_loop_of_products(schedule):
    """Empty ones too; rows of no group are zeros."""
    rng = np.random.default_rng(2)
    sizes, n, k = [100, 0, 70, 1], 72, 40
    ends = np.cumsum(sizes).astype(np.int32)
    a, w = draw(rng, (ends[-1] + 9, k), BF16), draw(rng, (4, n, k), BF16)
    bias = draw(rng, (4, n), np.float32)
    with warploom.config.override(emulator={"check": True, "schedule": schedule}):
        result = warploom.grouped_matmul(a, w.swapaxes(1, 2), offsets=ends, bias=bias, activation="relu", config=SINGLE)
    for number, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        rows = slice(end - size, end)
        assert_close(result[rows], a[rows], w[number].T, bias=bias[number], activation="relu")
    assert not result[ends[-1] :].any()


def test_padded_groups_that_are_partly_filled_with_scales_on_the_gpu_that_the_emulator_is():
    rng = np.random.default_rng(3)
    a, w, sizes = draw(rng, (2, 16, 64), E4M3), draw(rng, (2, 32, 64), E4M3), np.array([5, 16], np.int32)
    of_a, of_b = rng.uniform(0.5, 2, (2, 16, 1)), rng.uniform(0.5, 2, (2, 1, 32))
    with warploom.config.override(emulator={"gpu": "B200"}):
        result = warploom.grouped_matmul(
            a, w.swapaxes(1, 2), sizes=sizes, scale_a=of_a.astype(np.float32), scale_b=of_b.astype(np.float32)
        )
    for group, size in enumerate(sizes):
        exact = a[group, :size].astype(float) * of_a[group, :size] @ w[group].astype(float).T * of_b[group]
        np.testing.assert_allclose(result[group, :size].astype(float), exact, rtol=2**-7, atol=1e-3)
        assert not result[group, size:].any()


def test_the_first_result_of_a_grouped_kernel_is_checked(monkeypatch):
    build = grouped.build
    monkeypatch.setattr(grouped, "build", lambda product, config, fusion, what: build(product, config, Fusion(), what))
    a, w = np.full((8, 16), -1, BF16), np.ones((1, 24, 16), BF16)
    with pytest.raises(WrongResultError) as caught:
        warploom.grouped_matmul(a, w.swapaxes(1, 2), offsets=np.array([8], np.int32), activation="relu",
                                config=Config(128, 96, 2))  # fmt: skip
    assert caught.value.got == "-16"


@pytest.mark.parametrize(
    "wrong", [{"config": PAIR}, {"fusion": Fusion(gate=True)}, {"limits": "names"}, {"product": Product(b_major="MN")}],
    ids=["pair", "gate", "limits", "layout"],
)  # fmt: skip
def test_a_grouped_kernel_that_cannot_be_built_is_refused(wrong):
    with pytest.raises(ArgumentError):
        grouped.build(**wrong)


@pytest.mark.parametrize(("rows", "columns", "config"), [(4096, 4096, GROUPED), (64, 512, SMALL_GROUPS)])
def test_the_tile_of_groups_goes_by_the_tiles_that_they_have_and_does_not_spill(rows, columns, config):
    assert choose(replace(Problem.of(rows, columns, 4096), groups=8), B200).config == config
    resources = grouped.build(config=config, fusion=Fusion(scales="row", bias="column", activation="silu")).resources()
    assert resources.spill_stores == 0 and resources.stack == 0
