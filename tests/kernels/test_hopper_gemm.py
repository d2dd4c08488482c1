"""The generated Hopper GEMMs: every form right and clean on any shape, one text for all sizes, built without spills."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.errors import refused
from tests.thinning import SLOW
from warploom.driver import toolchain
from warploom.kernels.hopper.description import Config, Product
from warploom.kernels.hopper.gemm import build
from warploom.runtime.machine import H200
from warploom.types import DType, bf16, e4m3, e5m2, f16, s8, s32, tf32

SMS = 4
NUMPY = {
    bf16: ml_dtypes.bfloat16, f16: np.float16, tf32: np.float32,
    e4m3: ml_dtypes.float8_e4m3fn, e5m2: ml_dtypes.float8_e5m2,
}  # fmt: skip
BOUND = 2.5e-3
"""Relative error of a bf16 result: its rounding, 2^-9 at most for each element."""
TF32_BOUND = BOUND + 2 * 2**-10
"""The tensor core drops 13 bits of each operand."""

SMALL = {
    "cooperative": Config(tile_n=64, stages=3),
    "one CTA": Config(tile_n=64, stages=3, ctas=1),
    "a shared": Config(tile_m=256, tile_n=64, stages=3, multicast="a"),
    "three consumers": Config(tile_m=192, tile_n=64, stages=3, consumers=3),
    "ping_pong": Config("ping_pong", 64, 128, stages=3, epi_stages=1),
    "ping_pong, a shared": Config("ping_pong", 128, 64, stages=3, multicast="a"),
    "staggered": Config("staggered", 256, 64, stages=3, multicast="a"),
    "tail": Config(tile_n=64, stages=3, split_tail=True),
    "staggered tail": Config("staggered", 256, 64, stages=3, split_tail=True),
    "constant weights": Config(tile_m=64, tile_n=72, consumers=1, stages=3, ctas=1, constant_weights=True),
    "turns, constant weights": Config("ping_pong", 64, 64, stages=3, ctas=1, epi_stages=1, constant_weights=True),
}
FORMS = pytest.mark.parametrize("config", SMALL.values(), ids=SMALL)


def draw(dtype: DType, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(NUMPY[dtype])


def stored(operand: np.ndarray, major: str) -> np.ndarray:
    return operand if major == "K" else np.ascontiguousarray(operand.T)


def distance(result: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(result.astype(np.float64) - exact) / np.linalg.norm(exact))


def run(config: Config, m: int, n: int, k: int, product: Product = Product(), **options) -> tuple[np.ndarray, float]:  # noqa: B008
    a, b = draw(product.a, m, k), draw(product.b, n, k, seed=1)
    report = build(product, config).emulate(
        stored(a, product.a_major), stored(b, product.b_major), machine=H200(sms=SMS), **options
    )
    assert report.ok, report.findings
    return report.outputs[0], distance(report.outputs[0], a.astype(np.float64) @ b.astype(np.float64).T)


@pytest.mark.sample(11)
@FORMS
@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 64, 64), (1, 8, 8), (700, 200, 200), pytest.param(1300, 136, 328, marks=SLOW)]
)
def test_it_is_right_and_clean(config: Config, m: int, n: int, k: int):
    assert run(config, m, n, k)[1] < BOUND


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("form", SMALL)
def test_schedules_do_not_change_a_bit(form: str):
    results = [
        run(SMALL[form], 900, 136, 264, schedule=s, seed=seed, check=s == "random")[0]
        for s, seed in (("eager", 0), ("random", 3))
    ]
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("k", [64, 72, 328])
@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("form", ["tail", "staggered tail"])
def test_the_tail_is_split_for_any_number_of_tiles(form: str, tiles: int, k: int):
    config = SMALL[form]
    assert run(config, tiles * config.cluster_tile[0], 64, k)[1] < BOUND


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("majors", ["MN K", "K MN", "MN MN"])
@pytest.mark.parametrize("form", ["cooperative", "a shared", "ping_pong", "staggered", "tail"])
def test_operands_may_be_contiguous_in_either_dimension(form: str, majors: str):
    a_major, b_major = majors.split()
    assert run(SMALL[form], 600, 136, 136, Product(a_major=a_major, b_major=b_major))[1] < BOUND


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("config", [
    Config(tile_n=128, stages=3), Config(tile_m=256, tile_n=64, stages=3, multicast="a"),
    Config("ping_pong", 64, 128, stages=3, epi_stages=1), Config("staggered", 256, 128, stages=2, epi_stages=1),
    Config(tile_n=128, stages=3, split_tail=True),
], ids=Config.name)  # fmt: skip
@pytest.mark.parametrize("schedule, seed", [("eager", 0), ("random", 1)])
def test_ctas_share_the_panels_of_an_operand_that_is_contiguous_in_m_or_n(config: Config, schedule: str, seed: int):
    """Each CTA loads every other panel of 64 columns for both."""
    both = Product(a_major="MN", b_major="MN")
    assert run(config, 600, 264, 136, both, schedule=schedule, seed=seed)[1] < BOUND


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("tile_k", [16, 32])
@pytest.mark.parametrize("k", [1, 16, 48, 144])
@pytest.mark.parametrize("form", ["cooperative", "three consumers", "ping_pong", "staggered", "one CTA"])
def test_stages_of_gradients_of_few_rows_are_as_shallow_as_their_k(form: str, k: int, tile_k: int):
    config = replace(SMALL[form], tile_k=tile_k)
    assert run(config, 600, 136, k, Product(a_major="MN", b_major="MN"))[1] < BOUND


def test_a_result_that_is_evicted_first_is_the_same():
    config = replace(SMALL["one CTA"], evict_first=True)
    assert run(config, 200, 136, 48, Product(a_major="MN", b_major="MN"))[1] < BOUND
    assert ".bulk_group.L2::cache_hint" in build(Product(), config).ptx()


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("form", ["cooperative", "ping_pong", "staggered"])
@pytest.mark.parametrize("types", [(e4m3, e4m3), (e5m2, e4m3), (f16, f16), (tf32, tf32)], ids=str)
def test_every_type_the_tensor_core_has(form: str, types: tuple[DType, DType]):
    error = run(SMALL[form], 300, 136, 400, Product(*types))[1]
    assert error < (TF32_BOUND if types[0] is tf32 else BOUND)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("form", ["tail", "staggered tail"])
def test_sums_of_integers_are_exchanged_by_the_tail_too(form: str):
    draw_bytes = np.random.default_rng(0).integers
    a, b = draw_bytes(-128, 128, (300, 400)).astype(np.int8), draw_bytes(-128, 128, (64, 400)).astype(np.int8)
    report = build(Product(s8, s8, s32), SMALL[form]).emulate(a, b, machine=H200(sms=SMS))
    assert report.ok, report.findings
    np.testing.assert_array_equal(report.outputs[0], a.astype(np.int32) @ b.astype(np.int32).T)


@pytest.mark.full
@given(
    form=st.sampled_from(sorted(SMALL)), m=st.integers(1, 700), n=st.integers(1, 40), k=st.integers(1, 40),
    group=st.integers(1, 5), seed=st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=3)
def test_any_sizes_and_raster(form: str, m: int, n: int, k: int, group: int, seed: int):
    config = SMALL[form]
    config = Config(**{**config.__dict__, "group": group})
    assert run(config, m, 8 * n, 8 * k, schedule="random", seed=seed)[1] < BOUND


LARGE = [
    Config(), Config(tile_m=256, tile_n=128, multicast="a", split_tail=True),
    Config(tile_m=256, tile_n=192, stages=3, epi_stages=3, split_tail=True),
    Config("ping_pong", 128, 192, stages=5, epi_stages=1), Config("ping_pong", 128, 128, stages=6),
    Config("staggered", 256, 128, multicast="a"),
    Config("staggered", 256, 192, stages=3, epi_stages=3, split_tail=True),
    Config(tile_m=192, tile_n=192, consumers=3, epi_stages=1),
]  # fmt: skip


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("config", LARGE, ids=Config.name)
def test_large_tiles_are_built_without_spills_and_remarks(config: Config):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    for product in (Product(), Product(e4m3, e4m3)):
        resources = build(product, config).resources()
        assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


@pytest.mark.parametrize(("change", "got"), [
    ({"kernel_schedule": "diagonal"}, "'diagonal'"), ({"tile_n": 260}, "260"), ({"tile_m": 96}, "96"),
    ({"tile_m": 256, "tile_n": 256}, "256"), ({"stages": 5}, "279552"), ({"stages": 1}, "1"),
    ({"tile_n": 72}, "72"), ({"kernel_schedule": "staggered"}, "64"), ({"ctas": 4}, "4"),
    ({"kernel_schedule": "ping_pong", "consumers": 3, "tile_n": 64}, "3"),
    ({"ctas": 1, "split_tail": True}, "('cooperative', 1, 2)"),
    ({"kernel_schedule": "ping_pong", "tile_n": 64, "split_tail": True}, "('ping_pong', 2, 2)"),
    ({"tile_m": 192, "tile_n": 64, "consumers": 3, "split_tail": True}, "('cooperative', 2, 3)"),
])  # fmt: skip
def test_what_cannot_be_built_is_said(change: dict, got: str):
    with refused("configuration", got=got):
        build(Product(), Config(**change))


@pytest.mark.parametrize("config, product, got", [
    (Config(tile_n=64, tile_k=16), Product(b_major="MN"), "(16, 'K', 'MN')"),
    (Config(tile_n=64, tile_k=24), Product(a_major="MN", b_major="MN"), "24"),
    (Config(tile_n=64, tile_k=16, split_tail=True), Product(a_major="MN", b_major="MN"), "16"),
])  # fmt: skip
def test_only_gradients_have_shallow_stages(config: Config, product: Product, got: str):
    with refused("configuration", got=got):
        build(product, config)


def test_integers_have_no_tile_that_their_wgmma_lacks():
    with refused("configuration", got="72"):
        build(Product(s8, s8, s32), Config(tile_n=72, ctas=1))


def test_eight_bit_operands_are_contiguous_in_k():
    with refused("configuration", got="('K', 'MN')"):
        build(Product(e4m3, e4m3, b_major="MN"), SMALL["cooperative"])
