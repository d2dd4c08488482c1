"""The small-M kernels: right and clean for every split of K and every epilogue, with the same bits in every run."""

from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.errors import refused
from warploom import runtime
from warploom.collective.epilogue.activations import ERRORS
from warploom.driver import toolchain
from warploom.errors import ArgumentError, EmulationError
from warploom.kernels.hopper.description import ACTIVATIONS, Fusion, Product
from warploom.kernels.hopper.names import any_config
from warploom.kernels.hopper.small_m import SmallMConfig, build, choose
from warploom.kernels.hopper.small_m_config import MOST_IN_CLUSTER
from warploom.runtime.machine import H200
from warploom.types import DType, bf16, e4m3, e5m2, f16, f32, s8, tf32

SCHEDULES = (("lazy", 0), ("eager", 0), ("random", 1))
EIGHT_BITS = {e4m3: ml_dtypes.float8_e4m3fn, e5m2: ml_dtypes.float8_e5m2}
NUMPY = {bf16: ml_dtypes.bfloat16, f16: np.float16, f32: np.float32, **EIGHT_BITS}
PLAIN = Product()
SMS = 4
"""Multiprocessors of the emulated machine."""
SMALL = SmallMConfig(tokens=8, k_tiles=1, stages=2, constant_weights=True)


def operands(product: Product, m: int, n: int, k: int, seed: int = 0, whole: bool = True) -> tuple[np.ndarray, ...]:
    """A and W: small whole numbers, whose sums are exact in f32, or normal ones."""
    draw = np.random.default_rng(seed)
    make = (lambda s: draw.integers(-2, 3, s)) if whole else draw.standard_normal
    return make((m, k)).astype(NUMPY[product.a]), make((n, k)).astype(NUMPY[product.b])


def memory(config: SmallMConfig, m: int, n: int) -> list[np.ndarray]:
    """Workspace and counters, where the configuration needs them."""
    if not config.shared_workspace:
        return []
    shape, counters = config.workspace(m, n, SMS)
    return [np.full(shape, np.nan, np.float32), np.zeros(counters, np.uint32)]


def run(config: SmallMConfig, m: int, n: int, k: int, product: Product = PLAIN, fusion: Fusion | None = None,
        given: tuple = (), **options):  # fmt: skip
    """Emulate with the sanitizer; gives back D and the operands as f32."""
    whole = options.pop("whole", True)
    a, w = operands(product, m, n, k, whole=whole)
    kernel = build(product, config, fusion or Fusion())
    extra = [value for value in given if isinstance(value, np.ndarray)]
    numbers = [value for value in given if not isinstance(value, np.ndarray)]
    report = kernel.emulate(a, w, *extra, *memory(config, m, n), *numbers, machine=H200(sms=SMS), **options)
    assert report.ok, report.findings
    return report.outputs[0].astype(np.float32), a.astype(np.float32), w.astype(np.float32)


# -- the product -----------------------------------------------------------------------------------------------------

SHAPES = [(1, 64, 64), (11, 65, 328)]
"""One token, one tile, one k-tile; ragged columns and tokens, more k-tiles than stages."""
CONFIGURATIONS = [
    SMALL,
    replace(SMALL, tokens=16, k_tiles=2),
    replace(SMALL, k_tiles=4, stages=3, constant_weights=False),
    replace(SMALL, rows=128, constant_weights=False, prefetch=3),
    replace(SMALL, rows=128, tokens=24, split_k=2, trigger="off"),
    replace(SMALL, rows=128, split_k=3, split_by="last"),
    replace(SMALL, split_by="stream"),
    replace(SMALL, split_by="stream", rows=128, tokens=16, constant_weights=False),
    *(replace(SMALL, split_k=parts, split_by=by) for parts in (2, 3, 4) for by in ("cluster", "last")),
]
NAMED = pytest.mark.parametrize("config", CONFIGURATIONS, ids=SmallMConfig.name)


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("shape, schedule, seed", [(SHAPES[0], "lazy", 0), *((SHAPES[1], *pair) for pair in SCHEDULES)])
@NAMED
def test_sums_come_out_exact_and_clean_under_every_schedule(config: SmallMConfig, shape, schedule: str, seed: int):
    result, a, w = run(config, *shape, Product(out=f32), schedule=schedule, seed=seed)
    np.testing.assert_array_equal(result, a @ w.T)


@pytest.mark.parametrize(
    "product",
    [Product(f16, f16, f16), Product(e4m3, e4m3, bf16), Product(e5m2, e4m3, f16), Product(e4m3, e5m2, f32)],
    ids=lambda product: f"{product.a}_{product.b}_{product.out}",
)
def test_all_operand_types(product: Product):
    result, a, w = run(replace(SMALL, split_k=2, k_tiles=2), 3, 70, 528, product)
    np.testing.assert_array_equal(result, (a @ w.T).astype(NUMPY[product.out]).astype(np.float32))


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("m, n, k", [(3, 64, 1032), (8, 330, 200), (20, 190, 456), (1, 40, 64)])
def test_streamed_tiles_are_shared_by_as_many_as_have_stages_of_them(m: int, n: int, k: int):
    """One tile for four CTAs; six for four; three, with three tiles of tokens; fewer stages than CTAs."""
    for schedule, seed in SCHEDULES:
        config = replace(SMALL, split_by="stream")
        result, a, w = run(config, m, n, k, Product(out=f32), schedule=schedule, seed=seed)
        np.testing.assert_array_equal(result, a @ w.T)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("tokens, wide", [(40, False), (40, True), (128, False), (256, True)])
def test_many_tokens(tokens: int, wide: bool):
    for config in (
        replace(SMALL, tokens=tokens, vector_store=wide),
        replace(SMALL, tokens=tokens, split_k=2, vector_store=wide),
    ):
        result, a, w = run(config, tokens - 3, 72, 136)
        np.testing.assert_array_equal(result, a @ w.T)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("config", [replace(SMALL, rows=128), replace(SMALL, split_by="stream"),
                                    replace(SMALL, split_k=2)], ids=SmallMConfig.name)  # fmt: skip
def test_wide_stores_are_right_under_every_schedule(config: SmallMConfig):
    for schedule, seed in SCHEDULES:
        wide = replace(config, tokens=24, vector_store=True)
        result, a, w = run(wide, 21, 136, 200, Product(out=f16), schedule=schedule, seed=seed)
        np.testing.assert_array_equal(result, a @ w.T)


@pytest.mark.full
def test_the_parts_are_added_in_one_order_whoever_adds_them():
    results = []
    for by in ("cluster", "last"):
        for schedule, seed in (*SCHEDULES, ("random", 2)):
            config = replace(SMALL, tokens=16, split_k=3, split_by=by)
            how = {"schedule": schedule, "seed": seed, "check": False}
            results.append(run(config, 11, 64, 400, Product(out=f32), whole=False, **how)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("by, split", [("last", 4), ("stream", 1)])
def test_the_counters_are_zero_again_and_a_second_launch_gives_the_same_bits(by: str, split: int):
    config = replace(SMALL, split_k=split, split_by=by, rows=128)
    a, w = operands(Product(), 9, 200, 520, whole=False)
    workspace, counters = memory(config, 9, 200)
    outputs = []
    for _ in range(2):
        report = build(Product(), config).emulate(a, w, workspace, counters, machine=H200(sms=SMS))
        assert report.ok, report.findings
        assert not counters.any()
        outputs.append(report.outputs[0].copy())
    np.testing.assert_array_equal(*outputs)


# -- what is fused ---------------------------------------------------------------------------------------------------


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


REFERENCE = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("split", [1, 2])
def test_scales_bias_activation_gate_and_addend_in_their_order(split: int):
    m, n, k = 5, 70, 144
    draw = np.random.default_rng(3)
    scale_a, scale_b, bias = (draw.random(size, np.float32) + np.float32(0.5) for size in (m, n, n))
    gate, addend = (draw.standard_normal((m, n), np.float32) for _ in range(2))
    fusion = Fusion(alpha=True, scales="row", bias="column", activation="silu", gate=True, addend=True)
    result, a, w = run(replace(SMALL, split_k=split), m, n, k, Product(e4m3, e4m3, f32), fusion,
                       (scale_a, scale_b, bias, gate, addend, 0.25, -1.5))  # fmt: skip
    exact = REFERENCE["silu"](0.25 * scale_a[:, None] * scale_b * (a.astype(np.float64) @ w.T) + bias)
    np.testing.assert_allclose(result, exact * gate - 1.5 * addend, rtol=2e-6, atol=2e-6 * np.abs(exact).max())


def test_one_scale_for_each_operand_and_a_bias_of_the_rows():
    m, n, k = 3, 64, 80
    bias = np.arange(m).astype(ml_dtypes.bfloat16)
    numbers = np.array([0.5], np.float32), np.array([0.25], np.float32)
    result, a, w = run(SMALL, m, n, k, Product(e4m3, e4m3, bf16), Fusion(scales="tensor", bias="row"), (*numbers, bias))
    exact = 0.125 * (a @ w.T) + bias.astype(np.float32)[:, None]
    np.testing.assert_array_equal(result, exact.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_c_is_not_read_where_beta_is_zero():
    m, n, k = 5, 70, 144
    poison = np.full((m, n), np.nan, np.float32)
    result, a, w = run(SMALL, m, n, k, Product(out=f32), Fusion(addend=True), (poison, 0.0))
    np.testing.assert_array_equal(result, a @ w.T)


def test_a_factor_and_the_sum_after_it_are_rounded_once():
    m, n, k = 5, 70, 144
    draw = np.random.default_rng(5)
    bias, addend = draw.standard_normal(n, np.float32), draw.standard_normal((m, n), np.float32)
    alpha, beta = np.float32(0.3), np.float32(-1.3)
    fusion = Fusion(alpha=True, bias="column", addend=True)
    result, a, w = run(SMALL, m, n, k, Product(out=f32), fusion, (bias, addend, float(alpha), float(beta)))
    sums = (a @ w.T).astype(np.float64)  # whole numbers: exact; so are products of two f32 in f64
    biased = (sums * np.float64(alpha) + bias).astype(np.float32)
    np.testing.assert_array_equal(result, (addend * np.float64(beta) + biased).astype(np.float32))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_their_names(name: str):
    m, n, k = 8, 64, 64
    result, a, w = run(SMALL, m, n, k, Product(out=f32), Fusion(activation=name, alpha=True), (0.25,))
    x = 0.25 * (a.astype(np.float64) @ w.T)
    assert x.min() < -3 and x.max() > 3
    relative, absolute = ERRORS[name]
    np.testing.assert_allclose(result, REFERENCE[name](x), rtol=relative + 2**-23, atol=absolute)


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"tokens": 12}, {"tokens": 264}, {"rows": 96}, {"k_tiles": 3}, {"stages": 1}, {"stages": 40}, {"split_k": 0},
     {"split_k": 5}, {"split_by": "hope"}, {"split_by": "stream", "split_k": 2}, {"ctas_per_sm": 5},
     {"trigger": "now"}],
    ids=str,
)  # fmt: skip
def test_configurations_that_cannot_be_are_refused_with_a_sentence(change: dict):
    with refused("configuration"):
        build(Product(), replace(SMALL, **change))


@pytest.mark.parametrize("product", [Product(s8, s8), Product(tf32, tf32, f32), Product(bf16, f16), Product(out=e4m3),
                                     Product(b_major="MN")], ids=str)  # fmt: skip
def test_products_that_cannot_be_are_refused(product: Product):
    with refused("configuration"):
        build(product, SMALL)


@pytest.mark.parametrize("fusion", [Fusion(amax=True), Fusion(scale_out=True), Fusion(activation="tanh"),
                                    Fusion(scales="block"), Fusion(bias="both")], ids=str)  # fmt: skip
def test_fusions_that_cannot_be_are_refused(fusion: Fusion):
    with pytest.raises(ArgumentError):
        build(Product(), SMALL, fusion)


def test_wide_stores_of_what_is_not_wide_are_refused():
    with refused("configuration", got="f32"):
        build(Product(out=f32), replace(SMALL, vector_store=True))
    with pytest.raises(ArgumentError):
        run(replace(SMALL, vector_store=True), 4, 68, 64)


def test_rows_that_tma_cannot_address_and_a_workspace_that_is_too_small_are_refused():
    with pytest.raises(ArgumentError):
        run(SMALL, 4, 64, 68)
    config = replace(SMALL, split_k=2, split_by="last")
    a, w = operands(Product(), 4, 64, 64)
    workspace, counters = memory(config, 4, 64)
    with refused("argument", got="1"):
        build(Product(), config).emulate(a, w, workspace[:1], counters)


# -- the sanitizer sees what the design rests on -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, config",
    [
        ("barrier.cluster.wait.acquire.aligned;", replace(SMALL, split_k=2)),
        ("bar.sync 0;", SMALL),
        ("bar.sync 1, 128;", replace(SMALL, split_k=2, split_by="last")),
        ("wgmma.wait_group.sync.aligned 0;", SMALL),
    ],
)
def test_leaving_out_what_orders_the_roles_is_found(line: str, config: SmallMConfig):
    kernel = build(Product(), config)
    text = "\n".join(row for row in kernel.ptx().splitlines() if row.strip() != line)
    assert text.count("\n") < kernel.ptx().count("\n")
    a, w = operands(Product(), 8, 64, 520)
    try:
        report = kernel.emulate(a, w, *memory(config, 8, 64), ptx=text, schedule="explore")
    except EmulationError:
        return
    assert report.findings


# -- choice and build ------------------------------------------------------------------------------------------------

PROBLEMS = [(m, n, k) for m in (1, 16, 64, 128) for n, k in ((8192, 8192), (28672, 8192), (4096, 14336))]


@pytest.mark.parametrize("dtype", [bf16, e4m3], ids=str)
def test_every_choice_fits_the_machine_and_fills_it(dtype: DType):
    product = Product(dtype, dtype)
    for m, n, k in [*PROBLEMS, (3, 1, 8192), (100, 700, 64), (300, 9000, 512)]:
        config = choose(m, n, k, 132, product, constant_weights=True)
        config.check(product)
        assert config.tokens * -(-m // config.tokens) < m + 8 or m > 128
        in_flight = config.ctas_per_sm * config.stages * config.rows * config.k_tiles * 128
        assert in_flight >= 64 << 10 or m > 128, "too few bytes of weights in flight"
        in_one_wave = config.tiles(m, n) * config.split_k <= 132 * config.ctas_per_sm
        assert in_one_wave or config.split_k in (1, MOST_IN_CLUSTER)


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("m, n, k", [(1, 512, 1024), (20, 200, 264), (40, 100, 2048)])
def test_what_is_chosen_is_right(m: int, n: int, k: int):
    config = choose(m, n, k, H200().sms)
    result, a, w = run(config, m, n, k)
    np.testing.assert_array_equal(result, (a @ w.T).astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("dtype", [bf16, e4m3], ids=str)
def test_chosen_kernels_assemble_without_spills_and_remarks(dtype: DType):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    product = Product(dtype, dtype)
    fusion = Fusion(scales="row", bias="column") if dtype is e4m3 else Fusion()
    for config in {choose(*problem, H200().sms, product, constant_weights=True) for problem in PROBLEMS}:
        kernel = build(product, config, fusion)
        resources = runtime.build(kernel.program()).resources[kernel.name]
        assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


def test_a_product_of_one_tile_assembles_without_remarks():
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    config = choose(4, 8, 16, H200().sms)
    assert (config.split_k, config.vector_store) == (1, False)
    kernel = build(Product(), config)
    assert runtime.build(kernel.program()).resources[kernel.name].notes == ()


@NAMED
def test_the_shared_memory_of_a_configuration_is_what_the_kernel_takes(config: SmallMConfig):
    filled = replace(config, tokens=16).filled()
    taken = build(Product(), filled).program().dynamic_smem
    assert filled.shared_bytes() - 512 <= taken <= filled.shared_bytes()


def test_a_configuration_is_built_once():
    assert build(Product(), SMALL) is build(Product(), replace(SMALL))
    assert SMALL.name() == "small_m:tokens=8,k_tiles=1,stages=2,constant_weights=true"
    for text in ("n8_w64k1s2_start_cw", SMALL.name()):
        assert any_config(text) == SMALL
    other = replace(SMALL, split_k=3, split_by="last", ctas_per_sm=2)
    assert any_config("n8_w64k1s2_S3l_o2_start_cw") == any_config(other.name()) == other


@pytest.mark.parametrize(
    "majors, wrong", [(("K", "MN"), "b contiguous along N"), (("MN", "K"), "a contiguous along M")]
)
def test_operands_that_are_not_contiguous_along_k_are_named(majors, wrong):
    with refused("configuration", got=wrong):
        SmallMConfig().check(Product(a_major=majors[0], b_major=majors[1]))
