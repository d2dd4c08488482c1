"""Rung 19: stmatrix; a warp writes 16 x 16 of its result in one instruction.

Idea       A thread holds pairs of columns of C, 4 bytes in bf16, so rung 17 takes one store per pair and row: 64 for a
           tile of 64 x 256. stmatrix is the inverse of ldmatrix: each lane passes the address of one row of 16 bytes,
           and the hardware moves every lane's pairs there, in 16 instructions.
Reuses     CONSUMERS of rung 12, CTAS and produce of rung 15, the registers of rung 16, Config, declare and consume of
           rung 17, BITS of rung 18
Roles, Barriers, Buffers, Timeline as on rung 17; each box is written in a quarter of the instructions
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 1 % more than rung 18 (*Inside NVIDIA GPUs*)
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
from .r18_hilbert import BITS


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("stmatrix", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, ctas=CTAS, a=a, b=b)
        out = TmaStore(C, CONSUMERS, epi_stages=config.epi_stages, matrices=True)  # rung 18: False
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), hilbert(BITS), CTAS)
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(ring, work, A, B, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(ring, work, me, out, num_k_tiles)
        cluster.leave()

    return gemm
