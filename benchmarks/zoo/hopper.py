"""The complete Hopper kernels of the zoo, in small configurations that still exercise everything.

The split tail needs four multiprocessors: five pairs of tiles for two clusters leave one pair after two waves. Each
tile of that pair belongs to one cluster, with three k-tiles per CTA and a ring of two stages. A staggered consumer
crosses from tile to tile, so it gets seven pairs; it takes another path if its CTA has only one tile, so it also gets
three. Rungs 22 and 23 are configurations of the same kernel and are included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from warploom.kernels import ladder
from warploom.kernels.hopper import block_scaled, free_tile, gemm, grouped, small_m
from warploom.kernels.hopper.description import Config, Fusion, Product
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.runtime import H200
from warploom.types import e4m3

Arguments = Callable[[], tuple[Any, ...]]
Given = tuple[str, Any, tuple[Arguments, ...], Any]
"""Name, kernel, function that makes its arguments, machine."""
SAMPLE = 60
"""Mutants of each of these that a run for evidence judges, drawn with a fixed seed, because they take longer."""
TAIL = H200(sms=4)
FEW = H200(sms=2)
BESIDE = Fusion(bias="column", activation="gelu", addend=True)


def kernels() -> Iterator[Given]:
    """All of them."""
    for number, sizes in ((22, (5,)), (23, (7, 3))):
        rung = ladder.RUNGS[number - 1]
        config = rung.load().Config(tile_n=64, stages=2, epi_stages=1)
        yield rung.module, rung.load().build(config), tuple(pairs_of_tiles(count) for count in sizes), TAIL
    cluster = SmallMConfig(tokens=8, k_tiles=1, stages=2, split_k=2, constant_weights=True)
    yield "decode_cluster", small_m.build(config=cluster), (lambda: normal((8, 640), (64, 640)),), FEW
    for name, config in (
        ("decode_last", SmallMConfig(tokens=8, k_tiles=1, stages=2, split_k=2, split_by="last")),
        ("decode_streamed", SmallMConfig(tokens=8, k_tiles=1, stages=2, split_by="stream")),
    ):
        yield name, small_m.build(config=config), (lambda config=config: with_workspace(config),), FEW
    split = FreeTileConfig(tile_m=64, tile_n=16, consumers=1, stages=2, split_k=2, prefetch=1)
    yield "free_tile_split", free_tile.build(config=split), (lambda: normal((64, 640), (24, 640)),), FEW
    several = FreeTileConfig(swap_ab=True, tile_m=64, tile_n=16, consumers=1, stages=2, persistent=True, prefetch=1)
    yield "free_tile_persistent", free_tile.build(config=several), (lambda: normal((40, 192), (72, 192)),), FEW
    small = Config(tile_m=128, tile_n=64, ctas=1, epi_stages=1, stages=2)
    yield "grouped", grouped.build(config=small), (groups,), FEW
    scaled = Config(tile_m=128, tile_n=64, ctas=1, epi_stages=1, stages=2)
    yield "block_scaled", block_scaled.build(Product(e4m3, e4m3), scaled), (scales,), FEW
    yield "fused", gemm.build(config=small, fusion=BESIDE), (fused,), FEW
    ahead = Config(tile_m=64, tile_n=64, consumers=1, ctas=1, epi_stages=1, stages=2, constant_weights=True)
    yield "constant_weights", gemm.build(config=ahead), (lambda: normal((128, 320), (128, 320)),), FEW
    turns = Config("ping_pong", tile_m=64, tile_n=64, ctas=1, epi_stages=1, stages=3)
    yield "ping_pong", gemm.build(config=turns), (lambda: normal((128, 256), (256, 256)),), FEW


def normal(*shapes: tuple[int, ...], dtype: Any = ml_dtypes.bfloat16) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(0)
    return tuple(draw.standard_normal(shape).astype(dtype) for shape in shapes)


def pairs_of_tiles(count: int) -> Arguments:
    """This many pairs of tiles of 256 x 64, the tiles of a cluster's CTAs, and five k-tiles."""
    return lambda: normal((512, 320), (64 * count, 320))


def with_workspace(config: SmallMConfig) -> tuple[np.ndarray, ...]:
    a, w = normal((8, 640), (192, 640))
    shape, counters = config.workspace(8, 192, FEW.sms)
    return a, w, np.zeros(shape, np.float32), np.zeros(counters, np.uint32)


def groups() -> tuple[np.ndarray, ...]:
    """Three groups: three full tiles and a partial one, no rows, less than one tile."""
    a, b = normal((520, 128), (3 * 64, 128))
    d = np.zeros((520, 64), ml_dtypes.bfloat16)
    return a, b, np.array([0, 428, 428], np.int32), np.array([428, 428, 518], np.int32), d


def scales() -> tuple[np.ndarray, ...]:
    a, b = normal((256, 384), (128, 384), dtype=ml_dtypes.float8_e4m3fn)
    return a, b, *normal((3, 256), (1, 3), dtype=np.float32)


def fused() -> tuple[Any, ...]:
    a, b, bias, residual = normal((256, 256), (128, 256), (128,), (256, 128))
    return a, b, bias, residual, 1.0
