"""Rung 10: several stages; the copies of later tiles run while this one is multiplied.

Idea       The tiles become a ring. While the tensor core works on k-tile t, TMA fills the stages of t+1 and beyond:
           the latency of a load is hidden as long as the ring holds enough tiles. Still nobody has a role of their
           own: the warps that multiply also wait, meet, and start the copies.

               TMA          [t+1        ][t+2        ][t+3        ]
               tensor core  [wgmmas of t][   of t+1  ][   of t+2  ]
Roles      one warpgroup of 128 threads; thread 0 also starts the copies
Barriers   full[s]    1 arrival + bytes of both tiles    TMA -> all threads
           bar 0      once for each k-tile: all warps are done with the stage before, which is filled next
Ring       3 stages of A 128 x 64 and B 128 x 64 bf16, 96 KiB: two CTAs fit an SM
Buffers    the ring
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       none of its own: *Inside NVIDIA GPUs* goes on to rung 11; *Tensor Memory Accelerator (TMA)* describes it
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import (
    WARPGROUP,
    store_accumulators,
    wgmma_accumulators,
    wgmma_stage,
)
from ...isa.dtypes import DType, bf16, u32
from ...lang import Kernel, kernel, ptx, reg, smem, tiles
from ..gemm_mainloop import k_tiles
from ..other_gpus import other_rungs
from .operands import operands, result


@dataclass(frozen=True)
class Config:
    """Tile in elements (tile_m a multiple of 64), stages, type of C."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 3
    out: DType = bf16


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16 or f32, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @kernel(
        in_specs=operands(tile_m, tile_n, tile_k),
        out_specs=(result(config.out),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=WARPGROUP,
        arch="sm_90a",
        elsewhere=other_rungs,
        name="multistage",
    )
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages)
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages)
        full = smem.mbarrier(stages)
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        count = k_tiles(A, tile_k)
        first = ptx.special.tid.x() == 0

        def load(stage, k_tile):
            ptx.mbarrier.arrive_expect_tx(full[stage], a.bytes + b.bytes)
            ptx.tma.load(a[stage], A.tma_desc(), (k_tile * tile_k, row), full[stage])
            ptx.tma.load(b[stage], B.tma_desc(), (k_tile * tile_k, column), full[stage])

        with ptx.if_(first):
            for barrier in full:
                ptx.mbarrier.init(barrier, 1)
            ptx.fence.mbarrier_init()
            for ahead in range(stages - 1):
                with ptx.if_(count > ahead):
                    load(ahead, reg.scalar(u32, init=ahead))
        ptx.bar.sync(0)

        acc = wgmma_accumulators(tile_m, tile_n, zero=True)
        stage, phase, free = reg.scalar(u32, init=0), reg.scalar(u32, init=0), reg.scalar(u32, init=stages - 1)
        for k_tile in ptx.range(count):
            ptx.mbarrier.wait(full[stage], phase)
            ptx.bar.sync(0)
            with ptx.if_(first & (k_tile + (stages - 1) < count)):
                load(free, k_tile + (stages - 1))
            wgmma_stage(acc, a[stage], b[stage])
            free.set(stage)
            stage += 1
            around = stage == stages
            phase.set(ptx.select(around, phase ^ 1, phase))
            stage.set(ptx.select(around, 0, stage))
            ptx.wgmma.wait_group(0)
        store_accumulators(acc, C, row, column)

    return gemm
