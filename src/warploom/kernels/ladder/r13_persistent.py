"""Rung 13: persistent CTAs; the producer loads the next tile while the consumers store this one.

Idea       One CTA per SM computes many tiles of C in a loop. Barriers, tensor maps and roles are set up once, and the
           ring does not stop at the end of a tile: its stages hold the first k-tiles of the next tile while the
           consumers are still storing. Without this, an SM's tensor core idles from the last wgmma of a CTA until the
           next CTA's first bytes arrive.
Reuses     load of rung 11, CONSUMERS, Config and multiply of rung 12
Roles      as on rung 12
Barriers   as on rung 12; phases continue across tiles
Buffers    as on rung 12
Timeline   producer    tile 0 [0 1 2 ... n] tile 1 [0 1 2 3] waits      [4 ...
           consumers      tile 0 [wgmmas .......][store] tile 1 [wgmmas ....
Order      bands of 8 tile rows, column by column: concurrent tiles share rows of A and of B
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 660 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from ...collective import WARPGROUP, Persistent, TmaPipeline, each_consumer, persistent_grid, producer, warpgroup_index
from ...collective.epilogue.direct_store import store_accumulators
from ...collective.mma.wgmma import set_zero, wgmma_accumulators
from ...collective.tile.raster import grouped
from ...isa.dtypes import bf16
from ...lang import Kernel, smem
from ..gemm_mainloop import k_tiles
from .operands import hopper_kernel, operands, result
from .r11_warp_specialised import load
from .r12_two_consumers import CONSUMERS, Config, multiply

BAND = 8
"""Tile rows per band of the tile order."""


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("persistent", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, every_thread=True, a=a, b=b)
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(BAND))
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup):
            produce(ring, work, A, B, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS):
            consume(ring, work, me, C, num_k_tiles)

    return gemm


def declare(name, config):
    """As many CTAs as SMs, if C has that many tiles."""
    return hopper_kernel(
        name=name,
        in_specs=operands(config.tile_m, config.tile_n, config.tile_k),
        out_specs=(result(),),
        grid=persistent_grid((config.tile_m, config.tile_n)),
        block=(1 + CONSUMERS) * WARPGROUP,
    )


def produce(ring, work, A, B, num_k_tiles):
    """The producer: load the k-tiles of all tiles of this CTA, in order; the ring does not stop between tiles."""
    state = ring.producer_state()
    for tile in work.tiles():
        load(ring, state, A, B, tile.row, tile.column, num_k_tiles)


def consume(ring, work, me, C, num_k_tiles):
    """Consumer `me`: multiply and store its rows of every tile."""
    rows, columns = work.tile[0] // CONSUMERS, work.tile[1]
    state, acc = ring.consumer_state(), wgmma_accumulators(rows, columns)
    for tile in work.tiles():
        set_zero(acc)
        multiply(ring, state, acc, me * rows, num_k_tiles)
        store_accumulators(acc, C, tile.row + me * rows, tile.column)
