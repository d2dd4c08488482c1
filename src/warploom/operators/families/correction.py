"""Correction of the families' estimates for each kind of configuration, fitted to a sweep of all of them.

    expected time = the family's estimate, but at least the memory's time (`traffic`), x exp(trees(y))

y are the `FEATURES` of a configuration and a product: its kind, how its tiles cover the product, how the estimate
divides the time, what it reads and writes, the sizes, and the speed of the GPU's memory. `benchmarks/fit_choice.py`
fitted the trees (`trees`) to the sweeps in benchmarks/results/nvidia-h200 and nvidia-h100, to choose well within each
product. They are judged there on layers that were held out of the fit. They ship as tables/choice-sm_90.json; other
GPUs of sm_90 use them too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ...isa.residency import clusters_at_once
from ...kernels.hopper.description import Config
from ...kernels.hopper.free_tile_choice import (
    H200_RATES,
    contiguous,
    expected,
    features,
    from_small_m,
    sharing_worth_trying,
    unaligned_fraction,
    waves_of,
)
from ...kernels.hopper.free_tile_config import FreeTileConfig
from ...kernels.hopper.small_m_config import SmallMConfig
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .free_tile import rates_of, short_epilogue
from .hopper_large import estimate as large_estimate
from .hopper_large_tiles import depths, row_order_pays
from .traffic import H200_GBPS, TRAFFIC, at_least, memory_us, traffic
from .trees import Trees

FILE = Path(__file__).parent.parent / "tables" / "choice-sm_90.json"
FEATURES = (
    "one", "rows", "columns", "depth", "astride", "memory", "weights along n", "tokens along m", "one byte",
    "row scales", "size of D", "wide rows", "unaligned tokens",
    # tiles of all kinds
    "tile tokens", "tile weights", "fills of tokens", "fills of weights", "last wave", "k-tiles of a CTA",
    # free tiles, and small-M configurations that count as the tiles they are like
    "free", "swapped", "tile_m 128", "tile_m 192", "tile_m 256", "consumers 2", "consumers 3", "consumers 4", "moved",
    "persistent", "split 2", "split more", "neighbours", "shared weights", "shared tokens", "shared by four",
    "shared by eight", "two k-tiles", "evict first", "two CTAs", "two blocks", "small M", "streamed", "element stores",
    "tile_n", "area", "idle", "waves", "stages", "in flight", "mma", "tma", "hbm", "l2", "end", "tiles of tokens",
    "k-tiles of a part", "rows outside", "columns outside", "tiles of weights", "places", "by the last", "splits",
    "tiles of a band", "exchange", "time",
    # large tiles
    "large", "ping-pong", "staggered", "pairs", "split tail", "three consumers", "64 rows", "256 rows", "large tile_n",
    "large area", "large idle", "large waves", "activity", "exposed", "large rows outside", "large stages", "shallow",
    "band", "boxes in flight", "stages of K", "evict D",
    # all kinds
    *TRAFFIC,
)  # fmt: skip
_COLUMN = {name: index for index, name in enumerate(FEATURES)}
OPERAND_US, OF_PAIR_US, OF_ELEMENT_US, OPERAND_OF_LARGE_US = 0.79, 0.016, 0.15, 1.7
"""Microseconds of a gate or an addend for a free tile, and for each accumulator of a thread; for each accumulator of a
small-M kernel, which loads and stores element by element; for a wave of large tiles. Taken from
benchmarks/results/nvidia-h200/fused-ends.json."""
SCALES_OF_LARGE_US = 0.14
"""Extra microseconds of row scales for a wave of large tiles, beyond the estimate. Free tiles load them before their
products, which takes 0.02 us of a tile. It is the extra time of configurations with row scales compared with tensor
scales, from sweep-e4m3-row.json and sweep-e4m3-tensor.json there."""
LARGE_FROM = 385
"""Rows from which large tiles were the fastest for some product of the sweep; with fewer rows, in none of 79."""
NEAR = 0.1
"""The fit only separates configurations of one product: those within about this share of the fastest keep the mean of
their estimates."""
MOST = 0.5
"""The logarithm of a correction is clamped here: nothing was measured beyond it."""


def numbers(config: Any, problem: Problem, gpu: Gpu, estimated_us: float) -> tuple[float, np.ndarray]:
    """Estimated microseconds, and y."""
    y = np.zeros(len(FEATURES))
    m, n, k = problem.m, problem.n, problem.k * problem.product.a.bytes / 2
    found = {"one": 1.0, "rows": math.log2(m) - 7, "columns": math.log2(n) - 13, "depth": math.log2(k) - 12}
    found["unaligned tokens"], found["astride"] = (
        unaligned_fraction(inner, problem.product)
        for inner in contiguous(problem.m, problem.n, problem.k, problem.product)
    )
    found["weights along n"], found["tokens along m"] = (
        float(major == "MN") for major in (problem.product.b_major, problem.product.a_major)
    )
    found["one byte"] = float(problem.product.a.bytes == 1)
    found["row scales"] = float(problem.fusion.scales == "row")
    found["size of D"] = math.log2(m * n * problem.product.out.bytes) - 25
    found["wide rows"] = math.log2(n * problem.product.out.bytes) - 13
    found["memory"] = math.log2((gpu.memory_gbps or H200_GBPS) / H200_GBPS)
    if isinstance(config, Config):
        time = estimated_us
        found |= _large(config, problem, gpu)
    else:
        time, more = _tile(config, problem, gpu, estimated_us)
        found |= more
    found |= _covered(config, problem, gpu) | traffic(config, problem, gpu, time)
    for name, value in found.items():
        y[_COLUMN[name]] = value
    return at_least(time, memory_us(problem, gpu)), y


def _unaligned_weights(problem: Problem) -> float:
    inner = contiguous(problem.m, problem.n, problem.k, problem.product)[1]
    return unaligned_fraction(inner, problem.product)


def _covered(config: Any, problem: Problem, gpu: Gpu) -> dict[str, float]:
    """How tiles of any kind cover the product: their sizes, how often both operands are filled into shared memory, in
    bytes of A and B, how full the last wave is, and the k-tiles of a CTA."""
    m, n, product = problem.m, problem.n, problem.product
    if isinstance(config, Config):
        tokens, weights, (rows, columns) = config.tile_m, config.tile_n, config.cluster_tile
        across, down, splits, at_once = float(-(-m // rows)), float(-(-n // columns)), 1, gpu.sms
    else:
        tile: FreeTileConfig = from_small_m(config) if isinstance(config, SmallMConfig) else config
        tokens, weights, splits = tile.tokens, tile.weights, tile.split_k
        across, down = (-(-size // rows) / ctas for size, rows, ctas in (
            (m, tokens, tile.along_tokens), (n, weights, tile.along_weights)))  # fmt: skip
        at_once = max(1, clusters_at_once(tile.ctas, gpu.sms)) * tile.cluster
    tiles = -(-m // tokens) * -(-n // weights)
    k_tiles = -(-tiles * splits // at_once) * -(-problem.k // product.tile_k) / splits
    return {
        "tile tokens": math.log2(tokens) - 6, "tile weights": math.log2(weights) - 6,
        "fills of weights": math.log2(across * n / (m + n) + 0.01),
        "fills of tokens": math.log2(down * m / (m + n) + 0.01), "last wave": (tiles % at_once or at_once) / at_once,
        "k-tiles of a CTA": math.log2(max(1.0, k_tiles)) - 6,
    }  # fmt: skip


def _tile(config: Any, problem: Problem, gpu: Gpu, estimated_us: float) -> tuple[float, dict[str, float]]:
    small = isinstance(config, SmallMConfig)
    streamed = small and config.shared_workspace
    tile: FreeTileConfig = from_small_m(config) if isinstance(config, SmallMConfig) else config
    m, n = problem.m, problem.n
    known = features(tile, m, n, problem.k, problem.product, sms=gpu.sms)
    terms = expected(known, rates_of(gpu))
    total = estimated_us if streamed else terms.total
    across, down = -(-m // tile.tokens), -(-n // tile.weights)
    waves, ctas = waves_of(tile, m, n, gpu.sms), across * down * tile.split_k
    idle = 0.0 if streamed else max(0.0, waves * gpu.sms * tile.ctas_per_sm / ctas - 1)
    depth = -(-problem.k // problem.product.tile_k)
    found = {
        "free": not small, "swapped": tile.swap_ab, "tile_m 128": tile.tile_m == 128, "tile_m 192": tile.tile_m == 192,
        "tile_m 256": tile.tile_m == 256, "consumers 2": tile.consumers == 2, "consumers 3": tile.consumers == 3,
        "consumers 4": tile.consumers == 4, "moved": tile.setmaxnreg, "persistent": tile.persistent,
        "split 2": tile.split_k == 2, "split more": tile.split_k > 2, "neighbours": tile.cluster > 1,
        "shared weights": tile.along_tokens > 1, "shared tokens": tile.along_weights > 1,
        "shared by four": bool(tile.multicast) and tile.cluster > 2, "shared by eight": tile.cluster > 4,
        "two k-tiles": tile.k_tiles == 2, "evict first": tile.evict_first, "two CTAs": tile.ctas_per_sm > 1,
        "two blocks": tile.blocks > 1, "small M": small and not streamed, "streamed": streamed,
        "element stores": not tile.vector_store, "tile_n": math.log2(tile.tile_n) - 6,
        "area": math.log2(tile.tile_m * tile.tile_n) - 13, "idle": idle, "waves": math.log2(max(waves, 1)),
        "stages": math.log2(tile.stages) - 3, "in flight": math.log2(known.flying / 26e6), "mma": terms.mma / total,
        "tma": terms.tma / total, "hbm": terms.hbm / total, "l2": terms.l2 / total, "end": terms.end / total,
        "tiles of tokens": math.log2(1 + across), "k-tiles of a part": math.log2(depth / tile.split_k) - 5,
        "tiles of weights": math.log2(1 + down), "places": math.log2(ctas / gpu.sms),
        "by the last": not small and tile.shared_workspace, "splits": math.log2(tile.split_k),
        "tiles of a band": math.log2(1 + tile.group), "exchange": H200_RATES.exchange * known.exchanged / total,
        "time": math.log2(total) - 5,
        "rows outside": math.log2(across * tile.tokens / m), "columns outside": math.log2(down * tile.weights / n),
    }  # fmt: skip
    return total, {name: float(value) for name, value in found.items()}


def _large(config: Config, problem: Problem, gpu: Gpu) -> dict[str, float]:
    known = large_estimate(config, problem, gpu)
    found = {
        "large": 1, "ping-pong": config.kernel_schedule == "ping_pong", "pairs": config.ctas == 2,
        "staggered": config.kernel_schedule == "staggered", "split tail": config.split_tail,
        "three consumers": config.consumers == 3, "64 rows": config.tile_m == 64, "256 rows": config.tile_m == 256,
        "large tile_n": math.log2(config.tile_n) - 7, "large area": math.log2(config.tile_m * config.tile_n) - 15,
        "large idle": 1 - known.wave_efficiency, "large waves": math.log2(max(known.waves, 0.5)),
        "activity": known.activity, "exposed": known.exposed, "large stages": math.log2(config.stages) - 2,
        "large rows outside": -(-problem.m // config.tile_m) * config.tile_m / problem.m - 1,
        "shallow": config.tile_k and 64 / config.tile_k, "band": math.log2(config.group),
        "evict D": config.evict_first, "stages of K": math.log2(-(-problem.k // config.stage_k(problem.product))),
        "boxes in flight": config.epi_stages / config.boxes(problem.product),
    }  # fmt: skip
    return {name: float(value) for name, value in found.items()}


@lru_cache(maxsize=8)
def forest(path: Path = FILE) -> Trees:
    """The fitted trees. Raises ArgumentError for a file whose features are not those of this version."""
    try:
        return Trees.of(json.loads(path.read_text()), FEATURES)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ArgumentError(f"the model of the choice cannot be read: {type(error).__name__} {error}",
                            got=path.name, hint="it is part of the package: reinstall it") from None  # fmt: skip


def without_operands(problem: Problem) -> Problem:
    """The product without its gate and addend, which the sweep did not have."""
    return replace(problem, fusion=replace(problem.fusion, gate=False, addend=False))


def epilogue_us(config: Any, problem: Problem, gpu: Gpu) -> float:
    """Microseconds that a gate, an addend and row scales add to the epilogues of a CTA's tiles."""
    operands = problem.fusion.gate + problem.fusion.addend
    if isinstance(config, Config):
        each = OPERAND_OF_LARGE_US * operands + SCALES_OF_LARGE_US * (problem.fusion.scales == "row")
        return each * large_estimate(config, problem, gpu).waves
    small = isinstance(config, SmallMConfig)
    tile: FreeTileConfig = from_small_m(config) if isinstance(config, SmallMConfig) else config
    sums = tile.accumulators / tile.split_k
    each = OF_ELEMENT_US * sums if small else OPERAND_US + OF_PAIR_US * sums
    return waves_of(tile, problem.m, problem.n, gpu.sms) * operands * each


def considered(config: Any, problem: Problem, gpu: Gpu) -> bool:
    """True if a configuration was the fastest of such products often enough in the sweep to be considered, if there are
    free tiles. Large tiles for few rows were not, unless they overlap the loads or computation of a fused epilogue; nor
    were small-M kernels with two CTAs per multiprocessor, the fastest of 15 products in 101, by 7 % at most; nor free
    tiles that share an operand, except those that are `sharing_worth_trying`."""
    if isinstance(config, Config):
        offered = config.tile_k in depths(problem) and (config.group > 1 or row_order_pays(config, problem))
        return offered and (problem.m >= LARGE_FROM or not short_epilogue(problem))
    if isinstance(config, FreeTileConfig):
        waves, lines = waves_of(config, problem.m, problem.n, gpu.sms), _unaligned_weights(problem)
        way = config.cluster, config.multicast
        return not config.multicast or way in sharing_worth_trying(config.persistent, waves, lines)
    return not (isinstance(config, SmallMConfig) and config.ctas_per_sm > 1)


def measured(configs: Sequence[Any]) -> bool:
    """True if the sweep has timed configurations of these families."""
    return all(isinstance(config, (Config, FreeTileConfig, SmallMConfig)) for config in configs)


def corrected(configs: Sequence[Any], estimated_us: Sequence[float], problem: Problem, gpu: Gpu) -> list[float]:
    """Microseconds of each configuration, as the corrected model expects them."""
    if not configs:
        return []
    times, ys = zip(*(numbers(config, problem, gpu, us) for config, us in zip(configs, estimated_us, strict=True)),
                    strict=True)  # fmt: skip
    logarithm = np.clip(forest().values(np.stack(ys)), -MOST, MOST)
    made = np.array(times) * np.exp(logarithm)
    near = np.exp((1 - made / made.min()) / NEAR)
    return [float(time) for time in made * math.exp(-float((near * logarithm).sum() / near.sum()))]
