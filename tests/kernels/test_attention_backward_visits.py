"""The kernels of attention's gradients with lists of the tiles that a mask lets through, under every schedule."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from tests.kernels.attention_cases import Attention, operands
from tests.kernels.attention_gradients import ERROR, Checked, exact, launch
from warploom.errors import DeadlockError
from warploom.kernels.hopper import attention_backward
from warploom.kernels.hopper.attention_backward_config import (
    WHOLE_BLOCKS,
    BackwardConfig,
    backward_config,
    values_config,
)
from warploom.kernels.hopper.attention_config import LOG2_E
from warploom.operators.attention.captured import captured

NARROW = Attention(head_dim=64, value_dim=64, block_mask=True)
SMALL = BackwardConfig(tile_m=64)
SCHEDULES = ["eager", "lazy", "random", "starve"]
FUNCTION = lambda s, b, h, i, j: s + 0 * i  # noqa: E731
FUNCTIONS = {
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 70),
    "holes": lambda b, h, i, j: (i // 64 != 1) & (j // 128 != 1) & (i + h * j > 5),
    "steps": lambda b, h, i, j: j // 128 <= i // 64,
}


def lists_of(sees, config):
    """The lists of a mask (batches or 1, heads or 1, queries, keys), tile by tile, as `attention_visits` says."""
    *outer, queries, keys = sees.shape
    tiles, blocks = -(-queries // config.tile_m), -(-keys // config.tile_n)
    visits, visited = np.full((*outer, blocks, tiles, 2), 2 * tiles - 1, np.int32), np.zeros((*outer, blocks), np.int32)
    visitors = np.zeros((*outer, tiles), np.int32)
    for line in np.ndindex(*outer):
        for block in range(blocks):
            for tile in reversed(range(tiles)):
                here = sees[line][tile * config.tile_m :, block * config.tile_n :][: config.tile_m, : config.tile_n]
                if here.any():
                    partly = here.size < config.tile_m * config.tile_n or not here.all()
                    visits[line][block, visited[line][block]] = 2 * tile + partly, visitors[line][tile]
                    visited[line][block] += 1
                    visitors[line][tile] += 1
    return {"visits": visits, "visited": visited, "visitors": visitors}


class Run(Checked):
    """A launch under a mask, and what should come out."""

    def __init__(self, name, queries, keys, heads=(1, 1), of=NARROW, config=None, batch=1):
        self.of = replace(of, mask_mod=captured(FUNCTIONS[name], "mask_mod").function)
        self.config = config or SMALL
        q, k, v = operands(queries, keys, of, heads, batch)
        grad = np.random.default_rng(7).standard_normal((*q.shape[:3], of.value_dim)).astype(q.dtype)
        sees = np.broadcast_to(FUNCTIONS[name](*np.indices((batch, heads[0], queries, keys), sparse=True)),
                               (batch, heads[0], queries, keys))  # fmt: skip
        *self.wanted, out, lse = exact(q, k, v, grad, None, None, ~sees)
        self.given = q, k, v, grad
        self.results = out.astype(q.dtype, order="C"), grad, lse.astype(np.float32)
        scale = of.head_dim**-0.5
        self.numbers = {"scale": LOG2_E, "inner": scale} if of.score_mod else {"scale": scale * LOG2_E}
        self.numbers |= {"factor": scale}
        shared = sees[:1] if (sees == sees[:1]).all() else sees
        self.lists = lists_of(shared[:, :1] if (shared == shared[:, :1]).all() else shared, self.config)

    def __call__(self, **how):
        """The reports, and dQ, dK and dV."""
        return launch(self.of, self.config, self.given, self.results, self.numbers, lists=self.lists, **how)

    def right(self, found):
        """True if the gradients are right."""
        return all(
            np.linalg.norm(one.astype(np.float64) - wanted) <= ERROR * np.linalg.norm(wanted)
            for one, wanted in zip(found, self.wanted, strict=True)
        )


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name, queries, keys, heads", [
    ("causal", 300, 300, (1, 1)), ("window", 270, 270, (2, 1)), ("holes", 260, 330, (2, 2)),
    ("steps", 256, 384, (2, 1)),
])  # fmt: skip
def test_listed_tiles_are_right_and_clean_under_every_schedule(name, queries, keys, heads, schedule):
    Run(name, queries, keys, heads).check(schedule=schedule)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_have_the_same_order_however_many_ctas_run_together(name):
    run = Run(name, 200, 384, heads=(2, 2))
    usual = run.check()
    for one, other in zip(run.check(sms=4, section=1, schedule="random", seed=3), usual, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.sample(0, all=1)
def test_sums_in_any_order():
    Run("holes", 260, 330, heads=(2, 2), config=replace(SMALL, deterministic=False)).check(schedule="random")


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("head_dim, value_dim", [(128, 128), (192, 128)])
@pytest.mark.parametrize("scores", [False, True])
def test_chosen_configurations(head_dim, value_dim, scores):
    of = Attention(head_dim=head_dim, value_dim=value_dim, block_mask=True)
    of = replace(of, score_mod=captured(FUNCTION, "score_mod").function if scores else None)
    config = backward_config(replace(of, mask_mod=captured(FUNCTIONS["causal"], "mask_mod").function))
    Run("causal", 140, 200, of=of, config=config).check()


def test_whole_blocks_are_whole_numbers_of_tiles_of_all_configurations():
    mask, scores = captured(FUNCTIONS["causal"], "mask_mod").function, captured(FUNCTION, "score_mod").function
    for dim in range(8, 257, 8):
        for functions in ({}, {"mask_mod": mask}, {"score_mod": scores}, {"mask_mod": mask, "score_mod": scores}):
            of = Attention(head_dim=dim, value_dim=dim, block_mask=True, **functions)
            config = backward_config(of)
            assert config.fits(of)
            assert WHOLE_BLOCKS[0] % config.tile_m == 0 and WHOLE_BLOCKS[1] % config.tile_n == 0


@lru_cache
def planted():
    """A launch in which three blocks of keys, which few CTAs compute, add to each tile, and the kernel's text."""
    run = Run("steps", 256, 384)
    return run, attention_backward.build(run.of, run.config).ptx()


@pytest.mark.sample(1, all=2)
@pytest.mark.parametrize("pattern, instead", [
    (r"ld\.acquire[^$]*bra \$\w+;\s+bra \$\w+;", ""), (r"cp\.async\.bulk\.wait_group 0;", ""),
    (r"st\.release\.gpu", "st.relaxed.gpu"),
])  # fmt: skip
def test_without_a_turn_the_sums_of_dq_race(pattern, instead):
    run, text = planted()
    match = re.search(pattern, text)
    text = text[: match.start()] + instead + text[match.end() :]
    assert run(ptx=text)[0][1].findings


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("turns", [lambda right: 0 * right, lambda right: right + 1])
def test_blocks_with_wrong_turns_race_or_wait_for_ever(turns):
    run = Run("steps", 128, 256)
    run.lists["visits"][..., 1] = turns(run.lists["visits"][..., 1])
    try:
        findings = run()[0][1].findings
    except DeadlockError as waits:
        findings = [waits]
    assert findings


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_they_build_without_spills(dim):
    of = Attention(head_dim=dim, value_dim=dim, block_mask=True)
    mask = captured(FUNCTIONS["window"], "mask_mod").function
    for each in (of, replace(of, mask_mod=mask)):
        for config in (backward_config(each), values_config(backward_config(each))):
            found = None if config is None else attention_backward.build(each, config).resources()
            assert found is None or not (found.spills or found.serialisation_notes)
