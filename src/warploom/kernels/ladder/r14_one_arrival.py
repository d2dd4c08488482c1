"""Rung 14: cheap barriers; one thread arrives where one suffices.

Idea       For each k-tile, the earlier rungs let 256 threads arrive on full[s] and again on empty[s]. The arrivals on
           full[s] are not needed: a consumer only waits for the bytes. On empty[s], one arrival per warpgroup is
           enough: wgmmas belong to the warpgroup, so when one thread has waited for them, their reads are complete.
           Same kernel, same waits, 512 fewer arrivals per k-tile: `TmaPipeline` without `every_thread`.
Reuses     CONSUMERS and Config of rung 12, BAND, declare, produce and consume of rung 13
Barriers   full[s]    1 arrival + bytes                    producer -> both consumers
           empty[s]   2 arrivals, one of each consumer     consumers -> producer
Roles, Buffers, Timeline as on rung 13
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 704 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from ...collective import Persistent, TmaPipeline, each_consumer, producer, warpgroup_index
from ...collective.tile.raster import grouped
from ...isa.dtypes import bf16
from ...lang import Kernel, smem
from ..gemm_mainloop import k_tiles
from .r12_two_consumers import CONSUMERS, Config
from .r13_persistent import BAND, consume, declare, produce


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("one_arrival", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, a=a, b=b)  # rung 13: every_thread=True
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(BAND))
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup):
            produce(ring, work, A, B, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS):
            consume(ring, work, me, C, num_k_tiles)

    return gemm
