"""What a configuration of any kind reads, multiplies and writes, beside the time of its estimate.

The estimates of the kinds differ in what they count: those of large tiles know nothing of L2, those of free tiles
nothing of the rows that waves read again. These numbers are the same for all kinds, so that the correction can compare
them. `at_least` keeps an estimate above the time in which the GPU's memory moves A, B and D.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ...isa.residency import clusters_at_once
from ...kernels.hopper.description import TILE_K_BYTES, Config
from ...kernels.hopper.free_tile_choice import contiguous, from_small_m, unaligned_fraction
from ...kernels.hopper.free_tile_config import BLOCK, FreeTileConfig
from ...kernels.hopper.small_m_config import SmallMConfig
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .free_tile import rates_of

H200_GBPS = 4800
"""Assumed memory speed of a GPU that does not report it."""
REACHED = 0.92
"""The share of the memory's speed that a kernel reaches: 0.90 of it for the fastest hundredth of the timings in the
sweeps, 0.97 for the fastest of all."""
SHARPNESS = 8
"""An estimate and the memory's time are joined by this norm: where they are equal, the sum is 9 % above both."""
L2_BYTES = 50e6
SECTOR = 32
"""Bytes of L2 that are read together."""
MANY_TILES = 12
"""From so many tiles of a CTA, it no longer matters whether they are odd or even."""
TRAFFIC = (
    "memory bound", "reads of waves", "bytes of a wave", "k outside", "fills", "lines of boxes", "run of weights",
    "run of tokens", "writes", "computed outside", "multiplied", "odd tiles", "inside sectors", "requests",
    "own fills", "own lines",
)  # fmt: skip
"""The features: how far memory is above the estimate; rows that all waves read, in those of A and B; what one reads, in
that of L2; k-tiles' zeros; the times that L2 takes for the fills, TMA for the lines of its boxes, memory for D and the
tensor cores for the products, in that of the estimate; bytes of each operand that are contiguous in a box; elements of
tiles outside D; whether a CTA has an odd number of tiles; rows that begin inside sectors; a CTA's requests to L2 in
a microsecond; and, if CTAs share operands, the times of L2 and TMA for the slices that each loads itself."""


class _Cover(NamedTuple):
    """How tiles cover a product: a tile's tokens and weights, those of a cluster, clusters that run together, the
    height of a band in clusters (0: all), splits of K, CTAs that share an operand, and k and k-tiles of a stage."""

    tokens: int
    weights: int
    rows: int
    columns: int
    together: int
    group: int
    splits: int
    of_weights: int
    of_tokens: int
    stage_k: int
    k_tiles: int


def memory_us(problem: Problem, gpu: Gpu) -> float:
    """Microseconds in which the GPU's memory moves A, B and D once."""
    m, n, k, product = problem.m, problem.n, problem.k, problem.product
    moved = (m + n) * k * product.a.bytes + m * n * product.out.bytes
    return moved / ((gpu.memory_gbps or H200_GBPS) * 1e3 * REACHED)


def at_least(estimated_us: float, least_us: float) -> float:
    """The estimate, but no less than the memory's time. The families' estimates have the memory of an H200."""
    longer = max(estimated_us, least_us)
    return longer * (1 + (min(estimated_us, least_us) / longer) ** SHARPNESS) ** (1 / SHARPNESS)


def _cover(config: Any, problem: Problem, gpu: Gpu) -> _Cover:
    if isinstance(config, Config):
        rows, columns = config.cluster_tile
        shared = bool(config.multicast)
        return _Cover(
            config.tile_m, config.tile_n, rows, columns, gpu.sms // config.ctas, config.group, 1,
            rows // config.tile_m if shared else 1, columns // config.tile_n if shared else 1,
            config.stage_k(problem.product), 1,
        )  # fmt: skip
    tile: FreeTileConfig = from_small_m(config) if isinstance(config, SmallMConfig) else config
    shared = bool(tile.multicast)
    return _Cover(
        tile.tokens, tile.weights, tile.tokens * tile.along_tokens, tile.weights * tile.along_weights,
        max(1, clusters_at_once(tile.ctas, gpu.sms)), tile.group, tile.split_k,
        tile.along_tokens if shared else 1, tile.along_weights if shared else 1,
        problem.product.tile_k * tile.k_tiles, tile.k_tiles,
    )  # fmt: skip


def _of_a_wave(cover: _Cover, m: int, n: int) -> tuple[int, int]:
    """The number of waves, and rows of A and B that one reads."""
    across, down = -(-m // cover.tokens), -(-n // cover.weights)
    across, down = -(-across // (cover.rows // cover.tokens)), -(-down // (cover.columns // cover.weights))
    group, concurrent = min(cover.group or across, across), min(cover.together, across * down)
    columns = min(down, -(-concurrent // group))
    rows = min(across, max(group, -(-concurrent // columns)))
    return -(-across * down // cover.together), min(m, rows * cover.rows) + min(n, columns * cover.columns)


def traffic(config: Any, problem: Problem, gpu: Gpu, estimated_us: float) -> dict[str, float]:
    """The features `TRAFFIC` of a configuration with this estimate."""
    cover, product, rates = _cover(config, problem, gpu), problem.product, rates_of(gpu)
    m, n, k, width = problem.m, problem.n, problem.k, problem.product.a.bytes
    waves, rows = _of_a_wave(cover, m, n)
    across, down = -(-m // cover.tokens), -(-n // cover.weights)
    inner = contiguous(m, n, k, product)
    of_tokens, of_weights = (1 + unaligned_fraction(each, product) for each in inner)
    fills_of_weights, fills_of_tokens = across * n * k * width * of_weights, down * m * k * width * of_tokens
    filled = fills_of_weights / cover.of_weights + rates.tokens * fills_of_tokens / cover.of_tokens
    depth = -(-k // cover.stage_k) * cover.stage_k
    each_cta = -(-across * down * cover.splits // gpu.sms)
    k_tiles = each_cta * depth / cover.splits / product.tile_k
    lines = k_tiles * (cover.tokens * of_tokens + cover.weights * of_weights)
    own = fills_of_weights / cover.of_weights + fills_of_tokens / cover.of_tokens
    own_lines = k_tiles * (cover.tokens * of_tokens / cover.of_tokens + cover.weights * of_weights / cover.of_weights)
    clocks = 4 * k_tiles * cover.tokens * cover.weights / (2 * BLOCK)
    run_of_weights, run_of_tokens = (
        extent * width if major == "MN" else TILE_K_BYTES * cover.k_tiles
        for extent, major in ((cover.weights, product.b_major), (cover.tokens, product.a_major))
    )
    requested = (fills_of_weights + fills_of_tokens) / gpu.sms / estimated_us
    again = max(1.0, waves * rows / (m + n)) if waves > 1 else 1.0
    found = (
        math.log2(memory_us(problem, gpu) / estimated_us), math.log2(again),
        math.log2(rows * k * width / L2_BYTES), depth / k - 1, filled / rates.l2 / estimated_us,
        lines * rates.row / rates.clock / estimated_us, math.log2(run_of_weights) - 7, math.log2(run_of_tokens) - 7,
        m * n * product.out.bytes / (H200_GBPS * 1e3) / estimated_us,
        math.log2(across * down * cover.tokens * cover.weights / (m * n)), clocks / rates.clock / estimated_us,
        each_cta % 2 if each_cta < MANY_TILES else 0.5,
        sum(1 - math.gcd(each * width, SECTOR) / SECTOR for each in inner), math.log2(requested) - 10,
        own / rates.l2 / estimated_us, own_lines * rates.row / rates.clock / estimated_us,
    )  # fmt: skip
    return {name: float(value) for name, value in zip(TRAFFIC, found, strict=True)}
