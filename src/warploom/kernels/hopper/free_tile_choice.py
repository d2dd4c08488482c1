"""The choice of a free tile: every tile that fits, with the time in microseconds that a fitted model expects.

The model adds up the times that a tile waits for, in microseconds (`Rates` has the constants, fitted to a sweep):

    mma      wgmmas of a CTA:   4 k blocks max(n / 2, 16 + n / 4) / clock      k: k-tiles of 128 bytes, over all waves
    tma      rows of boxes:     k (tile_m + tile_n) row / clock
    hbm      bytes of A, W, D   / bandwidth, more if few bytes are in flight
    l2       fills of all CTAs  / l2, the tokens' weighted less: loads of the same rows by adjacent CTAs are merged
    m        the largest of max(mma, tma), hbm, l2

    T = start + m + overlap (max(mma, tma) + hbm + l2 - m) + epilogue (tile / 128 x 128) + terms of the form
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...collective.tile.cluster import SLICE_ROWS
from ...isa.residency import clusters_at_once
from .description import TILE_K_BYTES, Product
from .free_tile_config import BLOCK, FreeTileConfig
from .free_tile_forms import SHORT_STAGE, tile_forms
from .small_m_config import MOST_SPLIT, SmallMConfig

MOST_ROWS = 32768
"""Rows of A up to which this family is meant to be used."""
SMALL_M_ROWS = 64
EVICT_FIRST_ROWS = 128
"""Rows up to which evict_first makes weights faster, by 2 to 5 % in the sweep; with more rows it does not, on average.
The sweep: benchmarks/results/nvidia-h200/sweep-free-tile.json."""
OUTSIDE_ROW = 4.0
"""The time of a row outside the tensor, in that of one inside."""
READ_BACK = 0.3
"""The time in which one CTA reads partial sums from a workspace, in that of the exchange of as many in a cluster."""
LONG_K, DEEP_SPLIT = 192, 32
"""k-tiles, at least, of a product and of each split, if the splits meet in a workspace: adding them up takes
microseconds. The shortest K for which they won by more than 2 % had 459 in
benchmarks/results/nvidia-h200/sweep-choice.json,
but those that were timed for 192 to 459 are few."""
MIN_BAND_SAVING = 0.1
"""The share of rows that bands must save; see `banded`."""


@dataclass(frozen=True)
class Rates:
    """The constants of the model, by default an H200's, from benchmarks/results/nvidia-h200/free-tile-model.json
    (`benchmarks/fit_free_tile.py`). They are fitted, not physical. Units are microseconds, and clocks, rows or bytes
    per microsecond."""

    clock: float = 1317
    row: float = 1.563
    bandwidth: float = 5.529e6
    latency: float = 0.5312
    in_flight: float = 26e6
    l2: float = 9.419e6
    tokens: float = 0.27
    start: float = 1.046
    overlap: float = 0.1775
    epilogue: float = 0.2147
    wave: float = 1.682
    split: float = 0.2653
    exchange: float = 2.865
    one_k_tile: float = 0.2603
    prefetched: float = 0.313
    clear: float = 4.962e-06
    parts: float = 0.03589
    idle: float = 0.1049
    consumers: float = 0.01465


H200_RATES = Rates()


class Features(NamedTuple):
    """The inputs of the model for a tile and a product: numbers, or arrays of numbers if many are fitted at once.

    Attributes:
        mma, rows: per SM: clocks of its wgmmas, rows of the boxes that it loads.
        bytes: bytes of A, W and D.
        flying: bytes of all stages of all CTAs.
        weights, tokens: bytes that all CTAs load of each; the fraction of rows that begin inside a line
            (`unaligned_fraction`) counts twice.
        end: tiles of 128 x 128 that a CTA stores.
        waves: waves after the first, if CTAs are not persistent.
        split, exchanged: whether K is split; tiles of 128 x 128 that a CTA sends.
        short: whether a stage is short and has one k-tile.
        few: whether weights of few tokens are only prefetched.
        cleared: bytes of zeros in a ring, if the previous kernel leaves no space to write them while it runs.
        parts: splits of K, minus one.
        idle: unused CTA slots of the waves, per CTA.
        consumers: consumer warpgroups, minus one.
    """

    mma: Any
    rows: Any
    bytes: Any
    flying: Any
    weights: Any
    tokens: Any
    end: Any
    waves: Any
    split: Any
    exchanged: Any
    short: Any
    few: Any
    cleared: Any
    parts: Any
    idle: Any
    consumers: Any


class Terms(NamedTuple):
    """The times that a tile waits for, in microseconds, and the total; see the module's docstring."""

    mma: Any
    tma: Any
    hbm: Any
    l2: Any
    end: Any
    total: Any


def waves_of(config: FreeTileConfig, m: int, n: int, sms: int) -> int:
    """The number of waves of tiles."""
    across, down = -(-m // config.tokens), -(-n // config.weights)
    tiles = across * down
    if config.multicast:
        tiles = config.clusters(across, down) * config.cluster
    resident = max(1, clusters_at_once(config.ctas, sms)) * config.cluster
    if config.shared_workspace:
        resident = max(1, clusters_at_once(config.cluster, sms) // config.split_k) * config.cluster
    return -(-tiles // (resident if config.persistent else resident * config.ctas_per_sm))


def features(
    config: FreeTileConfig, m: int, n: int, k: int, product: Product = Product(), *, sms: int,  # noqa: B008
) -> Features:  # fmt: skip
    """The features of D (m, n) with K = k."""
    width, waves = product.a.bytes, waves_of(config, m, n, sms)
    across, down = -(-m // config.tokens), -(-n // config.weights)
    of_k = -(-k * width // (config.k_tiles * TILE_K_BYTES)) * config.k_tiles
    depth, tile = waves * of_k / config.split_k, config.tile_m * config.tile_n / config.in_cluster / 16384
    lines_a, lines_b = (1 + unaligned_fraction(inner, product) for inner in contiguous(m, n, k, product))
    return Features(
        mma=4 * depth * (config.tile_m // BLOCK) * max(config.tile_n / 2, 16 + config.tile_n / 4),
        rows=depth * (min(config.tokens, m) + min(config.weights, n)) + waves * outside_rows(config, k, product),
        bytes=(m + n) * k * width + m * n * product.out.bytes,
        flying=min(across * down * config.split_k, sms * config.ctas_per_sm) * config.stages * config.stage_bytes,
        weights=lines_b * across * n * k * width / _load_divisor(config, "weights", lines_b == 1),
        tokens=lines_a * down * m * k * width / _load_divisor(config, "tokens", False),
        end=tile * (waves if config.persistent else 1),
        waves=0 if config.persistent else waves - 1,
        split=config.split_k > 1,
        exchanged=tile * (READ_BACK * config.split_k if config.shared_workspace else config.split_k - 1),
        short=config.k_tiles == 1 and config.tile_m + config.tile_n < SHORT_STAGE,
        few=m <= SMALL_M_ROWS and not config.constant_weights,
        cleared=config.zero_fill * (2 * across * down * config.split_k > sms) * unfilled_bytes(config, m, n),
        parts=config.split_k - 1,
        idle=waves * sms * config.ctas_per_sm / (across * down * config.split_k) - 1,
        consumers=config.consumers - 1,
    )


def _load_divisor(config: FreeTileConfig, operand: str, merged: bool) -> int:
    """The divisor of an operand's bytes: CTAs share the operand, or L2 merges their concurrent loads."""
    if config.multicast:
        return config.along_tokens if operand == "weights" else config.along_weights
    return config.cluster if merged else 1


def unfilled_bytes(config: FreeTileConfig, m: int, n: int) -> int:
    """Bytes of the ring that no box fills."""
    rows = max(0, config.tokens - m) + max(0, config.weights - n)
    return rows * TILE_K_BYTES * config.k_tiles * config.stages


def from_small_m(config: SmallMConfig) -> FreeTileConfig:
    """The free tile equivalent to a small-M configuration whose splits of K, if any, are the CTAs of a cluster."""
    return FreeTileConfig(
        swap_ab=True, tile_m=config.rows, tile_n=config.tokens, consumers=config.consumers, k_tiles=config.k_tiles,
        stages=config.stages, split_k=config.split_k, ctas_per_sm=config.ctas_per_sm, evict_first=True,
        prefetch=config.prefetch, constant_weights=config.constant_weights,
    )  # fmt: skip


def expected(f: Features, rates: Rates = H200_RATES, maximum: Callable[[Any, Any], Any] = max) -> Terms:
    """The model's expectation. `maximum`: the maximum of two numbers, or elementwise of two arrays."""
    mma, tma = f.mma / rates.clock, f.rows * rates.row / rates.clock
    hbm = f.bytes / rates.bandwidth * (1 + rates.latency * maximum(0.0, 1 - f.flying / rates.in_flight))
    hbm = hbm * (1 + rates.idle * maximum(0.0, f.idle))
    l2 = (f.weights + rates.tokens * f.tokens) / rates.l2
    multiprocessor = maximum(mma, tma)
    longest = maximum(maximum(multiprocessor, hbm), l2)
    end = rates.epilogue * f.end + rates.split * f.split + rates.exchange * f.exchanged
    total = rates.start + longest + rates.overlap * (multiprocessor + hbm + l2 - longest) + end
    total = total + rates.wave * f.waves + rates.one_k_tile * f.short + rates.prefetched * f.few
    total = (total + rates.clear * f.cleared + rates.parts * f.parts) * (1 + rates.consumers * f.consumers)
    return Terms(mma, tma, hbm, l2, end, total)


def terms(
    config: FreeTileConfig, m: int, n: int, k: int, product: Product = Product(), *, sms: int,  # noqa: B008
    rates: Rates = H200_RATES,
) -> Terms:  # fmt: skip
    """The model's expectation for one tile and D (m, n) with K = k."""
    return expected(features(config, m, n, k, product, sms=sms), rates)


def contiguous(m: int, n: int, k: int, product: Product) -> tuple[int, int]:
    """The extents of A and of W that are contiguous in memory."""
    return k if product.a_major == "K" else m, k if product.b_major == "K" else n


def outside_rows(config: FreeTileConfig, k: int, product: Product) -> float:
    """Rows of k outside the tensor in the last boxes of MN-major operands, weighted by what one costs."""
    rows = sum(rows for rows, major in ((config.tokens, product.a_major), (config.weights, product.b_major))
               if major == "MN")  # fmt: skip
    return OUTSIDE_ROW * (-k % (config.k_tiles * product.tile_k)) * rows / BLOCK


def unaligned_fraction(inner: int, product: Product) -> float:
    """The fraction of the rows of an array, `inner` elements each, that begin inside a line of 128 bytes, so that a
    box's part of the row spans two lines and L2 gets that many more requests. Multicast then pays: 4 to 6 % in
    benchmarks/results/nvidia-h200/sweep-pairs.json, where it costs 1 to 10 % of other products. It pays more if rows
    begin inside sectors of 32 bytes (sweep-astride.json in the same folder)."""
    return 1 - math.gcd(inner * product.a.bytes, TILE_K_BYTES) / TILE_K_BYTES


Sharing = tuple[int, str]
"""How tiles share operands: CTAs per cluster, and the operands that they share."""
PAIRS: tuple[Sharing, ...] = ((2, "weights"), (2, "tokens"))
FOURS: tuple[Sharing, ...] = ((4, "weights"), (4, "tokens"))
BOTH: tuple[Sharing, ...] = ((4, "both"), (8, "both"))


def sharing_worth_trying(persistent: bool, waves: int, lines: float) -> tuple[Sharing, ...]:
    """The ways of sharing that are often faster: pairs, four and eight CTAs in one wave; pairs of persistent tiles, or
    where rows of K are `lines` astride. In benchmarks/results/nvidia-h100/sweep-uniform-clusters.json, the best pair
    that shares weights in one wave takes 0.99 times as long as the best tile that shares nothing, on the median.
    Four or eight win by more than 3 % for 17 to 43 % of the products, depending on the operands. In several waves, few
    win, most of them persistent pairs."""
    once = waves == 1 and not persistent
    return PAIRS * (persistent or once or lines > 0) + (FOURS + BOTH) * once


def sharing(config: FreeTileConfig, m: int, n: int, sms: int, ways: Sequence[Sharing]) -> Iterator[FreeTileConfig]:
    """The tile in clusters that share in each of these ways, if the GPU can run them, there are as many tiles, none is
    larger than the tensor (slices would load the rows outside it, too), and the number of waves stays the same."""
    if config.in_cluster > 1:
        return
    across, down, waves = -(-m // config.tokens), -(-n // config.weights), waves_of(config, m, n, sms)
    for cluster, multicast in ways:
        made = replace(config, cluster=cluster, multicast=multicast)
        sides = ((made.along_tokens, made.weights, n, across), (made.along_weights, made.tokens, m, down))
        fits = all(ctas == 1 or (ctas * SLICE_ROWS <= rows <= extent and tiles >= ctas)
                   for ctas, rows, extent, tiles in sides)  # fmt: skip
        if fits and clusters_at_once(made.ctas, sms) and waves_of(made, m, n, sms) == waves:
            yield made


def banded(config: FreeTileConfig, m: int, n: int, sms: int) -> FreeTileConfig:
    """The tile with the band height that loads the fewest rows per wave, if it has several waves and saves at least
    the share `MIN_BAND_SAVING` of the rows. If the band is all tokens, each wave reloads all of a tall A. With a
    long K, CTAs drift apart and what they no longer share comes from HBM: 8192 x 2048 x 28672 took 1.4 times as
    long as cuBLAS on an H100."""
    across, down = -(-m // config.tokens), -(-n // config.weights)
    if not config.persistent or not config.supports_group or waves_of(config, m, n, sms) == 1:
        return config
    tokens, weights, concurrent = config.tokens, config.weights, clusters_at_once(config.cluster, sms)
    across, tokens = -(-across // config.along_tokens), tokens * config.along_tokens
    down, weights = -(-down // config.along_weights), weights * config.along_weights

    def rows(group: int) -> int:
        columns = min(down, -(-concurrent // group))
        return min(across, max(group, -(-concurrent // columns))) * tokens + columns * weights

    best = min(range(1, across + 1), key=rows)
    return replace(config, group=best) if rows(best) <= (1 - MIN_BAND_SAVING) * rows(across) else config


def fitting(m: int, n: int, k: int, product: Product = Product(), *, sms: int) -> Iterator[FreeTileConfig]:  # noqa: B008
    """Every sensible free tile for a product: none much larger than the tensor, each in as few waves as possible."""
    vector_store = n * product.out.bytes % 16 == 0
    depth, lines = -(-k * product.a.bytes // TILE_K_BYTES), unaligned_fraction(contiguous(m, n, k, product)[1], product)
    together = {each: clusters_at_once(each, sms) for each in (1, 2, 3, 4)}
    for swap_ab in (False, True):
        on_m, on_n = (n, m) if swap_ab else (m, n)
        step = 8 if (product.a_major if swap_ab else product.b_major) == "K" else BLOCK
        for rows in (64, 128, 192, 256):
            if rows > BLOCK and rows - BLOCK >= on_m:
                continue
            down = -(-on_m // rows)
            for columns in range(step, min(256, -(-on_n // step) * step) + 1, step):
                over = -(-on_n // columns)
                tiles, across = down * over, over if swap_ab else down
                if (
                    columns < on_n
                    and columns < 256
                    and tiles > sms
                    and columns > step
                    and -(-on_n // (columns - step)) == over
                ):
                    continue  # the next narrower tile needs no more tiles
                forms = tile_forms(swap_ab, rows, columns, vector_store, m <= EVICT_FIRST_ROWS, depth > 1)
                for each in forms.alone if tiles <= 2 * sms else forms.persistent:
                    ways = sharing_worth_trying(each.persistent, waves_of(each, m, n, sms), lines)
                    yield from sharing(each, m, n, sms, ways)
                if tiles <= 2 * sms:
                    yield from forms.alone
                    for each in forms.cluster:
                        if across % each.cluster == 0 and tiles <= together[each.cluster] * each.cluster:
                            yield each
                    for each in forms.split_k:
                        if tiles <= together[each.split_k] and depth >= 8 * each.split_k:
                            yield each
                    if tiles <= sms // 2 and depth >= LONG_K:
                        yield from split_until_full(forms.last, m, n, depth, sms)
                if tiles > sms:
                    yield from forms.persistent


def split_until_full(
    forms: Sequence[FreeTileConfig], m: int, n: int, depth: int, sms: int
) -> Iterator[FreeTileConfig]:  # fmt: skip
    """Tiles whose splits meet in a workspace, alone and in clusters that share operands, in as many splits of `depth`
    k-tiles as one wave has room for."""
    for alone in forms:
        for each in (alone, *sharing(alone, m, n, sms, (*PAIRS, *FOURS, *BOTH))):
            clusters = each.clusters(-(-m // each.tokens), -(-n // each.weights))
            splits = min(clusters_at_once(each.ctas, sms) // clusters, depth // DEEP_SPLIT, MOST_SPLIT)
            if splits > 1:
                yield replace(each, split_k=splits)


def ranked(
    m: int, n: int, k: int, product: Product = Product(), *, sms: int, constant_weights: bool = False,  # noqa: B008
    rates: Rates = H200_RATES,
) -> list[tuple[FreeTileConfig, float]]:  # fmt: skip
    """Every fitting tile and the microseconds that the model expects, fastest first."""
    found = list(fitting(m, n, k, product, sms=sms))
    if constant_weights:
        found = [replace(one, constant_weights=True) for one in found]
    timed = [(one, terms(one, m, n, k, product, sms=sms, rates=rates).total) for one in found]
    return sorted(timed, key=lambda each: each[1])
