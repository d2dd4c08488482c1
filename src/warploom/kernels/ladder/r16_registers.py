"""Rung 16: registers move to the consumers, zeros are not written, stores are evicted first.

Idea       Three small changes that cost nothing.
           1. The producer's 128 threads hold 168 registers each and use few. They release them (setmaxnreg.dec), and
              the consumers take them, for more overlap now and larger tiles later.
           2. 128 moves zero the accumulators of each tile. Instead, the first wgmma of a tile can overwrite them: its
              scale-d is a predicate, false for the first k-tile.
           3. C is written once and not read again. Stores marked as streaming (st.global.cs) are evicted first from
              the L2 cache, which should keep A and B.
Reuses     CONSUMERS and Config of rung 12, BAND, CTAS, declare and produce of rung 15
Roles      producer   warpgroup 0, one thread, 40 registers
           consumer   warpgroups 1, 2, 232 registers: 64 x 256 each
Barriers, Buffers, Timeline as on rung 15
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 747 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from ...collective import Persistent, TmaPipeline, each_consumer, producer, warpgroup_index
from ...collective.epilogue.direct_store import store_accumulators
from ...collective.mma.wgmma import WGMMA_ROWS, wgmma_accumulators, wgmma_stage
from ...collective.tile import cluster
from ...collective.tile.raster import grouped
from ...isa.dtypes import bf16, u32
from ...lang import Kernel, ptx, reg, smem
from ..gemm_mainloop import k_tiles
from .r12_two_consumers import CONSUMERS, Config
from .r15_multicast import BAND, CTAS, declare, produce

PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232
"""Registers per thread. 40 + 232 + 232 is at most the 3 x 168 that the three warpgroups start with."""


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("registers", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, ctas=CTAS, a=a, b=b)
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(BAND), CTAS)
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(ring, work, A, B, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(ring, work, me, C, num_k_tiles)
        cluster.leave()

    return gemm


def consume(ring, work, me, C, num_k_tiles):
    """Consumer `me`: multiply its rows of every tile and store them with a streaming hint."""
    rows, columns = work.tile[0] // CONSUMERS, work.tile[1]
    state, acc = ring.consumer_state(), wgmma_accumulators(rows, columns)
    for tile in work.tiles():
        multiply(ring, state, acc, me * rows, num_k_tiles)
        store_accumulators(acc, C, tile.row + me * rows, tile.column, cache="cs")


def multiply(ring, state, acc, first_row, num_k_tiles):
    """A consumer, for one tile of C. Its first k-tile overwrites the accumulators, so they need no zeros."""
    rows = len(acc) * WGMMA_ROWS
    previous = reg.scalar(u32, init=0)
    for k_tile in ptx.range(num_k_tiles):
        stage = ring.consumer_wait(state)
        later = k_tile != 0
        wgmma_stage(acc, stage.a.rows(first_row, rows), stage.b, accumulate=later)
        ptx.wgmma.wait_group(1)
        ring.consumer_release(previous, only=later)
        previous.set(state.index)
        ring.advance(state)
    ptx.wgmma.wait_group(0)
    ring.consumer_release(previous)
