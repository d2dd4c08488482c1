"""The forms of a free tile: alone, in clusters, split in K, persistent; as many warpgroups and stages as fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from .free_tile_config import BLOCK, MAX_ACCUMULATORS, MAX_ACCUMULATORS_SETMAXNREG, FreeTileConfig

SHORT_STAGE = 128
"""Rows of a stage below which two k-tiles share a barrier."""
_MIN_STAGES = 3


def warpgroups(rows: int, columns: int) -> tuple[int, bool]:
    """Warpgroups that split the rows, and whether they take registers from the producer. As few warpgroups as registers
    allow: fewer of them wait less for each other."""
    blocks = rows // BLOCK
    for consumers in MAX_ACCUMULATORS:
        if blocks % consumers == 0 and blocks // consumers * columns // 2 <= MAX_ACCUMULATORS[consumers][1]:
            return consumers, False
    for consumers, most in MAX_ACCUMULATORS_SETMAXNREG.items():
        if blocks % consumers == 0 and blocks // consumers * columns // 2 <= most:
            return consumers, True
    return max(MAX_ACCUMULATORS), False


def regrouped(config: FreeTileConfig) -> Iterator[FreeTileConfig]:
    """The same tile with its rows split over other warpgroups, fewest first, then with registers moved to them: for an
    epilogue that needs registers of its own. None if the splits of K are in a cluster, which fixes the warpgroups."""
    if config.in_cluster > 1:
        return
    for setmaxnreg, known in ((False, MAX_ACCUMULATORS), (True, MAX_ACCUMULATORS_SETMAXNREG)):
        for consumers in known:
            if config.tile_m % (BLOCK * consumers) == 0:
                yield from _filled(replace(config, consumers=consumers, setmaxnreg=setmaxnreg))


class TileForms(NamedTuple):
    """The forms of a tile: in one wave (alone, clustered along the tokens, split in K by clusters or through a
    workspace), and persistent."""

    alone: tuple[FreeTileConfig, ...]
    cluster: tuple[FreeTileConfig, ...]
    split_k: tuple[FreeTileConfig, ...]
    last: tuple[FreeTileConfig, ...]
    persistent: tuple[FreeTileConfig, ...]


@lru_cache(maxsize=4096)
def tile_forms(swap_ab: bool, rows: int, columns: int, vector_store: bool, read_once: bool, deep: bool) -> TileForms:
    """The forms of a tile that fit registers and shared memory, each with as many stages as fit.

    deep: K has more than one k-tile, so that two can share a barrier.
    """
    consumers, setmaxnreg = warpgroups(rows, columns)
    tile = FreeTileConfig(
        swap_ab=swap_ab, tile_m=rows, tile_n=columns, consumers=consumers,
        vector_store=vector_store, setmaxnreg=setmaxnreg,
        evict_first=read_once, k_tiles=2 if rows + columns < SHORT_STAGE and deep else 1,
    )  # fmt: skip
    one = replace(tile, setmaxnreg=setmaxnreg and tile.accumulators > MAX_ACCUMULATORS[consumers][0])
    split = replace(tile, consumers=rows // BLOCK, setmaxnreg=False)
    return TileForms(
        _filled(one), tuple(found for each in (2, 3) for found in _filled(replace(one, cluster=each))),
        tuple(found for each in (2, 3, 4) if each <= columns // 8 for found in _filled(replace(split, split_k=each))),
        _filled(replace(tile, split_k=2, split_by="last")), _filled(replace(tile, persistent=True)),
    )  # fmt: skip


def _filled(config: FreeTileConfig) -> tuple[FreeTileConfig, ...]:
    """The configuration with as many stages as fit; empty if they are too few or the registers do not suffice."""
    most = config.max_accumulators
    if config.in_cluster > 1:
        _, most = MAX_ACCUMULATORS.get(config.consumers, (0, 0))
    if config.accumulators > most:
        return ()
    full = config.filled()
    return (full,) if full.stages >= _MIN_STAGES else ()
