"""Rung 10: several stages; the copies of later tiles run while this one is multiplied.

Idea       The tiles become a ring. While the tensor core works on k-tile t, TMA fills the stages of t+1 and beyond:
           the latency of a load is hidden as long as the ring holds enough tiles. Warps have no roles yet: the warps
           that multiply also wait, meet at a barrier, and start the copies.
Reuses     Config of rung 7, declare of rung 8
Roles      one warpgroup of 128 threads; its thread 0 also starts the copies
Barriers   full[s]    1 arrival + bytes of both tiles    TMA -> all threads
           bar 0      once per k-tile: all warps have read the previous stage, which is filled next
Buffers    3 stages of A 128 x 64 and B 128 x 64 bf16, 96 KiB: two CTAs fit on an SM
Timeline   TMA          [load t+1   ][load t+2   ][load t+3   ]
           tensor core  [wgmmas of t][   of t+1  ][   of t+2  ]
Measured   benchmarks/results/nvidia-h200/ladder.json; no seed; *Tensor Memory Accelerator (TMA)* has the scheme
"""

from __future__ import annotations

from ...collective import store_accumulators
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...isa.dtypes import bf16, u32
from ...lang import Kernel, ptx, reg, smem
from ..gemm_mainloop import k_tiles
from .r07_cp_async_wgmma import Config
from .r08_tma_wgmma import declare


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("multistage", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages)
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages)
        full = smem.mbarrier(stages)
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        num_k_tiles = k_tiles(A, tile_k)
        leader = ptx.special.tid.x() == 0

        def load(stage, k_tile):
            ptx.mbarrier.arrive_expect_tx(full[stage], a.bytes + b.bytes)
            ptx.tma.load(a[stage], A.tma_desc(), (k_tile * tile_k, row), full[stage])
            ptx.tma.load(b[stage], B.tma_desc(), (k_tile * tile_k, column), full[stage])

        with ptx.if_(leader):
            for barrier in full:
                ptx.mbarrier.init(barrier, 1)
            ptx.fence.mbarrier_init()
            for ahead in range(stages - 1):
                with ptx.if_(num_k_tiles > ahead):
                    load(ahead, reg.scalar(u32, init=ahead))
        ptx.bar.sync(0)

        acc = wgmma_accumulators(tile_m, tile_n, zero=True)
        stage, phase, free = reg.scalar(u32, init=0), reg.scalar(u32, init=0), reg.scalar(u32, init=stages - 1)
        for k_tile in ptx.range(num_k_tiles):
            ptx.mbarrier.wait(full[stage], phase)
            ptx.bar.sync(0)
            with ptx.if_(leader & (k_tile + (stages - 1) < num_k_tiles)):
                load(free, k_tile + (stages - 1))
            wgmma_stage(acc, a[stage], b[stage])
            free.set(stage)
            stage += 1
            at_end = stage == stages
            phase.set(ptx.select(at_end, phase ^ 1, phase))
            stage.set(ptx.select(at_end, 0, stage))
            ptx.wgmma.wait_group(0)
        store_accumulators(acc, C, row, column)

    return gemm
