"""Rung 18: tiles along a Hilbert curve; concurrent tiles are close together, at every scale.

Idea       The 66 clusters of an H200 work on 66 consecutive tile numbers. In bands of fixed height these are a
           rectangle of that height; along a Hilbert curve, any interval of numbers is a compact patch, whatever its
           length. It needs few rows of A and B, and most of them are still in L2 from the previous interval.

               0  3  4  5
               1  2  7  6        squares of 8 x 8 clusters, side by side in bands of 8;
              14 13  8  9        tiles that do not fill a square go column by column
              15 12 11 10

           The threads compute the curve, three bits per tile, without a table.
Reuses     CONSUMERS of rung 12, CTAS and produce of rung 15, the registers of rung 16, Config, declare and consume of
           rung 17
Roles, Barriers, Buffers, Timeline as on rung 17
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 764 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from ...collective import Persistent, TmaPipeline, TmaStore, each_consumer, producer, warpgroup_index
from ...collective.tile import cluster
from ...collective.tile.raster import hilbert
from ...isa.dtypes import bf16
from ...lang import Kernel, smem
from ..gemm_mainloop import k_tiles
from .r12_two_consumers import CONSUMERS
from .r15_multicast import CTAS, produce
from .r16_registers import CONSUMER_REGISTERS, PRODUCER_REGISTERS
from .r17_tma_store import Config, consume, declare

BITS = 3
"""The curve fills squares with sides of 2^BITS clusters."""


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("hilbert", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, ctas=CTAS, a=a, b=b)
        out = TmaStore(C, CONSUMERS, epi_stages=config.epi_stages, matrices=False)
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), hilbert(BITS), CTAS)  # rung 17: grouped(BAND)
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(ring, work, A, B, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(ring, work, me, out, num_k_tiles)
        cluster.leave()

    return gemm
