"""Few keys with all the weight: O is what their values say, although their P is rounded to bf16."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.kernels.attention_cases import EXACT, SMALL, VALUE, Attention, run, weighty
from warploom.kernels.hopper.attention_config import default

NARROW = Attention(head_dim=64, value_dim=64)
ONE = replace(SMALL, consumers=1)


def assert_exact(found: Any) -> None:
    found.report.raise_on_findings()
    assert found.error < EXACT
    assert found.lse_error < 1e-5


@pytest.mark.sample(2, all=3)
@pytest.mark.parametrize(
    "head_dim, value_dim", [(40, 40), (64, 64), (64, 128), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_a_key_with_all_the_weight_gives_its_value(head_dim: int, value_dim: int, causal: bool) -> None:
    """It is in the tile that is read last, 40 to 80 powers of 2 above the first maximum."""
    of = Attention(head_dim=head_dim, value_dim=value_dim, window_right=causal)
    config = replace(default(of), consumers=1, rounded_row_sum=True)
    keys = 2 * config.tile_n
    assert_exact(run(of, *weighty(of, keys, {0: 40}), config, last=keys - 64 if causal else None))


@pytest.mark.parametrize("sink", [-300.0, 10.0, 40.0, 300.0, -np.inf])
def test_a_sink_takes_only_its_share_of_the_key_with_all_the_weight(sink: float) -> None:
    of = replace(NARROW, sinks=True)
    given = weighty(of, 128, {0: 40})
    found = run(of, *given, ONE, sinks=np.array([sink], np.float32))
    found.report.raise_on_findings()
    whole = np.abs(found.exact) > VALUE / 2**20
    assert np.abs(found.out / np.where(whole, found.exact, 1) - 1)[whole].max(initial=0) <= 2**-8
    assert np.abs(found.out[~whole]).max(initial=0) <= VALUE / 2**19
    assert found.lse_error < 1e-5
    if sink <= 10:
        assert found.error < EXACT


@pytest.mark.parametrize("keys", [(0, 2), (0, 70), (0, 1, 32, 70), (0, 1, 64, 130)], ids=str)
def test_several_keys_with_equal_weight_give_the_mean_of_their_values(keys: tuple[int, ...]) -> None:
    values = dict(zip(keys, (1.0, 2.0, 1.5, 3.5), strict=False))
    assert_exact(run(NARROW, *weighty(NARROW, 192, dict.fromkeys(keys, 40.0), values), ONE))


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("levels", [(0, 30, 45), (0, 200, 230), (0, 40, 45), (0, 150, 300, 450, 600, 630)], ids=str)
@pytest.mark.sample(1, all=3)
def test_a_key_that_outweighs_those_of_earlier_tiles(levels: tuple[int, ...], guarded: bool) -> None:
    """The last levels are a guarded warp's that has recomputed as many tiles as it does; all values are equal."""
    last = 64 * (len(levels) - 1)
    placed = {last - 64 * tile: level for tile, level in enumerate(levels)}
    given = weighty(NARROW, last + 64, placed)
    given[2][...] = VALUE
    assert_exact(run(NARROW, *given, replace(ONE, guarded=guarded)))
