"""The configurations that a sweep of free tiles times for a product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from warploom.isa.residency import H200_SMS
from warploom.kernels.hopper import free_tile_choice
from warploom.kernels.hopper.description import Config
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.lab.warploom_contender import product_of
from warploom.lab.work import GemmWork
from warploom.operators.families import ranked as ranked_by_model
from warploom.operators.families.hopper_large_tiles import hopper
from warploom.operators.select import ranking
from warploom.operators.spec.gpu import EMULATED

MOST_CANDIDATES, BY_MODEL = 16, 6
LARGE_ROWS, LARGE = 512, 5
"""Rows above which as many large kernels as free tiles are timed; how many of them."""
WITHIN = 1.6
"""A configuration is not timed if the model expects it to take this many times as long as the first."""
DECODE_ROWS, STREAM_ROWS = 64, 256
"""Rows up to which the small-M kernels are timed: split in whole tiles, and streamed."""
AnyConfig = FreeTileConfig | SmallMConfig | Config


def chosen_first(problem: GemmWork, sms: int = H200_SMS, most: int = MOST_CANDIDATES) -> list[AnyConfig]:
    """The library's first choices, in its order: a fit that chooses among them must have seen them."""
    return [config for config, _ in ranking(problem.posed, replace(EMULATED, sms=sms))[:most]]


def first_of_forms(problem: GemmWork, sms: int = H200_SMS, most: int = MOST_CANDIDATES) -> list[AnyConfig]:
    """Half are the library's first choices, the others the model's first of each form. A fit that has only seen the
    favourites of an earlier choice picks a bad one among hundreds of candidates."""
    order = [config for config, _ in ranking(problem.posed, replace(EMULATED, sms=sms))]
    chosen: dict[AnyConfig, None] = dict.fromkeys(order[: most // 2])
    seen = {_any_form(config) for config in chosen}
    for config in order:
        if _any_form(config) not in seen:
            seen.add(_any_form(config))
            chosen[config] = None
    return list(chosen)[:most]


def _any_form(config: AnyConfig) -> tuple[object, ...]:
    if isinstance(config, FreeTileConfig):
        return (*_form(config), config.consumers, config.multicast)
    if isinstance(config, SmallMConfig):
        return config.rows, config.split_k, config.split_by
    tile = config.kernel_schedule, config.tile_m, config.tile_n // 64, config.tile_k
    return *tile, config.ctas, config.epi_stages, config.group > 1


def pairs(problem: GemmWork, sms: int = H200_SMS, most: int = MOST_CANDIDATES) -> list[AnyConfig]:
    """The library's first choices, and pairs of CTAs that share an operand."""
    return _sharing(problem, sms, most, free_tile_choice.PAIRS)


def clusters(problem: GemmWork, sms: int = H200_SMS, most: int = MOST_CANDIDATES) -> list[AnyConfig]:
    """The library's first choices, and clusters of two, four and eight CTAs that share one operand or both."""
    return _sharing(problem, sms, most, (*free_tile_choice.PAIRS, *free_tile_choice.BOTH, *free_tile_choice.FOURS))


def _sharing(problem: GemmWork, sms: int, most: int, ways: Sequence[free_tile_choice.Sharing]) -> list[AnyConfig]:
    """The library's first choices, and clusters that share in some of these ways: variants of its first tile, then the
    model's first, half of them in one wave or none."""
    asked = problem.posed
    ours = [config for config, _ in ranking(asked, replace(EMULATED, sms=sms))]
    chosen: dict[AnyConfig, None] = dict.fromkeys(ours[: max(2, most // 4)])
    sizes, product = (problem.m, problem.n, problem.k), product_of(problem)
    tiles = [config for config in ours if isinstance(config, FreeTileConfig)]
    ranked = [config for config, _ in free_tile_choice.ranked(*sizes, product, sms=sms)]
    unsplit = (config for config in [*tiles[:3], *ranked] if config.split_k == 1)
    alone = list(dict.fromkeys(replace(config, cluster=1, multicast="") for config in unsplit))
    shared = [one for config in alone for one in free_tile_choice.sharing(config, *sizes[:2], sms, ways)]
    first = shared[:4]
    timed = sorted(shared, key=lambda each: free_tile_choice.terms(each, *sizes, product, sms=sms).total)
    seen: set[tuple[object, ...]] = set()
    for pair in [*first, *timed]:
        form = pair.swap_ab, pair.tile_m, pair.tile_n // 24, pair.persistent, pair.multicast, pair.cluster
        if pair in first or form not in seen:
            chosen[pair] = None
            seen.add(form)
    return list(chosen)[:most]


def candidates(problem: GemmWork, sms: int = H200_SMS, most: int = MOST_CANDIDATES) -> list[AnyConfig]:
    """The configurations worth timing: the model's first, the first of each form, and variants of the very first.

    The first of each form are for the fit: a model that only sees its own favourites never learns about others.
    """
    if problem.m > LARGE_ROWS:
        return [*_large(problem, LARGE), *_free(problem, sms, max(2, most - LARGE))]
    product = product_of(problem)
    ranked = free_tile_choice.ranked(problem.m, problem.n, problem.k, product, sms=sms)
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
    return list(chosen)[:most]


def _free(problem: GemmWork, sms: int, count: int) -> list[FreeTileConfig]:
    """The model's first of each form, fastest first."""
    ranked = free_tile_choice.ranked(problem.m, problem.n, problem.k, product_of(problem), sms=sms)
    first: dict[tuple[object, ...], FreeTileConfig] = {}
    for config, estimate in ranked:
        if estimate <= WITHIN * ranked[0][1]:
            first.setdefault((*_form(config), config.setmaxnreg), config)
    return list(first.values())[:count]


def _large(problem: GemmWork, count: int) -> list[Config]:
    """The first large kernels by their own model, one per tile."""
    asked = problem.posed
    first: dict[tuple[object, ...], Config] = {}
    for config, _ in ranked_by_model(list(hopper(asked, EMULATED)), asked, EMULATED):
        first.setdefault((config.kernel_schedule, config.tile_m, config.tile_n), config)
    return list(first.values())[:count]


def _form(config: FreeTileConfig) -> tuple[object, ...]:
    return config.swap_ab, config.tile_m, config.split_k, config.split_by, config.persistent, config.cluster


def _variants(problem: GemmWork, best: FreeTileConfig) -> Iterator[AnyConfig]:
    """Variants of the model's first: with constant weights; with clusters; for few rows, decode."""
    if problem.m <= DECODE_ROWS:
        yield replace(best, constant_weights=True)
        yield from _decodes(problem)
    else:
        yield replace(best, evict_first=True)
    if problem.m <= STREAM_ROWS:
        tokens = -(-problem.m // 8) * 8
        for rows in (64, 128) if problem.m > DECODE_ROWS else (64,):
            streamed = SmallMConfig(tokens=tokens, rows=rows, k_tiles=1, split_by="stream", prefetch=3)
            yield replace(streamed, vector_store=problem.m > 16 and problem.n % 8 == 0).filled()
    asked = problem.posed
    wide = [each for each in hopper(asked, EMULATED) if each.tile_m >= 128]
    yield from [config for config, _ in ranked_by_model(wide, asked, EMULATED)[:2]] if problem.m > DECODE_ROWS else []


def _decodes(problem: GemmWork) -> Iterator[SmallMConfig]:
    """Tiles of 64 weights and all tokens, split so that one wave of CTAs is as full as possible."""
    tiles = -(-problem.n // 64)
    for per_sm in (1, 2):
        parts = min(4, H200_SMS * per_sm // tiles)
        if parts:
            yield SmallMConfig(
                tokens=-(-problem.m // 8) * 8, split_k=parts, ctas_per_sm=per_sm, prefetch=3,
                vector_store=problem.m > 16 and problem.n % 8 == 0,
            ).filled()  # fmt: skip
