"""The configurations of Hopper's large-product kernels that are worth considering for a product.

They follow from the problem's sizes by arithmetic on shared memory and registers, never from known shapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ...collective.epilogue.spec import Fusion
from ...kernels.hopper.description import PANEL, SHALLOW, SHARED_BYTES, Config, Product
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from ..views import round_up

MOST_STAGES, FEWEST_STAGES = 8, {"ping_pong": 2, "cooperative": 3, "staggered": 3}
L2_BYTES = 50e6
"""The L2 of an H100, about: a larger D replaces A and B there, and a larger B has left it before the next row of
tiles."""
SHORT_K_BYTES = 1024
"""Bytes of a row of A up to which K is short; see `for_short_k`."""
SHALLOW_STAGES = 8
"""Shallow stages of K up to which they are candidates: each costs time, and more of them hide the rows of a box that
are outside."""
HALF_STAGES_K = range(256, 385)
"""K of which stages of half a k-tile are candidates even if they leave no fewer rows outside: 5120 x 2560 x 302 in
benchmarks/results/nvidia-h100/sweep-short-k.json."""
FEWEST_ROWS, MOST_ROWS = 32, 128
"""Range of rows of A in which columns are cut to whole waves."""
LEAST_COLUMNS, MOST_COLUMNS = 64, 256
_PLAIN = Fusion()


@dataclass(frozen=True)
class Shape:
    """A tile and its consumers, before stages and clusters are decided."""

    kernel_schedule: str
    tile_m: int
    consumers: int
    columns: tuple[int, ...]
    epi_stages: int


SHAPES = (
    Shape("ping_pong", 64, 2, (64, 96, 128, 160, 192, 256), 1),
    Shape("ping_pong", 128, 2, (64, 96, 128, 144, 160, 176, 192, 208), 1),
    Shape("cooperative", 128, 2, (64, 96, 128, 144, 160, 176, 192, 208, 224, 240, 256), 2),
    Shape("cooperative", 192, 3, (128, 160, 176, 192), 1),
    Shape("cooperative", 256, 2, (64, 96, 112, 128, 144, 160, 176, 192, 208), 2),
    Shape("staggered", 256, 2, (96, 112, 128, 144, 160, 176, 192), 2),
)
"""Rows in the forms that the generator builds, columns in steps that suit the tail of a wave."""


def hopper(problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """Tiles, clusters and rings of the large-product kernels."""
    for shape in SHAPES:
        if shape.tile_m >= 2 * round_up(problem.m, 64):
            continue  # half of the tile would be padding
        columns = [n for n in shape.columns if n % column_step(problem.product) == 0]
        widths = [n for n in columns if n < 2 * round_up(problem.n, 16)] or columns[:1]
        for tile_n, tile_k in itertools.product(widths, depths(problem)):
            plain = Config(
                kernel_schedule=shape.kernel_schedule,
                tile_m=shape.tile_m,
                tile_n=tile_n,
                consumers=shape.consumers,
                epi_stages=shape.epi_stages,
                ctas=1,
                tile_k=tile_k,
            )
            if has_idle_consumer(plain, problem, gpu):
                continue
            for config in clustered(plain, problem, gpu):
                filled = with_stages(config, problem.product, problem.fusion)
                if filled is not None:
                    yield filled


def has_idle_consumer(config: Config, problem: Problem, gpu: Gpu) -> bool:
    """True for a ping-pong kernel whose CTAs get one tile at most: the other warpgroup has none. A cooperative kernel
    of the same tile gives each half of it; a tile of 64 rows cannot be halved."""
    tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
    return config.kernel_schedule == "ping_pong" and config.tile_m > 64 and tiles <= gpu.sms


def column_step(of: Product) -> int:
    """The step of a tile's columns. An MN-major B at any other width has a narrower swizzle and is read at as little as
    half the rate (`NARROW_SWIZZLE`)."""
    return PANEL if of.b_major == "MN" else 8 if of.a.is_float else 16


def depths(problem: Problem) -> list[int]:
    """Values of `tile_k`: 0, and for a short K of MN-major operands those that leave fewer rows of boxes outside."""
    if "K" in (problem.product.a_major, problem.product.b_major):
        return [0]
    rows = {each: -(-problem.k // each) * each for each in (problem.product.tile_k, *sorted(SHALLOW, reverse=True))}
    found = [0]
    for tile_k, covered in rows.items():
        fewest = rows[found[-1] or problem.product.tile_k]
        half = tile_k == max(SHALLOW) and covered == fewest and covered in HALF_STAGES_K
        if half or (covered < fewest and covered <= SHALLOW_STAGES * tile_k):
            found.append(tile_k)
    return found


def whole_waves(problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """Columns cut so that every multiprocessor has the same number of tiles: for few rows of A, but so many that the
    small-M kernel is slow because its tiles leave a wave half empty."""
    if not FEWEST_ROWS < problem.m <= MOST_ROWS or problem.n <= LEAST_COLUMNS * gpu.sms:
        return
    rows = round_up(problem.m, 64)
    waves = -(-problem.n // (MOST_COLUMNS * gpu.sms))
    for each in (waves, waves + 1):
        columns = round_up(-(-problem.n // (each * gpu.sms)), column_step(problem.product))
        plain = Config("cooperative", rows, columns, consumers=rows // 64, epi_stages=2, ctas=1)
        config = with_stages(replace(plain, group=band(plain, gpu)), problem.product, problem.fusion)
        if config is not None and columns > LEAST_COLUMNS:
            yield config


@lru_cache(maxsize=64)
def cached_whole_waves(problem: Problem, gpu: Gpu) -> frozenset[Config]:
    return frozenset(whole_waves(problem, gpu))


def clustered(config: Config, problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """One CTA, and two that share the longer operand tile (either, if the last wave's tiles are split: that changes
    how many remain); not if the second would have nothing to do."""
    yield replace(config, ctas=1, multicast="b", group=band(config, gpu))
    majors = {"a": problem.product.a_major, "b": problem.product.b_major}
    longer = "b" if config.tile_n >= config.tile_m else "a"
    shared = False
    for operand in (longer, "a" if longer == "b" else "b"):
        across = problem.m > config.tile_m if operand == "b" else problem.n > config.tile_n
        rows = config.tile_n if operand == "b" else config.tile_m
        if not across or rows % (16 if majors[operand] == "K" else 2 * PANEL):
            continue  # slices are rows of a K-major tile, and panels of an MN-major one
        pair = replace(config, ctas=2, multicast=operand)
        pair = replace(pair, group=band(pair, gpu))
        if not shared:
            yield pair
            shared = True
        splits = config.kernel_schedule != "ping_pong" and config.consumers == 2 and not config.tile_k
        if splits and has_tail(pair, problem, gpu):
            yield replace(pair, split_tail=True)


def has_tail(config: Config, problem: Problem, gpu: Gpu) -> bool:
    """True if the last wave is at most half full, so that two CTAs can take each of its tiles."""
    rows, columns = config.cluster_tile
    tiles, clusters = -(-problem.m // rows) * -(-problem.n // columns), gpu.sms // config.ctas
    return tiles > clusters and 0 < tiles % clusters <= clusters // 2


def band(config: Config, gpu: Gpu) -> int:
    """Height of a raster band: clusters that run together cover a square of D, so they read least."""
    rows, columns = config.cluster_tile
    clusters = gpu.sms // config.ctas
    height = max(1.0, (clusters * columns / rows) ** 0.5)
    return min(16, max(1, 1 << round_log2(height)))


def round_log2(value: float) -> int:
    """log2, rounded to the nearest integer."""
    power = 0
    while 2**power * 1.4142 < value:
        power += 1
    return power


@lru_cache(maxsize=4096)
def with_stages(config: Config, product: Product, fusion: Fusion = _PLAIN) -> Config | None:
    """The configuration with as many stages as shared memory holds, or None if its form does not fit. Fewer store
    boxes are used if the stages would be too few."""
    wanted = FEWEST_STAGES[config.kernel_schedule]
    stage = config.stage_bytes(product)
    for epi_stages in range(config.epi_stages, 0, -1):
        room = SHARED_BYTES - replace(config, epi_stages=epi_stages, stages=0).shared_bytes(product, fusion)
        stages = min(MOST_STAGES, room // stage)
        if stages >= wanted:
            break
    else:
        return None
    made = replace(config, epi_stages=epi_stages, stages=stages)
    for more in (2, 1):
        wider = replace(made, epi_stages=epi_stages + more)
        if stages < MOST_STAGES and wider.shared_bytes(product, fusion) <= SHARED_BYTES:
            made = wider
            break
    return made if fits(made, product, fusion) else None


def row_order_pays(config: Config, problem: Problem) -> bool:
    """True if tiles may go row by row: B stays in L2, or there is one row of tiles. Otherwise B is read from memory for
    each row of tiles: e4m3 608 x 151936 x 896 then took 1.45 times as long
    (benchmarks/results/nvidia-h200/sweep-losers-e4m3.json)."""
    return problem.m <= config.cluster_tile[0] or problem.n * problem.k * problem.product.b.bytes <= L2_BYTES


def for_short_k(config: Config, problem: Problem) -> Iterator[Config]:
    """For a short K, the configuration with store boxes for half or all of a consumer's tile, at the cost of stages: a
    consumer that waits for a box multiplies nothing. And tiles row by row, so that memory gets whole rows of D, if that
    pays (`row_order_pays`). A D larger than L2 is marked to be evicted first, so that A and B stay there: 3 to 12 %
    faster on the median in benchmarks/results/nvidia-h100/sweep-store-order.json."""
    product, fusion = problem.product, problem.fusion
    if problem.k * product.a.bytes > SHORT_K_BYTES:
        return
    count = config.boxes(product)
    by_rows = row_order_pays(config, problem)
    for boxes in {config.epi_stages, -(-count // 2), count}:
        room = SHARED_BYTES - replace(config, epi_stages=boxes, stages=0).shared_bytes(product, fusion)
        stages = min(MOST_STAGES, room // config.stage_bytes(product))
        made = replace(config, epi_stages=boxes, stages=stages)
        if boxes < config.epi_stages or stages < FEWEST_STAGES[config.kernel_schedule]:
            continue
        made = replace(made, evict_first=problem.m * problem.n * product.out.bytes > L2_BYTES)
        variants = (made, replace(made, group=1)) if by_rows else (made,)
        yield from (each for each in variants if each != config and fits(each, product, fusion))


def fits(config: Config, product: Product, fusion: Fusion) -> bool:
    """True if a kernel can be built from a configuration without spills."""
    return config.violated(product, fusion) is None and config.fits_registers(product, fusion)
