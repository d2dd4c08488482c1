"""Which free tile for a product: every tile that fits, each with the microseconds that a fitted model expects.

The model adds up what a tile waits for (microseconds; `Rates` has the constants, fitted to a sweep):

    mma      wgmmas of a CTA:   4 k blocks max(n / 2, 16 + n / 4) / clock      k: k-tiles of 128 bytes, over all waves
    tma      rows of boxes:     k (tile_m + tile_n) row / clock
    hbm      bytes of A, W, D   / bandwidth, more where few bytes are on their way
    l2       fills of all CTAs  / l2, those of the tokens weighed less: neighbours' loads of the same rows are merged
    m        the largest of max(mma, tma), hbm, l2

    T = start + m + overlap (max(mma, tma) + hbm + l2 - m) + epilogue (tile / 128 x 128) + what the form adds
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .description import TILE_K_BYTES, Product
from .free_tile_config import BLOCK, MOST_ACCUMULATORS, FreeTileConfig

SMS = 132
CLUSTERS = {1: 132, 2: 66, 3: 39, 4: 30}
"""How many clusters of so many CTAs an H200 holds at one time, with one CTA on each multiprocessor."""
MOST_ROWS = 512
"""Rows of A for which this family is thought."""
FEW = 64
_SHORT_STAGE = 128
"""Rows of a stage below which two k-tiles share a barrier."""
_LEAST_STAGES = 3


@dataclass(frozen=True)
class Rates:
    """The constants of the model; those of an H200 by default."""

    clock: float = 1412.0
    row: float = 1.48
    bandwidth: float = 5.204e6
    latency: float = 0.456
    in_flight: float = 26e6
    l2: float = 9.474e6
    tokens: float = 0.363
    start: float = 0.912
    overlap: float = 0.18
    epilogue: float = 0.596
    wave: float = 1.547
    split: float = 0.604
    exchange: float = 2.69
    one_k_tile: float = 0.26
    prefetched: float = 0.256


H200_RATES = Rates()


def estimate(
    config: FreeTileConfig, m: int, n: int, k: int, product: Product = Product(), sms: int = SMS,  # noqa: B008
    rates: Rates = H200_RATES,
) -> float:  # fmt: skip
    """Microseconds that the model expects of D (m, n) with K = k."""
    width = product.a.bytes
    tiles = -(-m // config.tokens) * -(-n // config.weights)
    slots = sms * config.ctas_per_sm if config.ctas == 1 else CLUSTERS.get(config.ctas, sms // config.ctas)
    waves = -(-tiles // (sms if config.persistent else slots))
    depth = waves * -(-k * width // (config.k_tiles * TILE_K_BYTES)) * config.k_tiles / config.split
    mma = 4 * depth * (config.tile_m // BLOCK) * max(config.tile_n / 2, 16 + config.tile_n / 4) / rates.clock
    rows = min(config.tokens, m) + min(config.weights, n)
    tma = depth * rows * rates.row / rates.clock
    ctas = min(tiles * config.split, sms * config.ctas_per_sm)
    flying = min(ctas * config.stages * config.stage_bytes, 1 << 30)
    hbm = ((m + n) * k * width + m * n * product.out.bytes) / rates.bandwidth
    hbm *= 1 + rates.latency * max(0.0, 1 - flying / rates.in_flight)
    fills = -(-m // config.tokens) * n + rates.tokens * -(-n // config.weights) * m
    l2 = fills * k * width / rates.l2
    multiprocessor = max(mma, tma)
    longest = max(multiprocessor, hbm, l2)
    tile = config.tile_m * config.tile_n / config.split / 16384
    time = rates.start + longest + rates.overlap * (multiprocessor + hbm + l2 - longest)
    time += rates.epilogue * tile * (waves if config.persistent else 1)
    if not config.persistent:
        time += rates.wave * (waves - 1)
    if config.split > 1:
        time += rates.split + rates.exchange * tile * (config.split - 1)
    if config.k_tiles == 1 and config.tile_m + config.tile_n < _SHORT_STAGE:
        time += rates.one_k_tile
    if m <= FEW and not config.constant_weights:
        time += rates.prefetched
    return time


def fitting(m: int, n: int, k: int, product: Product = Product(), sms: int = SMS) -> Iterator[FreeTileConfig]:  # noqa: B008
    """Every free tile that makes sense for a product: none much larger than the tensor, in as few waves as it may."""
    whole = n * product.out.bytes % 16 == 0
    depth = -(-k * product.a.bytes // TILE_K_BYTES)
    for swapped in (False, True):
        on_m, on_n = (n, m) if swapped else (m, n)
        for rows, consumers in ((64, 1), (128, 2), (128, 1), (192, 3), (256, 4)):
            if rows > BLOCK and rows - BLOCK >= on_m:
                continue
            for columns in range(8, min(256, -(-on_n // 8) * 8) + 1, 8):
                one = FreeTileConfig(
                    swapped=swapped, tile_m=rows, tile_n=columns, consumers=consumers, whole=whole,
                    k_tiles=2 if rows + columns < _SHORT_STAGE and depth > 1 else 1,
                )  # fmt: skip
                tiles = -(-on_m // rows) * -(-on_n // columns)
                if columns < on_n and columns < 256 and tiles > sms and _narrower_is_no_worse(columns, on_n):
                    continue
                yield from _forms(one, tiles, depth, sms)


def _narrower_is_no_worse(columns: int, extent: int) -> bool:
    """Whether a tile 8 columns narrower needs no more tiles."""
    return columns > 8 and -(-extent // (columns - 8)) == -(-extent // columns)


def _forms(config: FreeTileConfig, tiles: int, depth: int, sms: int) -> Iterator[FreeTileConfig]:
    """A tile in one wave, split in K where that leaves room, or persistent."""
    alone, several = MOST_ACCUMULATORS[config.consumers]
    if tiles <= sms or tiles <= 2 * sms:
        if config.accumulators <= alone:
            yield from _filled(config)
        for parts in (2, 3, 4):
            fits = tiles <= CLUSTERS[parts] and config.blocks == 1 and parts <= config.tile_n // 8
            if fits and depth >= 8 * parts and config.accumulators <= several:
                yield from _filled(replace(config, split=parts))
    if tiles > sms and config.accumulators <= several:
        yield from _filled(replace(config, persistent=True))


def _filled(config: FreeTileConfig) -> Iterator[FreeTileConfig]:
    """With all stages that fit, if they are enough."""
    full = config.filled()
    if full.stages >= _LEAST_STAGES and full._problem(Product()) is None:  # noqa: SLF001 - of the same family
        yield full


def ranked(
    m: int, n: int, k: int, product: Product = Product(), sms: int = SMS, *, constant_weights: bool = False,  # noqa: B008
    rates: Rates = H200_RATES,
) -> list[tuple[FreeTileConfig, float]]:  # fmt: skip
    """Every fitting tile and the microseconds that the model expects, the fastest first."""
    found = [replace(one, constant_weights=constant_weights) for one in fitting(m, n, k, product, sms)]
    timed = [(one, estimate(one, m, n, k, product, sms, rates)) for one in found]
    return sorted(timed, key=lambda each: each[1])
