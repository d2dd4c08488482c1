"""Which configurations a sweep of free tiles times for a product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from warploom.kernels.hopper import free_tile_choice
from warploom.kernels.hopper.decode_config import DecodeConfig
from warploom.kernels.hopper.description import Config
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.lab.problem import Problem
from warploom.lab.through_library import library_problem
from warploom.lab.warploom_contender import product_of
from warploom.operators.families import ranked as ranked_by_model
from warploom.operators.families.hopper_large import hopper
from warploom.operators.spec.gpu import EMULATED

MOST_CANDIDATES, BY_MODEL = 16, 6
WITHIN = 1.6
"""What the model expects to take so many times as long as its first is not timed."""
DECODE_ROWS, STREAM_ROWS = 64, 256
"""Rows up to which the small-M kernels are timed: split in whole tiles, and streamed."""
AnyConfig = FreeTileConfig | DecodeConfig | Config


def candidates(problem: Problem, sms: int = free_tile_choice.SMS) -> list[AnyConfig]:
    """The configurations worth timing: the model's first ones, the first of each form, and variants of the very first.

    The first of each form are for the fit: a model that only saw its own favourites would never learn of others.
    """
    product = product_of(problem)
    ranked = free_tile_choice.ranked(problem.m, problem.n, problem.k, product, sms)
    if not ranked:
        return []
    best, fastest = ranked[0]
    chosen: dict[AnyConfig, None] = dict.fromkeys(config for config, _ in ranked[:BY_MODEL])
    chosen.update(dict.fromkeys(_variants(problem, best)))
    seen = {_form(config) for config in chosen if isinstance(config, FreeTileConfig)}
    for config, estimate in ranked:
        if estimate <= WITHIN * fastest and _form(config) not in seen:
            seen.add(_form(config))
            chosen[config] = None
    return list(chosen)[:MOST_CANDIDATES]


def _form(config: FreeTileConfig) -> tuple[object, ...]:
    return config.swapped, config.tile_m, config.split, config.persistent, config.neighbours


def _variants(problem: Problem, best: FreeTileConfig) -> Iterator[AnyConfig]:
    """Of the model's first: with the promise of constant weights; with neighbours together; for few rows, decode."""
    if problem.m <= DECODE_ROWS:
        yield replace(best, constant_weights=True)
        yield from _decodes(problem)
    else:
        yield replace(best, evict_first=True)
    if problem.m <= STREAM_ROWS:
        tokens = -(-problem.m // 8) * 8
        for rows in (64, 128) if problem.m > DECODE_ROWS else (64,):
            streamed = DecodeConfig(tokens=tokens, rows=rows, k_tiles=1, split_by="stream", prefetch=3)
            yield replace(streamed, wide=problem.m > 16 and problem.n % 8 == 0).filled()
    asked = library_problem(problem)
    wide = [each for each in hopper(asked, EMULATED) if each.tile_m >= 128]
    yield from [config for config, _ in ranked_by_model(wide, asked, EMULATED)[:2]] if problem.m > DECODE_ROWS else []


def _decodes(problem: Problem) -> Iterator[DecodeConfig]:
    """Tiles of 64 weights and all tokens, split so that one wave of CTAs is as full as it gets."""
    tiles = -(-problem.n // 64)
    for per_sm in (1, 2):
        parts = min(4, free_tile_choice.SMS * per_sm // tiles)
        if parts:
            yield DecodeConfig(
                tokens=-(-problem.m // 8) * 8, split=parts, ctas_per_sm=per_sm, prefetch=3,
                wide=problem.m > 16 and problem.n % 8 == 0,
            ).filled()  # fmt: skip
