"""Attention on sm_100: right at ragged lengths, clean under every schedule, no spill. Not run on hardware."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from tests.kernels.attention_cases import Run, jumping, operands, reference
from tests.kernels.test_blackwell import SCHEDULES, Issues
from warploom.errors import ArgumentError
from warploom.kernels.blackwell import attention
from warploom.kernels.blackwell.attention_config import Config
from warploom.kernels.hopper.attention_config import LOG2_E, Attention, section
from warploom.runtime import B200
from warploom.types import bf16, f16, f32

NARROW, WIDE = Attention(head_dim=64, value_dim=64), Attention(head_dim=128, value_dim=128)
CAUSAL = replace(NARROW, window_right=True)
SMALL = Config(tile_n=64, stages=2)
"""Tiles of 64 keys, so that short sequences have several of them; a ring that wraps around at once."""
ERROR = {"bf16": 4e-3, "f16": 6e-4}
"""P and O are rounded to the type once each."""


@lru_cache(maxsize=16)
def built(of: Attention, config: Config):
    return attention.build(of, config)


def run(of: Attention, arrays, config: Config = SMALL, *, sms: int = 2, **how) -> Run:
    q, k, v = arrays
    last = {"last": k.shape[1] - q.shape[1]} if of.window_right else {}
    numbers = {
        "scale": of.head_dim**-0.5 * LOG2_E,
        "section": section(of, of.window_right, k.shape[1], q.shape[2], k.shape[2]),
    }
    report = built(of, config).emulate(q, k, v, machine=B200(sms=sms), **numbers, **last, **how)
    out, lse = (np.asarray(x, np.float64) for x in report.outputs[-2:])
    return Run(report, out, lse, *reference(q, k, v, scale=of.head_dim**-0.5, **last))


def assert_right(found: Run, dtype: str = "bf16") -> None:
    assert found.report.findings == []
    assert not np.isnan(found.out).any()
    assert found.error <= ERROR[dtype] and found.lse_error <= 1e-5


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("of", [NARROW, CAUSAL, replace(WIDE, window_right=True)], ids=["64", "64 causal", "causal"])
@pytest.mark.parametrize("queries, keys", [(130, 200), (1, 65), (200, 100), (129, 190)])
def test_ragged_lengths_are_right_and_clean_under_every_schedule(of, queries: int, keys: int, schedule: str):
    """Of 200 queries and 100 keys the first hundred see no key where it is causal: zeros, and -inf."""
    assert_right(run(of, operands(queries, keys, of), schedule=schedule, seed=1))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("of", [NARROW, replace(WIDE, window_right=True)], ids=["64", "128 causal"])
def test_the_tiles_that_it_is_for(of):
    assert_right(run(of, operands(130, 150, of), Config(), schedule="random"))


@pytest.mark.full
def test_heads_share_keys_and_a_cta_has_several_blocks():
    assert_right(run(CAUSAL, operands(3, 70, CAUSAL, (4, 2)), sms=2, schedule="random"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [bf16, f16])
@pytest.mark.parametrize("levels", [(0, 20, 60), (60, 20, 0), (0, 5, 7)], ids=["growing", "falling", "a little"])
def test_maxima_that_grow_scale_the_sums_and_those_that_hardly_do_not(levels, dtype):
    of = replace(NARROW, dtype=dtype)
    found = run(of, jumping(levels, of, SMALL))
    assert_right(found, dtype.name)
    scaled = found.report.counters.tensor_memory_store_bytes > 3 * 256 * 64 * 2  # more than P
    assert scaled == (levels == (0, 20, 60))


def test_one_strand_multiplies_while_the_other_is_in_its_softmax():
    """S0 S1, then O0 S0 and O1 S1 by turns, and the last O0 O1: by the columns of what is issued."""
    watch = Issues()
    run(NARROW, operands(256, 192, NARROW), check=False, watch=lambda machine: watch)
    columns = [column for what, column in watch.seen if what == "mma"]
    scores, sums = (0, 64), (128, 192)
    order = [column for at, column in enumerate(columns) if at == 0 or columns[at - 1] != column]
    step = [sums[0], scores[0], sums[1], scores[1]]
    assert order == [*scores, *step, *step, *sums]


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("of", [NARROW, WIDE], ids=["64", "128"])
def test_it_does_not_spill_at_the_budgets_of_its_roles(of, causal: bool):
    resources = built(replace(of, window_right=causal), Config()).resources()
    assert resources.spill_stores == 0 and resources.stack == 0 and resources.registers == 128


@pytest.mark.parametrize(
    "of",
    [
        Attention(head_dim=96, value_dim=96), Attention(head_dim=128, value_dim=64), replace(NARROW, softcap=True),
        replace(CAUSAL, window_left=True), replace(NARROW, dtype=f32),
    ],
    ids=["96", "128 and 64", "softcap", "window", "f32"],
)  # fmt: skip
def test_what_it_does_not_compute_is_refused(of):
    with pytest.raises(ArgumentError):
        attention.build(of)


@pytest.mark.parametrize("config", [Config(tile_n=96), Config(stages=1)])
def test_tiles_that_cannot_be_built_are_refused(config):
    with pytest.raises(ArgumentError):
        attention.build(NARROW, config)
