"""Rung 12: two consumer warpgroups share one 128 x 256 output tile.

Idea       The next larger tile is 128 x 256: 85 multiply-adds per element loaded instead of 64. In one warpgroup its
           accumulators alone would take 256 registers per thread, more than there are. Two consumers take 64 rows
           each: 128 accumulators, wgmmas of 64 x 256, the widest there are, and both read the same B. While one waits
           at a barrier, the other keeps the tensor core busy.

                            B 256 x 64
               A  64 x 64   [ consumer 0: 64 x 256 ]
                  64 x 64   [ consumer 1: 64 x 256 ]
Reuses     load of rung 11
Roles      producer   warpgroup 0, one thread      fills the ring with TMA
           consumer   warpgroups 1, 2              64 x 256 each: wgmma, then store
Barriers   full[s]    1 + 256 arrivals + bytes     producer -> both consumers
           empty[s]   256 arrivals                 consumers -> producer
Buffers    a ring of 4 stages of A 128 x 64 and B 256 x 64 bf16, 192 KiB
Timeline   producer     [load t+2][load t+3]   waits for both consumers   [load t+4]
           consumer 0   [wgmmas of t, rows 0-63  ][wgmmas of t+1 ...
           consumer 1   [wgmmas of t, rows 64-127][wgmmas of t+1 ...
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 610 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import WARPGROUP, TmaPipeline, each_consumer, producer, warpgroup_index
from ...collective.epilogue.direct_store import store_accumulators
from ...collective.mma.wgmma import WGMMA_ROWS, wgmma_accumulators, wgmma_stage
from ...isa.dtypes import bf16, u32
from ...lang import Kernel, ptx, reg, smem, tiles
from ..gemm_mainloop import k_tiles
from .operands import hopper_kernel, operands, result
from .r11_warp_specialised import load

CONSUMERS = 2


@dataclass(frozen=True)
class Config:
    """Tile in elements (tile_m a multiple of 128: whole wgmmas for each consumer), stages of the ring."""

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    stages: int = 4


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages
    rows = tile_m // CONSUMERS

    @hopper_kernel(
        in_specs=operands(tile_m, tile_n, tile_k),
        out_specs=(result(),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=(1 + CONSUMERS) * WARPGROUP,
        name="two_consumers",
    )
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, every_thread=True, a=a, b=b)
        ring.initialise()
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup):
            state = ring.producer_state()
            row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
            load(ring, state, A, B, row, column, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS):
            state, acc = ring.consumer_state(), wgmma_accumulators(rows, tile_n, zero=True)
            row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
            multiply(ring, state, acc, me * rows, num_k_tiles)
            store_accumulators(acc, C, row + me * rows, column)

    return gemm


def multiply(ring, state, acc, first_row, num_k_tiles):
    """A consumer, for one tile of C: multiply its rows of A, beginning at the tile's row `first_row`, by all of B."""
    rows = len(acc) * WGMMA_ROWS
    previous = reg.scalar(u32, init=0)
    for k_tile in ptx.range(num_k_tiles):
        stage = ring.consumer_wait(state)
        later = k_tile != 0
        wgmma_stage(acc, stage.a.rows(first_row, rows), stage.b)
        ptx.wgmma.wait_group(1)
        ring.consumer_release(previous, only=later)
        previous.set(state.index)
        ring.advance(state)
    ptx.wgmma.wait_group(0)
    ring.consumer_release(previous)
