"""Attention in e4m3 against float64 of the same 8-bit numbers: only the 4 significant bits of P are lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.attention_cases import Attention, Config, built, jumping, operands, run
from warploom.errors import ArgumentError
from warploom.kernels.hopper.attention import build
from warploom.kernels.hopper.attention_config import default
from warploom.types import e4m3

OF = Attention(e4m3, 64, 64)
CAUSAL = replace(OF, window_right=True)
SMALL = Config(tile_n=64, consumers=2, key_stages=2, value_stages=2, promoted_columns=64)
"""Tiles of 64 keys and rings that wrap around at once; one of the three transposing warps is idle."""
ONE = replace(SMALL, consumers=1)
RENEWED = replace(SMALL, tile_n=32, raise_all_maxima=True)
"""Maxima are raised by however little: as the library's choice does it up to a head dimension of 128."""
ERROR = 0.03
"""A relative error of at most 2^-4, evenly spread, is 2^-4 / sqrt(3) = 0.036 of an element; of a mean over keys less,
for large ones count more."""
LSE_ERROR = 1e-5


def assert_right(found) -> None:
    found.report.raise_on_findings()
    assert not np.isnan(found.out).any() and not np.isnan(found.lse).any()
    assert found.error <= ERROR
    assert found.lse_error <= LSE_ERROR


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("schedule", ["eager", "lazy", "random", "starve", "pct"])
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 65), (63, 129), (64, 64), (65, 63), (129, 129), (129, 200)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", [SMALL, RENEWED], ids=["grown", "renewed"])
def test_any_lengths_are_right_and_clean_under_every_schedule(
    queries: int, keys: int, causal: bool, config: Config, schedule: str
):
    of = CAUSAL if causal else OF
    found = run(of, *operands(queries, keys, of), config, last=keys - queries if causal else None, schedule=schedule)
    assert_right(found)


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("schedule", ["eager", "lazy", "random", "starve", "pct"])
@pytest.mark.parametrize("queries, keys", [(1, 65), (129, 129), (65, 200)])
@pytest.mark.parametrize("causal", [False, True])
def test_values_before_the_next_scores(queries: int, keys: int, causal: bool, schedule: str):
    of, last = (CAUSAL, keys - queries) if causal else (OF, None)
    config = replace(RENEWED, pv_first=True)
    assert_right(run(of, *operands(queries, keys, of), config, last=last, schedule=schedule))


def test_values_before_the_next_scores_need_registers_of_their_own():
    with pytest.raises(ArgumentError) as caught:
        build(OF, replace(SMALL, promoted_columns=32, pv_first=True))
    assert caught.value.code == "configuration"


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(
    "head_dim, value_dim", [(48, 48), (64, 128), (96, 96), (128, 64), (128, 128), (192, 128), (256, 256)]
)
@pytest.mark.sample(0, all=1)
def test_head_dimensions_that_are_not_whole_panels_too(head_dim: int, value_dim: int, above: bool):
    of = Attention(e4m3, head_dim, value_dim, window_right=above)
    assert_right(run(of, *operands(70, 250, of), replace(default(of), consumers=1), last=180 if above else None))


@pytest.mark.parametrize("keys", [32, 64, 96, 128, 160, 192])
@pytest.mark.sample(0, all=1)
def test_tiles_of_any_number_of_keys_are_transposed_without_bank_conflicts(keys: int):
    config = replace(ONE, tile_n=keys)
    found = run(OF, *operands(64, 2 * keys + 40, OF), config)
    assert_right(found)
    assert found.report.counters.bank_conflicts == 0


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("apart", [0, 16, 32, 64])
@pytest.mark.sample(2)
def test_products_apart_from_o_in_any_number_of_parts(apart: int, guarded: bool):
    assert_right(run(OF, *operands(64, 200, OF), replace(ONE, promoted_columns=apart, guarded=guarded)))


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.sample(0, all=1)
def test_fast_accumulation_lets_the_tensor_core_add_up_all_tiles(head_dim: int):
    of = Attention(e4m3, head_dim, head_dim, fast_accumulation=True)
    assert default(of).promoted_columns == 0 and default(replace(of, fast_accumulation=False)).promoted_columns > 0
    assert_right(run(of, *operands(70, 250, of), replace(default(of), consumers=1)))


@pytest.mark.full
def test_a_row_whose_first_maximum_is_a_little_low_is_recomputed_once_if_that_raises_the_maximum():
    """2^3.5 is less than `growth`, and yet P is so large that its sums do not pass: in each tile, or in one."""
    found = {}
    for renewed in (False, True):
        config = replace(ONE, raise_all_maxima=renewed)
        run_ = run(OF, *jumping((0, *[3.5] * 10), OF, config), config, sms=1)
        assert_right(run_)
        found[renewed] = run_.report.counters.instructions
    assert found[True] < 0.9 * found[False]


@pytest.mark.full
def test_each_head_has_its_scales():
    of = replace(CAUSAL, scaled=True)
    draw = np.random.default_rng(3)
    scales = [draw.uniform(0.25, 2, (2, heads)).astype(np.float32) for heads in (4, 2, 2)]
    assert_right(run(of, *operands(70, 100, of, (4, 2), batch=2), ONE, last=30, scales=scales))


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("levels", [(0, 133, 141), (0, 5, 9), (0, 3, 6, 9, 12), (200, 0, 330), (3, 2, 1, 0)], ids=str)
@pytest.mark.sample(1, full=3)
def test_scores_that_jump_are_recomputed_before_p_is_too_large_for_its_type(levels: tuple[int, ...], guarded: bool):
    """P above 448 would become 448; so would the rows' means, which tell which tile weighs most."""
    for config in (replace(ONE, guarded=guarded), replace(RENEWED, consumers=1, guarded=guarded)):
        assert_right(run(OF, *jumping(levels, OF, config), config, sms=1))


@pytest.mark.full
def test_a_row_that_sees_no_key_gets_zeros():
    found = run(CAUSAL, *operands(129, 65, CAUSAL), SMALL, last=-64)
    assert_right(found)
    assert np.all(found.out[0, :64] == 0) and np.all(found.lse[0, 0, :64] == -np.inf)


@pytest.mark.full
@pytest.mark.parametrize(
    "fields, off",
    [
        ({"promoted_columns": 64}, (0, 1e-3)),
        ({}, (0.05, 1)),
    ],
    ids=str,
)
def test_thousands_of_equal_terms_are_all_counted_because_they_are_added_apart(
    fields: dict[str, int], off: tuple[float, float]
):
    """A wgmma of eight bits adds to 13 bits: next to a sum of thousands of its like a term loses its last bits."""
    keys, value = 6144, 0.875
    q, k, v = operands(1, keys, OF)
    q[:], v[:] = 0, value
    config = Config(tile_n=128, consumers=1, key_stages=2, value_stages=2, **fields)
    found = run(OF, q, k, v, config, check=False, numerics="hardware")
    assert off[0] <= abs(float(found.out.mean()) / value - 1) <= off[1]


@pytest.mark.sample(2)
@pytest.mark.parametrize("bad", ["q", "k"])
def test_nan_spreads_to_the_rows_that_see_it(bad: str):
    arrays = dict(zip("qkv", operands(64, 200, OF), strict=True))
    arrays[bad][0, 5, 0, 0] = np.nan
    wrong = np.isnan(run(OF, *arrays.values(), ONE).out[0, :, 0]).any(-1)
    assert wrong.all() if bad == "k" else wrong[5] and wrong.sum() == 1


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("fast", [False, True])
def test_the_chosen_configurations_build_without_spills_and_serialised_products(head_dim: int, above: bool, fast: bool):
    of = Attention(e4m3, head_dim, head_dim, window_right=above, fast_accumulation=fast)
    resources = built(of, default(of)).resources()
    assert not resources.serialisation_notes and not resources.spills
    assert default(of).shared_bytes(of) <= 232448 - 1024


def test_packed_sequences_build_for_a_gpu_although_they_spill():
    of = Attention(e4m3, 128, 128, window_right=True, varlen=True)
    assert build(of).program().allow_spills and not build(replace(of, varlen=False)).program().allow_spills
