"""Rung 7: Hopper's tensor cores, fed the old way: wgmma reads what cp.async copied.

Idea       wgmma reads both operands from shared memory: no ldmatrix, no fragments, and 64 x 128 x 16 in one
           instruction of four warps. The copies are still those of rung 6, so each thread still computes addresses and
           predicates for every 16 bytes. The tensor core is twice as fast; the loads are not.

           Threads write shared memory through the generic proxy, wgmma reads it through the async proxy: each thread
           fences between its copies and the barrier.
Roles      one warpgroup of 128 threads copies and multiplies
Barriers   bar 0, once per k-tile: its copies have arrived and are fenced, and the previous wgmmas are complete
Buffers    3 stages of A 128 x 64 and B 128 x 64 bf16, 96 KiB: two CTAs fit on an SM
Timeline   wait for the copies of t, fence, bar | wgmmas of t start | copies of t+2 start | wgmmas of t complete
Measured   benchmarks/results/nvidia-h200/ladder.json; no seed; *Evolving Ampere to Hopper* expects no gain
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import WARPGROUP, CpAsyncPipeline, OperandCopy
from ...collective.epilogue.direct_store import store_accumulators
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...isa.dtypes import bf16
from ...lang import Kernel, ptx, smem, tiles
from .operands import hopper_kernel, operands_by_threads, result


@dataclass(frozen=True)
class Config:
    """Tile in elements (tile_m a multiple of 64), stages."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 3


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @hopper_kernel(
        in_specs=operands_by_threads(),
        out_specs=(result(),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=WARPGROUP,
        name="cp_async_wgmma",
    )
    def gemm(A, B, C):
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        ring = CpAsyncPipeline(
            stages=stages,
            tile_k=tile_k,
            a=OperandCopy(A, smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="a"), row, WARPGROUP),
            b=OperandCopy(B, smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="b"), column, WARPGROUP),
            async_proxy=True,
        )
        acc = wgmma_accumulators(tile_m, tile_n, zero=True)
        ring.fill()
        for _ in ptx.range((A.shape[1] + tile_k - 1) // tile_k):
            ring.wait()
            wgmma_stage(acc, *ring.stage)
            ring.refill()
            ring.advance()
            ptx.wgmma.wait_group(0)
        ring.drain()
        store_accumulators(acc, C, row, column)

    return gemm
