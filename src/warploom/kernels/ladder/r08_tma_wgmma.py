"""Rung 8: TMA brings the tiles; the two units of Hopper in their simplest order, one after the other.

Idea       One thread starts one copy of a whole tile; the copy engine calculates the addresses, swizzles, fills with
           zeros what lies outside, and tells an mbarrier how many bytes it has written. No thread has anything left
           to do for a load, but all of them wait for it:

               TMA          [load t]                [load t+1]
               tensor core            [wgmmas of t]             [wgmmas of t+1]
Roles      one warpgroup of 128 threads; thread 0 also starts the copies
Barriers   full       1 arrival + bytes of both tiles    TMA -> all threads
           bar 0      once for each k-tile: all warps' wgmmas have read the tiles
Buffers    A 64 x 64 and B 64 x 64 bf16, 16 KiB
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       317 TFLOP/s, from 32 for warp-tiling (*Inside NVIDIA GPUs*, H100)
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
    """Tile in elements (tile_m a multiple of 64), type of C."""

    tile_m: int = 64
    tile_n: int = 64
    tile_k: int = 64
    out: DType = bf16


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16 or f32, all row-major."""
    return synchronous("tma_wgmma", config)


def synchronous(name: str, config: Config) -> Kernel:
    """The kernel of rungs 8 and 9."""
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k

    @kernel(
        in_specs=operands(tile_m, tile_n, tile_k),
        out_specs=(result(config.out),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=WARPGROUP,
        arch="sm_90a",
        elsewhere=other_rungs,
        name=name,
    )
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k))[0]
        b = smem.wgmma_tile(bf16, (tile_n, tile_k))[0]
        full = smem.mbarrier(1)[0]
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        first = ptx.special.tid.x() == 0
        with ptx.if_(first):
            ptx.mbarrier.init(full, 1)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)

        acc = wgmma_accumulators(tile_m, tile_n, zero=True)
        phase = reg.scalar(u32, init=0)
        for k_tile in ptx.range(k_tiles(A, tile_k)):
            with ptx.if_(first):
                ptx.mbarrier.arrive_expect_tx(full, a.bytes + b.bytes)
                ptx.tma.load(a, A.tma_desc(), (k_tile * tile_k, row), full)
                ptx.tma.load(b, B.tma_desc(), (k_tile * tile_k, column), full)
            ptx.mbarrier.wait(full, phase)
            phase ^= 1
            wgmma_stage(acc, a, b)
            ptx.wgmma.wait_group(0)
            ptx.bar.sync(0)
        store_accumulators(acc, C, row, column)

    return gemm
