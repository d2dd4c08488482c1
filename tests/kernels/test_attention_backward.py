"""The kernels of attention's gradients against float64: any lengths, any schedule, the same bits in any order."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.attention_cases import Attention, operands
from tests.kernels.attention_gradients import ERROR, Checked, exact, launch
from warploom.kernels.hopper import attention_backward, attention_backward_sums
from warploom.kernels.hopper.attention_backward_config import BackwardConfig, backward_config, values_config
from warploom.kernels.hopper.attention_config import LOG2_E
from warploom.operators.attention.captured import captured
from warploom.types import f16

NARROW, WIDE = Attention(head_dim=64, value_dim=64), Attention()
WINDOW = {"window_right": True, "window_left": True}
SMALL = BackwardConfig(tile_m=64)
SCHEDULES = ["eager", "lazy", "random", "starve"]


class Run(Checked):
    """A launch of the rows, of the kernel of all gradients and of the conversion, and what should come out.

    loud: a factor of q, for scores far below 0.
    """

    def __init__(self, of, config, queries, keys, heads=(1, 1), last=None, first=None, batch=1, loud=1.0):
        self.of, self.config = of, config
        q, k, v = operands(queries, keys, of, heads, batch)
        if loud != 1.0:
            q, k = (-loud * abs(q)).astype(q.dtype), abs(k)
        grad = np.random.default_rng(7).standard_normal((*q.shape[:3], of.value_dim)).astype(q.dtype)
        *self.wanted, out, lse = exact(q, k, v, grad, last, first)
        self.given = q, k, v, grad
        self.results = out.astype(q.dtype, order="C"), grad, lse.astype(np.float32)
        self.numbers = {"scale": of.head_dim**-0.5 * LOG2_E, "factor": of.head_dim**-0.5}
        self.numbers |= {} if of.score_mod is None else {"scale": LOG2_E, "inner": of.head_dim**-0.5}
        self.numbers |= {name: edge for name, edge in (("last", last), ("first", first)) if edge is not None}

    def __call__(self, **how):
        """The reports, and dQ, dK and dV."""
        return launch(self.of, self.config, self.given, self.results, self.numbers, **how)

    def right(self, found):
        """True if the gradients are right."""
        return all(
            np.linalg.norm(one.astype(np.float64) - wanted) <= ERROR * max(np.linalg.norm(wanted), 1e-30)
            for one, wanted in zip(found, self.wanted, strict=True)
        )


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("queries, keys", [(1, 1), (63, 129), (130, 64), (129, 200)])
@pytest.mark.parametrize("causal", [False, True])
def test_any_lengths_are_right_and_clean_under_every_schedule(queries, keys, causal, schedule):
    last = keys - queries if causal else None
    Run(replace(NARROW, window_right=causal), SMALL, queries, keys, last=last).check(schedule=schedule)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("config", [
    backward_config(NARROW), replace(backward_config(NARROW), deterministic=False), BackwardConfig(tile_m=64, stages=4),
    BackwardConfig(tile_m=96, dv_overlaps_ds=True), BackwardConfig(tile_m=64, ds_stages=1),
])  # fmt: skip
def test_configurations_of_head_dimension_64(config):
    Run(replace(NARROW, window_right=True), config, 150, 200, last=50).check()


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("config", [
    backward_config(WIDE), replace(backward_config(WIDE), deterministic=False),
    BackwardConfig(tile_m=64, dv_overlaps_ds=True),
])  # fmt: skip
def test_configurations_of_head_dimension_128(config):
    Run(replace(WIDE, window_right=True, dtype=f16), config, 170, 130, last=-40).check()


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("head_dim, value_dim", [(96, 72), (40, 40), (64, 128), (128, 64), (8, 16)])
def test_head_dimensions(head_dim, value_dim):
    of = Attention(head_dim=head_dim, value_dim=value_dim, window_right=True)
    Run(of, backward_config(of), 70, 100, last=30).check()


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("queries, keys, last", [(70, 300, 0), (300, 70, 0), (70, 100, -80)])
def test_blocks_and_tiles_that_see_nothing_get_zeros(queries, keys, last):
    Run(replace(NARROW, window_right=True), SMALL, queries, keys, last=last).check()


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("queries, keys, first, last", [
    (129, 300, -70, 0), (129, 300, 100, 171), (300, 70, -100, 30), (300, 150, -300, -100), (400, 130, -20, 20),
])  # fmt: skip
def test_windows(queries, keys, first, last, above):
    of = replace(NARROW, window_right=above, window_left=True)
    Run(of, SMALL, queries, keys, first=first, last=last if above else None).check()


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("section", [2, 5])
def test_query_heads_that_share_a_key_head(section):
    Run(NARROW, SMALL, 65, 70, heads=(6, 3), batch=2).check(section=section)


def test_keys_beyond_the_end_reach_nothing_where_all_scores_are_far_below_zero():
    """A key of zeros has the score 0, so its weight 2^-lse2 would be infinite."""
    run = Run(NARROW, SMALL, 64, 70, loud=60.0)
    assert run.results[2].max() * LOG2_E < -128, "the weight of a score of 0 must overflow"
    assert all(np.isfinite(np.asarray(x, np.float64)).all() for x in run()[1])


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("sms, section, schedule", [(1, 1, "lazy"), (3, 2, "random"), (4, 1, "starve")])
def test_sums_have_the_same_order_however_many_ctas_run_together(sms, section, schedule):
    run = Run(replace(NARROW, window_right=True), SMALL, 80, 300, heads=(2, 2), last=220)
    usual = run.check()
    for one, other in zip(run.check(sms=sms, section=section, schedule=schedule, seed=3), usual, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("queries, keys", [(65, 63), (129, 100)])
def test_functions_that_change_nothing_give_the_same(queries, keys):
    same = captured(lambda s, b, h, i, j: s * 2 - s + 0 * (i - j), "score_mod").function
    all_ = captured(lambda b, h, i, j: i - j < 1000, "mask_mod").function
    of = replace(NARROW, window_right=True, score_mod=same, mask_mod=all_)
    Run(of, backward_config(of), queries, keys, heads=(2, 1), last=keys - queries).check(schedule="random")


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("head_dim, value_dim, parts", [(192, 192, 3), (256, 256, 2), (136, 200, 3)])
def test_wide_heads_have_a_kernel_of_their_own_for_dv(head_dim, value_dim, parts, schedule):
    of = Attention(head_dim=head_dim, value_dim=value_dim, window_right=True)
    config = backward_config(of)
    assert values_config(config) and config.parts(of) == parts
    Run(of, config, 70, 140, last=70).check(schedule=schedule)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("head_dim, value_dim", [(192, 128), (72, 200), (256, 64)])
def test_wide_heads_have_one_kernel_if_registers_hold_dk_and_dv(head_dim, value_dim, schedule):
    of = Attention(head_dim=head_dim, value_dim=value_dim, window_right=True)
    config = backward_config(of)
    assert values_config(config) is None and config.fits(of)
    Run(of, config, 70, 140, last=70).check(schedule=schedule)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_consumer_writes_all_its_parts_of_dq_before_one_addition(schedule):
    of = Attention(head_dim=192, value_dim=128, window_right=True)
    config = BackwardConfig(tile_m=32, stages=3, ds_stages=1, parts_per_add=3)
    assert config.fits(of) and values_config(config) is None
    Run(of, config, 70, 140, last=70).check(schedule=schedule)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("of", [
    WIDE, replace(WIDE, **WINDOW), NARROW, replace(NARROW, **WINDOW),
    replace(WIDE, head_dim=64, **WINDOW), replace(WIDE, value_dim=64, window_right=True),
    replace(WIDE, varlen=True, **WINDOW), replace(NARROW, varlen=True, **WINDOW),
    replace(WIDE, head_dim=192, **WINDOW), replace(WIDE, head_dim=256, value_dim=256, window_right=True),
    replace(WIDE, head_dim=256, value_dim=256, varlen=True, **WINDOW),
])  # fmt: skip
def test_it_builds_without_spills_and_serialised_products(of):
    config = backward_config(of)
    assert config.fits(of)
    for each in (config, values_config(config)):
        assert each is None or not attention_backward.build(of, each).resources().serialisation_notes
    assert not attention_backward_sums.build_convert(of, config).resources().spills


MUTANTS = {
    "dS is read before the other consumer has written it": (r"bar\.sync 3, 256;", 0, 1, 3, 4),
    "dS and lse2 are not ordered before wgmma and TMA": (r"fence\.proxy\.async\.shared::cta;", 0),
    "a part of dQ is not ordered before its addition": (r"fence\.proxy\.async\.shared::cta;", 1),
    "a part of dQ is overwritten while it is read": (r"cp\.async\.bulk\.wait_group\.read 0;", 0),
    "a block does not wait for its turn": (r"ld\.acquire[^$]*bra \$\w+;\s+bra \$\w+;", 0),
    "the turn is passed on before the addition is complete": (r"cp\.async\.bulk\.wait_group 0;", 0),
    "the turn is passed on without release": (r"st\.release\.gpu", 0),
    "K is overwritten by dK while the other consumer reads it": (r"bar\.sync 3, 256;", 2, 5),
    "P is used before S is complete": (r"wgmma\.wait_group\.sync\.aligned 1;", 0),
    "dQ is written before it is complete": (r"wgmma\.wait_group\.sync\.aligned 1;", 1),
    "Q is let go before dK is complete": (r"wgmma\.wait_group\.sync\.aligned 0;", 1),
}


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_many_ctas_add_to_the_gradients_of_captured_arrays_without_a_race(schedule):
    both, heads, keys, queries = (np.zeros(shape, np.float32) for shape in [(65, 129), (2,), (129,), (65,)])
    function = lambda s, b, h, i, j: s + heads[h] * (i - j) + keys[j] + queries[i] + both[i, j]  # noqa: E731
    read = captured(function, "score_mod")
    made = replace(read.function, wanted=(0, 1, 2, 3))
    of = replace(NARROW, window_right=True, score_mod=made)
    run = Run(of, BackwardConfig(tile_m=32), 65, 129, heads=(2, 1), last=64)
    reports, found = run(schedule=schedule, captured=[x.ravel() for x in read.given])
    for report in reports:
        report.raise_on_findings()
    assert run.right(found[:3])
    of_both, of_heads, of_keys, of_queries = found[3:]
    of_both = of_both[: both.size].reshape(both.shape)
    np.testing.assert_allclose(of_keys[:129], of_both.sum(0), atol=1e-4)
    np.testing.assert_allclose(of_queries[:65], of_both.sum(1), atol=1e-4)
    distances = np.subtract.outer(np.arange(65.0), np.arange(129.0))
    np.testing.assert_allclose(of_heads[:2].sum(), (of_both * distances).sum(), rtol=1e-3)
    assert not of_heads[2:].any()
    assert np.abs(of_both).sum() > 1


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("name", MUTANTS)
def test_without_one_synchronisation_something_is_found(name):
    pattern, *which = MUTANTS[name]
    run = Run(NARROW, SMALL, 200, 129)
    text = attention_backward.build(NARROW, SMALL).ptx()
    found = list(re.finditer(pattern, text))
    for match in [found[at] for at in reversed(which)]:
        instead = "st.relaxed.gpu" if "release" in match.group() else ""
        text = text[: match.start()] + instead + text[match.end() :]
    assert run(ptx=text)[0][1].findings
