"""The attention kernel against float64: every length, mask and head dimension, clean under every schedule."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.attention_cases import SMALL, Attention, built, jumping, operands, run
from warploom.kernels.hopper.attention_config import Config, default
from warploom.lab.recipe import decode, encode
from warploom.operators.kernel_cache import from_bytes, to_bytes
from warploom.runtime.machine import H200
from warploom.types import bf16, f16

NARROW = Attention(head_dim=64, value_dim=64)
CAUSAL = replace(NARROW, window_right=True)
ONE = replace(SMALL, consumers=1)
ERROR = {"bf16": 4e-3, "f16": 6e-4}
"""P and O are rounded to the type once each."""
LSE_ERROR = 1e-5


def assert_right(found, dtype: str = "bf16") -> None:
    found.report.raise_on_findings()
    assert not np.isnan(found.out).any() and not np.isnan(found.lse).any()
    assert found.error <= ERROR[dtype]
    assert found.lse_error <= LSE_ERROR


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", ["eager", "lazy", "random", "starve"])
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 65), (63, 129), (64, 64), (65, 63), (129, 129), (129, 200)])
@pytest.mark.parametrize("causal", [False, True])
def test_any_lengths_are_right_and_clean_under_every_schedule(queries: int, keys: int, causal: bool, schedule: str):
    of = CAUSAL if causal else NARROW
    found = run(of, *operands(queries, keys, of), SMALL, last=keys - queries if causal else None, schedule=schedule)
    assert_right(found)


@pytest.mark.parametrize("queries, keys", [(64, 63), (129, 65), (200, 1)])
@pytest.mark.sample(1)
def test_queries_that_see_no_key_get_zeros_and_minus_infinity(queries: int, keys: int):
    found = run(CAUSAL, *operands(queries, keys, CAUSAL), SMALL, last=keys - queries)
    assert_right(found)
    assert np.all(found.out[0, : queries - keys] == 0)
    assert np.all(found.lse[0, 0, : queries - keys] == -np.inf)


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("first, last", [(-70, 0), (-5, 5), (-300, -100), (150, 200), (-1, 400)])
@pytest.mark.sample(1, all=1)
def test_a_window_with_both_edges(first: int, last: int, guarded: bool):
    of = Attention(head_dim=64, value_dim=64, window_right=True, window_left=True)
    assert_right(run(of, *operands(150, 330, of), replace(ONE, guarded=guarded), first=first, last=last))


@pytest.mark.parametrize(
    "head_dim, value_dim", [(40, 40), (64, 128), (96, 96), (128, 64), (128, 128), (192, 128), (256, 256)]
)
@pytest.mark.sample(1, all=1)
def test_head_dimensions_that_are_not_whole_panels_too(head_dim: int, value_dim: int):
    of = Attention(head_dim=head_dim, value_dim=value_dim, window_right=True)
    assert_right(run(of, *operands(70, 150, of), replace(default(of), consumers=1), last=80))


@pytest.mark.parametrize("heads", [(4, 1), (4, 2)])
@pytest.mark.sample(1)
def test_query_heads_share_a_key_head(heads: tuple[int, int]):
    assert_right(run(CAUSAL, *operands(70, 70, CAUSAL, heads, batch=2), ONE, last=0))


@pytest.mark.sample(1)
@pytest.mark.parametrize("cap, sinks", [(4.0, None), (None, (0.5, -3.0)), (2.0, (-np.inf, 200.0))])
def test_softcap_and_sinks(cap: float | None, sinks: tuple[float, float] | None):
    of = replace(CAUSAL, softcap=cap is not None, sinks=sinks is not None)
    given = None if sinks is None else np.array(sinks, np.float32)
    found = run(of, *operands(65, 130, of, (2, 1)), ONE, last=65, cap=cap, sinks=given)
    found.report.raise_on_findings()
    assert not np.isnan(found.out).any()
    assert found.error <= ERROR["bf16"] if cap is None else 2e-2  # tanh.approx: 2^-11 of the cap
    assert found.lse_error <= LSE_ERROR if cap is None else 4 * 2**-11


def test_a_sink_is_all_that_a_row_without_keys_has():
    of = replace(CAUSAL, sinks=True)
    found = run(of, *operands(100, 40, of), ONE, last=-60, sinks=np.array([1.25], np.float32))
    assert_right(found)
    np.testing.assert_allclose(found.lse[0, 0, :60], 1.25, rtol=1e-6)
    assert np.all(found.out[0, :60] == 0)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("together", [1, 2, 4])
def test_heads_in_sections_that_are_not_all_of_them_are_each_computed_once(together: int):
    found = run(CAUSAL, *operands(150, 64, CAUSAL, (6, 2), batch=2), SMALL, last=0, section_=together)
    assert_right(found)


LEVELS = [(0, 133, 141), (0, 70, 84), (0, 133, 280), (0, 60, 133, 141, 150), (200, 0, 330), (0, 9, 13), (3, 2, 1, 0)]


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("dtype", [bf16, f16], ids=str)
@pytest.mark.parametrize("levels", LEVELS, ids=str)
@pytest.mark.sample(0, all=1)
def test_scores_that_jump_by_more_than_a_factor_of_f32_lose_nothing(levels: tuple[int, ...], dtype, guarded: bool):
    """Between 133 and 141 the factor is below 2^-126, and what it multiplies is 2^-8 of the result."""
    of = replace(NARROW, dtype=dtype)
    config = replace(ONE, guarded=guarded)
    assert_right(run(of, *jumping(levels, of, config), config, sms=1), str(dtype))


@pytest.mark.full
def test_a_warp_that_recomputed_four_tiles_looks_at_the_maxima_first():
    """Four of eight jumps are recomputed; in the others the sums pass the guard because the maximum is taken first."""
    levels = (1, *range(200, 1700, 200))
    assert_right(run(NARROW, *jumping(levels, NARROW, ONE), ONE, sms=1))


@pytest.mark.full
def test_the_guarded_softmax_takes_fewer_instructions_than_the_exact_one_on_normal_scores():
    exact = replace(ONE, guarded=False)
    given = operands(64, 640, NARROW)
    counts = [run(NARROW, *given, config).report.counters.instructions for config in (ONE, exact)]
    assert counts[0] < 0.9 * counts[1]


@pytest.mark.sample(1)
@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_inf_spread_to_the_rows_that_see_them_and_to_no_other(bad: float, guarded: bool):
    q, k, v = operands(64, 200, NARROW)
    q[0, 5, 0, 0] = bad
    found = run(NARROW, q, k, v, replace(ONE, guarded=guarded))
    wrong = np.isnan(found.out[0, :, 0]).any(-1)
    assert wrong[5]
    assert not wrong[np.arange(64) != 5].any()
    others = np.arange(64) != 5
    np.testing.assert_allclose(found.out[0, others], found.exact[0, others], atol=0.02)


def test_a_nan_in_a_key_that_the_guard_reads_is_seen():
    q, k, v = operands(64, 200, NARROW)
    k[0, 3, 0, 0] = np.nan
    assert np.isnan(run(NARROW, q, k, v, ONE).out).all()


@pytest.mark.full
def test_outliers_in_a_channel():
    q, k, v = operands(64, 300, NARROW)
    k = (k.astype(np.float32) * np.where(np.arange(64) < 2, 40, 1)).astype(ml_dtypes.bfloat16)
    assert_right(run(NARROW, q, k, v, ONE))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("head_dim, value_dim", [(64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)])
@pytest.mark.parametrize("above", [False, True])
def test_the_chosen_configurations_build_without_spills_and_serialised_products(
    head_dim: int, value_dim: int, above: bool
):
    of = Attention(head_dim=head_dim, value_dim=value_dim, window_right=above)
    resources = built(of, default(of)).resources()
    assert not resources.serialisation_notes
    assert default(of).shared_bytes(of) <= 232448 - 1024


def test_evidence_can_name_what_it_was_built_from():
    """`Attention` has a field that is called as recipes call a type."""
    of = Attention(dtype=f16, window_right=True)
    assert decode(encode(of)) == of


def test_its_program_comes_back_from_the_disk():
    program = built(NARROW, ONE).program()
    again = from_bytes(to_bytes(program))
    assert again.text == program.text
    dims = {"S": 1000, "B": 2, "H": 3}
    assert again.grid(dims, H200()) == program.grid(dims, H200()) == (96, 1, 1)


@pytest.mark.full
def test_the_exponentials_stand_between_the_two_waits_of_a_step():
    """What ptxas must not sink after the wait for O: 64 exponentials a step, with both products in flight."""
    between = built(Attention(), Config()).resources(sass=True).between_waits
    assert sum(part.get("MUFU", 0) >= 64 for part in between) >= 3
