"""Free tiles: exact and clean on either axis, ragged or small, split or persistent; their choice; refusals."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.errors import refused
from warploom.driver import toolchain
from warploom.errors import ArgumentError
from warploom.kernels.hopper.description import Fusion, Product
from warploom.kernels.hopper.free_tile import build
from warploom.kernels.hopper.free_tile_choice import banded, fitting, ranked, terms, waves_of
from warploom.kernels.hopper.free_tile_config import FreeTileConfig, FreeTileGrid, named
from warploom.kernels.hopper.names import any_config
from warploom.operators.families import to_text
from warploom.runtime.machine import H200
from warploom.types import bf16, e4m3, e5m2, f16, f32

SCHEDULES = (("lazy", 0), ("eager", 0), ("random", 1))
NUMPY = {bf16: ml_dtypes.bfloat16, f16: np.float16, e4m3: ml_dtypes.float8_e4m3fn, e5m2: ml_dtypes.float8_e5m2}
SMS = 4
CHIP = H200().sms
PROMISE = {"before-grid-wait"}
"""What the sanitizer says of constant weights, which it cannot know to be constant."""


def run(name: str, m: int, n: int, k: int, product: Product = Product(), fusion: Fusion = Fusion(),  # noqa: B008
        extra: tuple[np.ndarray, ...] = (), **options):  # fmt: skip
    """D, A and W as f32, of small whole numbers, and the rules of what the sanitizer found."""
    draw = np.random.default_rng(0)
    a = draw.integers(-2, 3, (m, k)).astype(NUMPY[product.a])
    w = draw.integers(-2, 3, (n, k)).astype(NUMPY[product.b])
    given = (stored(a, product.a_major), stored(w, product.b_major), *extra)
    report = build(product, named(name), fusion).emulate(*given, machine=H200(sms=SMS), **options)
    rules = {finding.rule for finding in report.findings}
    return report.outputs[0].astype(np.float32), a.astype(np.float32), w.astype(np.float32), rules


def stored(operand: np.ndarray, major: str) -> np.ndarray:
    return operand if major == "K" else np.ascontiguousarray(operand.T)


def rounded(values: np.ndarray, kind=bf16) -> np.ndarray:
    return values.astype(NUMPY[kind]).astype(np.float32)


# -- the product -----------------------------------------------------------------------------------------------------

CASES = {
    "tokens on m": ("u64x40_3_f3", (64, 80, 192)),
    "weights on m": ("s64x24_3_f3", (24, 128, 192)),
    "two consumers, last tiles moved on both axes": ("u128x56w2_3_f3", (200, 104, 264)),
    "two blocks of a consumer": ("u128x40_3_f2", (150, 40, 72)),
    "three consumers, swapped": ("s192x40w3_3_f1", (41, 392, 64)),
    "four blocks of a consumer, two k-tiles a barrier": ("s256x16k2_2_f2", (19, 264, 200)),
    "K in two parts": ("u64x64_3_S2_f3", (100, 64, 320)),
    "K in three parts, one of them empty": ("s64x40_3_S3_f1", (43, 72, 128)),
    "several tiles of a CTA": ("u128x56w2_3_p_f3", (200, 400, 136)),
    "several tiles, swapped": ("s64x72_3_p_f3", (100, 336, 72)),
    "neighbours, of which one has nothing to do": ("u128x40w2_3_n2_f3", (300, 40, 128)),
    "constant weights": ("s128x72w2k2_2_cw", (100, 200, 320)),
    "constant weights, several tiles, fewer stages than the ring": ("u64x40_4_p_cw", (70, 440, 64)),
    "weights read once": ("u64x24k2_3_e_f3_z", (9, 72, 200)),
    "fewer tokens than a tile": ("u64x40k2_3_f3_z", (7, 80, 136)),
    "fewer weights than a tile": ("s128x32w2_3_f3_z", (32, 72, 136)),
    "one row, one column of tiles, one k-tile": ("u64x8_2_f3_z", (1, 8, 64)),
    "registers move to two consumers, two blocks each": ("s256x24w2_3_r_f3", (41, 304, 136)),
    "registers move, several tiles": ("u128x40w2_3_p_r_f3", (150, 400, 72)),
    "registers move to three consumers, K in two parts": ("u192x16w3_3_S2_r_f1", (200, 40, 192)),
    "registers move, one row and one k-tile": ("s192x8w3_2_p_r_f3_z", (1, 200, 64)),
    "one row and the least k": ("s64x8_2_f3_z", (1, 64, 8)),
    "two share weights": ("u64x40_3_n2w_f3", (128, 80, 192)),
    "two share weights, an odd number of tiles": ("u128x40w2_3_n2w_e_f3", (300, 88, 128)),
    "two share tokens in slices of 24 and 16 rows": ("s64x40_3_n2a_f3", (80, 128, 192)),
    "two share tokens, an odd number of tiles, moved": ("s64x24k2_3_n2a_f3", (50, 184, 264)),
    "three share weights, two of them none": ("u64x48_3_n3w_f2", (200, 104, 72)),
    "four share tokens": ("s64x40_3_n4a_f2", (41, 392, 136)),
    "two share tokens of one row, one k-tile": ("s64x16_2_n2a_f3_z", (1, 40, 64)),
    "two share weights of one column of tiles": ("u64x16_3_n2w_f3_z", (70, 8, 64)),
    "two share weights, several tiles, odd": ("u128x56w2_3_p_n2w_f3", (300, 280, 136)),
    "two share tokens, several tiles": ("s64x72_3_p_n2a_f3", (100, 336, 72)),
    "two share constant weights": ("s128x72w2k2_2_n2w_cw", (100, 200, 320)),
    "two share tokens, constant weights, several tiles": ("u64x40_4_p_n2a_cw", (70, 440, 64)),
    "two share tokens, registers move": ("s256x24w2_3_n2a_r_f3", (41, 304, 136)),
}
RELAXED = {"remote-arrival-scope"}
"""A remark on neighbours that share something: that a stage may be filled again says nothing of other memory."""
CASE = pytest.mark.parametrize("name, shape", CASES.values(), ids=CASES)


@pytest.mark.sample(4, all=4)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@CASE
def test_sums_are_exact_and_clean_under_every_schedule(
    name: str, shape: tuple[int, int, int], schedule: str, seed: int
):
    result, a, w, rules = run(name, *shape, schedule=schedule, seed=seed)
    np.testing.assert_array_equal(result, rounded(a @ w.T))
    assert rules <= (PROMISE if name.endswith("_cw") else set()) | (RELAXED if named(name).multicast else set())


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["u64x24_3_1_f3_z", "s64x24_3_S2_1_f3_z", "s128x40w2_3_p_1_f3_z", "s64x24_3_1_f3_z",
                                  "u64x24_3_n2w_1_f3_z", "s64x24_3_p_n2a_1_f3_z"])  # fmt: skip
@pytest.mark.parametrize("n", [1, 67, 141])
def test_an_odd_number_of_columns_is_stored_by_elements(name: str, n: int):
    result, a, w, rules = run(name, 30, n, 136)
    np.testing.assert_array_equal(result, rounded(a @ w.T))
    assert rules <= {"uncoalesced-access", "bank-conflict"} | (RELAXED if named(name).multicast else set())


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("kinds", [(f16, f16, f16), (e4m3, e4m3, bf16), (e5m2, e4m3, f16)], ids=str)
def test_operand_types(kinds):
    product = Product(*kinds)
    result, a, w, rules = run("s64x40k2_3_S2_f3_z", 37, 136, 528, product)
    np.testing.assert_array_equal(result, rounded(a @ w.T, product.out))
    assert not rules


@pytest.mark.sample(2, full=5)
@pytest.mark.parametrize(
    "name",
    ["u128x56w2_3_f3_z", "s64x40k2_3_S2_f3_z", "s128x40w2_3_p_f3_z", "u128x24_3_f3_z", "s192x24w3_2_p_r_f3_z"],
)
@pytest.mark.parametrize("scales", [None, "tensor", "row"])
def test_scales_bias_and_activation(name: str, scales: str | None):
    m, n, k, draw = 37, 136, 272, np.random.default_rng(1)
    extra: list[np.ndarray] = []
    factor = np.float32(1)
    if scales is not None:
        sizes = (m, n) if scales == "row" else (1, 1)
        extra += [(2.0 ** draw.integers(-2, 3, size)).astype(np.float32) for size in sizes]
        factor = extra[0][:, None] * extra[1][None, :]
    bias = draw.integers(-3, 4, n).astype(NUMPY[bf16])
    fusion = Fusion(scales=scales, bias="column", activation="relu")
    result, a, w, rules = run(name, m, n, k, Product(e4m3, e4m3, bf16), fusion, (*extra, bias))
    np.testing.assert_array_equal(result, rounded(np.maximum((a @ w.T) * factor + bias.astype(np.float32), 0)))
    assert not rules


ENDS = {"gate": Fusion(activation="relu", gate=True), "addend": Fusion(addend=True, alpha=True),
        "both": Fusion(gate=True, addend=True)}  # fmt: skip
ODD = ("u64x24_3_1_f3_z", "s64x24_3_S2_1_f3_z")


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "name",
    [
        "u128x56w2_3_f3_z",
        "s64x40k2_3_S2_f3_z",
        "s128x40w2_3_p_f3_z",
        "u128x24_3_f3_z",
        *ODD,
    ],
)
def test_a_gate_and_an_addend_are_read_where_they_are_stored(name: str, end: str, schedule: str, seed: int):
    m, n, k, fusion, draw = 37, 67 if "_1_" in name else 136, 200, ENDS[end], np.random.default_rng(4)
    gate, c = (draw.integers(-2, 3, (m, n)).astype(NUMPY[bf16]) for _ in range(2))
    extra = (
        [gate] * fusion.gate + [c] * fusion.addend + [np.float32(0.5)] * fusion.alpha + [np.float32(2)] * fusion.addend
    )
    result, a, w, rules = run(name, m, n, k, Product(), fusion, tuple(extra), schedule=schedule, seed=seed)
    expected = a @ w.T * (0.5 if fusion.alpha else 1)
    expected = np.maximum(expected, 0) if fusion.activation else expected
    expected = expected * gate.astype(np.float32) if fusion.gate else expected
    np.testing.assert_array_equal(result, rounded(expected + 2 * c.astype(np.float32) if fusion.addend else expected))
    assert rules <= {"uncoalesced-access", "bank-conflict"}


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("name", ["u128x56w2_3_f3", "s64x40k2_3_S2_f3", "s128x40w2_3_p_f3"])
def test_the_result_may_take_the_addend_s_place_though_tiles_overlap(name: str, schedule: str, seed: int):
    m, n, k, draw = 150, 200, 200, np.random.default_rng(5)
    c = draw.integers(-2, 3, (m, n)).astype(NUMPY[bf16])
    before = c.astype(np.float32)
    extra = (c, np.float32(1))
    _, a, w, rules = run(name, m, n, k, Product(), Fusion(addend=True), extra, out=c, schedule=schedule, seed=seed)
    np.testing.assert_array_equal(c.astype(np.float32), rounded(a @ w.T + before))
    assert rules <= {"uncoalesced-access"}


def test_an_addend_times_zero_is_not_read():
    c = np.full((37, 136), np.nan, NUMPY[bf16])
    result, a, w, _ = run("u128x24_3_f3_z", 37, 136, 72, Product(), Fusion(addend=True), (c, np.float32(0)))
    np.testing.assert_array_equal(result, rounded(a @ w.T))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("name, shape", [("u64x40k2_3_f3", (7, 80, 136)), ("s128x32w2_3_S2_f3", (9, 72, 256))])
def test_rows_that_nobody_loads_reach_nothing_that_is_stored(name: str, shape: tuple[int, int, int]):
    for schedule, seed in SCHEDULES:
        result, a, w, rules = run(name, *shape, schedule=schedule, seed=seed)
        np.testing.assert_array_equal(result, rounded(a @ w.T))
        assert not rules


@pytest.mark.full
def test_parts_of_k_are_added_in_one_order_whoever_is_first():
    draw, results = np.random.default_rng(2), []
    a, w = (draw.standard_normal(shape).astype(NUMPY[bf16]) for shape in ((40, 648), (64, 648)))
    for schedule, seed in (*SCHEDULES, ("random", 2)):
        kernel = build(Product(), named("s64x40_3_S3_f3"))
        report = kernel.emulate(a, w, machine=H200(sms=SMS), schedule=schedule, seed=seed, check=False)
        results.append(report.outputs[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result.view(np.uint16), results[0].view(np.uint16))


# -- bands -----------------------------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("band", [1, 2, 3, 50])
@pytest.mark.parametrize("name", ["u64x40_3_p_f3_z", "s64x40_3_p_f3_z", "u64x48_3_p_n2w_f3", "s64x40_3_p_n2a_f3"])
def test_every_tile_is_computed_once_whatever_the_band(name: str, band: int):
    m, n, k, draw = 330, 200, 72, np.random.default_rng(3)
    a, w = (draw.integers(-2, 3, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    kernel = build(Product(), replace(named(name), group=band))
    report = kernel.emulate(a, w, machine=H200(sms=SMS))
    np.testing.assert_array_equal(
        report.outputs[0].astype(np.float32), rounded(a.astype(np.float32) @ w.astype(np.float32).T)
    )
    assert {finding.rule for finding in report.findings} <= RELAXED


def test_bands_are_chosen_where_a_wave_loads_fewer_rows_so():
    tile = FreeTileConfig(swap_ab=True, tile_m=128, tile_n=200, stages=5, persistent=True, setmaxnreg=True)
    assert banded(tile, 8192, 2048, CHIP).group == 9  # 9 x 200 tokens beside 15 x 128 weights, near a square
    assert banded(tile, 16384, 256, CHIP).group == 1  # two tiles of weights: both of them for each tile of tokens
    assert banded(tile, 1024, 16384, CHIP) == tile  # six tiles of tokens: along them, a wave has all of them anyway
    assert banded(replace(tile, persistent=False), 8192, 2048, CHIP).group == 0
    assert banded(replace(tile, tile_m=192, tile_n=96, consumers=3), 8192, 2048, CHIP).group == 0  # no registers for it


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed, got",
    [
        ({"tile_m": 96}, "96"), ({"tile_n": 20}, "20"), ({"tile_n": 216}, "108"),
        ({"consumers": 4, "tile_m": 256}, "4"), ({"k_tiles": 3}, "3"), ({"stages": 20}, "573952"),
        ({"split_k": 2, "persistent": True}, "2"), ({"split_k": 13}, "13"),
        ({"cluster": 2, "persistent": True}, "2"), ({"tile_m": 0}, "0"), ({"vector_store": 1}, "1"),
        ({"setmaxnreg": True, "consumers": 1}, "1"),
        ({"setmaxnreg": True, "tile_m": 256, "tile_n": 152}, "152"),
        ({"group": 2}, "2"), ({"group": 2, "persistent": True, "tile_m": 192, "consumers": 3}, "2"),
        ({"multicast": "weights"}, "1"), ({"multicast": "rows"}, "'rows'"),
        ({"multicast": "tokens", "cluster": 2, "split_k": 2, "tile_n": 64}, "2"),
        ({"multicast": "weights", "cluster": 4, "tile_n": 24}, "(24, 4)"),
        ({"multicast": "both", "cluster": 2}, "2"), ({"multicast": "both", "cluster": 6}, "6"),
        ({"multicast": "both", "cluster": 4, "tile_n": 8}, "(8, 2)"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused_in_a_sentence(changed: dict[str, object], got: str):
    with refused("configuration", got=got):
        build(Product(), replace(FreeTileConfig(), **changed))


@pytest.mark.parametrize("product", [Product(out=f32), Product(b_major="MN"), Product(f16, bf16)], ids=str)
def test_products_of_other_kinds_are_refused(product: Product):
    with pytest.raises(ArgumentError):
        build(product, FreeTileConfig())


@pytest.mark.parametrize("fusion", [Fusion(amax=True), Fusion(bias="row")])
def test_other_ends_are_refused(fusion: Fusion):
    expected = "scales of the tensor or of rows, a bias along the columns, an activation, a gate, an addend"
    with refused("configuration", expected=expected):
        build(Product(), FreeTileConfig(), fusion)


def test_a_name_says_everything():
    for name, _ in CASES.values():
        config = named(name)
        assert any_config(config.name()) == any_config(name) == config
        assert config.name() == to_text(config)
    with pytest.raises(ArgumentError):
        named("u64x40")


# -- the choice ------------------------------------------------------------------------------------------------------

SHAPES = [(256, 6144, 4096), (320, 1024, 4096), (7, 4608, 3584), (200, 4608, 3584), (512, 51200, 5120), (1, 8, 8),
          (129, 50257, 1600), (384, 7168, 16384), (448, 5120, 5120), (809, 1152, 4304),
          (41, 8192, 7392)]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_everything_that_is_ranked_can_be_built_and_fits_the_machine(shape: tuple[int, int, int]):
    found = list(fitting(*shape, sms=CHIP))
    assert found
    for config in found:
        config.check(Product())
        m, n, _ = shape
        (blocks, _), places = config.workspace(m, n, 132)
        (ctas, _, _) = FreeTileGrid(config)({"M": m, "N": n, "blocks": blocks, "places": places}, H200())
        if config.shared_workspace:
            assert ctas <= 132
        elif config.split_k > 1:
            assert ctas // config.ctas <= H200().clusters(config.ctas)
        if config.persistent:
            assert ctas == 132
    times = [time for _, time in ranked(*shape, sms=CHIP)]
    assert times == sorted(times) and times[0] > 0


def test_ctas_share_operands_where_it_was_ever_faster():
    """Pairs where rows of K are astride lines, or in several waves; four or eight CTAs in one wave."""
    for shape in SHAPES:
        m, n, k = shape
        for config in (config for config in fitting(*shape, sms=CHIP) if config.multicast):
            assert config.along_tokens == 1 or config.weights <= n
            assert config.along_weights == 1 or config.tokens <= m
            if config.cluster >= 4:
                assert not config.persistent and waves_of(config, m, n, CHIP) == 1
            else:
                assert config.cluster == 2 and (config.persistent or k * 2 % 128 or waves_of(config, m, n, CHIP) == 1)
    eight = Product(e4m3, e4m3, bf16)
    found = fitting(809, 1152, 4352, eight, sms=CHIP)
    alone = [config for config in found if config.multicast and not config.persistent]
    assert {config.cluster for config in alone} == {2, 4, 8}
    found = fitting(809, 1152, 4304, eight, sms=CHIP)
    sharing = [config for config in found if config.multicast and not config.persistent]
    assert {config.cluster for config in sharing} == {2, 4, 8}


def test_the_model_counts_rows_of_the_tensor_not_of_the_tile():
    config = named("u128x96w2_8_f3")
    assert terms(config, 100, 6144, 4096, sms=CHIP).total < terms(config, 128, 6144, 4096, sms=CHIP).total


@pytest.mark.slow
@pytest.mark.skipif(toolchain.ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize(
    "fusion",
    [Fusion(), Fusion(scales="row"), Fusion(bias="column"), Fusion(bias="column", activation="gelu"),
     Fusion(scales="row", bias="column"), Fusion(addend=True), Fusion(activation="silu", gate=True),
     Fusion(gate=True, addend=True), Fusion(scales="row", bias="column", activation="gelu", gate=True, addend=True)],
    ids=["plain", "row scales", "bias", "bias and gelu", "row scales and bias", "addend", "gate", "gate and addend",
         "all"],
)  # fmt: skip
def test_the_chosen_tiles_do_not_spill(fusion: Fusion):
    product = Product(e4m3, e4m3, bf16) if fusion.scales else Product()
    for shape in SHAPES:
        fitting = [config for config, _ in ranked(*shape, product, sms=CHIP) if config.fits_registers(product, fusion)]
        for config in fitting[:3]:
            resources = build(product, config, fusion).resources()
            assert resources.spills == 0 and not resources.notes


@pytest.mark.parametrize("name", ["u128x40_3_f3", "s64x72_3_p_f3", "u64x24_3_S2_f3_z"])
def test_rows_of_the_result_may_lie_apart(name: str):
    """In an array with more columns: what stands next to the result is left alone."""
    draw = np.random.default_rng(3)
    a, w = (draw.integers(-2, 3, shape).astype(NUMPY[bf16]) for shape in ((150, 264), (72, 264)))
    wide = np.full((150, 128), 7, NUMPY[bf16])
    report = build(Product(), named(name)).emulate(a, w, out=wide[:, 8:80], machine=H200(sms=SMS))
    assert report.ok, report.findings
    np.testing.assert_array_equal(
        wide[:, 8:80].astype(np.float32), rounded(a.astype(np.float32) @ w.T.astype(np.float32))
    )
    assert (wide[:, :8] == 7).all() and (wide[:, 80:] == 7).all()


@pytest.mark.parametrize("old, new", [
    ("free_tile:swapped=true,tile_m=64,split=2,whole=0", "free_tile:swap_ab=true,tile_m=64,split_k=2,vector_store=0"),
    ("free_tile:neighbours=2,shared=weights,band=3,persistent=1,cleared=1",
     "free_tile:cluster=2,multicast=weights,group=3,persistent=1,zero_fill=1"),
    ("free_tile:moved=true", "free_tile:setmaxnreg=true"),
    ("small_m:split=4,wide=1", "small_m:split_k=4,vector_store=1"),
    ("hopper_large:form=ping_pong,slots=1,shared=a", "hopper_large:kernel_schedule=ping_pong,epi_stages=1,multicast=a"),
])  # fmt: skip
def test_names_of_earlier_versions_are_read(old: str, new: str):
    assert any_config(old) == any_config(new)
    assert any_config(any_config(old).name()) == any_config(new)
