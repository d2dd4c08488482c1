"""Rung 8: TMA loads the tiles; loading and multiplying in the simplest order, one after the other.

Idea       One thread starts one copy of a whole tile. The copy engine computes the addresses, swizzles, fills elements
           outside the array with zeros, and tells an mbarrier how many bytes it has written. No thread does any other
           work for a load, but all of them wait for it.
Roles      one warpgroup of 128 threads; its thread 0 also starts the copies
Barriers   full       1 arrival + bytes of both tiles    TMA -> all threads
           bar 0      once per k-tile: the wgmmas of all warps have read the tiles
Buffers    A 64 x 64 and B 64 x 64 bf16, 16 KiB
Timeline   TMA          [load t]                [load t+1]
           tensor core            [wgmmas of t]             [wgmmas of t+1]
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 317 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import WARPGROUP, store_accumulators
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...isa.dtypes import bf16, u32
from ...lang import Kernel, ptx, reg, smem, tiles
from ..gemm_mainloop import k_tiles
from .operands import hopper_kernel, operands, result


@dataclass(frozen=True)
class Config:
    """Tile in elements (tile_m a multiple of 64)."""

    tile_m: int = 64
    tile_n: int = 64
    tile_k: int = 64


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k

    @declare("tma_wgmma", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k))[0]
        b = smem.wgmma_tile(bf16, (tile_n, tile_k))[0]
        full = smem.mbarrier(1)[0]
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        acc = load_and_multiply(A, B, a, b, full, row, column)
        store_accumulators(acc, C, row, column)

    return gemm


def declare(name, config):
    """One CTA of one warpgroup per tile of C; TMA loads A and B in whole tiles."""
    return hopper_kernel(
        name=name,
        in_specs=operands(config.tile_m, config.tile_n, config.tile_k),
        out_specs=(result(),),
        grid=(tiles("N", config.tile_n), tiles("M", config.tile_m)),
        block=WARPGROUP,
    )


def load_and_multiply(A, B, a, b, full, row, column):
    """All threads: load and multiply the k-tiles of A from `row` and of B from `column`. Returns the accumulators."""
    tile_m, tile_n, tile_k = a.rows_count, b.rows_count, a.layout.k
    leader = ptx.special.tid.x() == 0
    with ptx.if_(leader):
        ptx.mbarrier.init(full, 1)
        ptx.fence.mbarrier_init()
    ptx.bar.sync(0)

    acc = wgmma_accumulators(tile_m, tile_n, zero=True)
    phase = reg.scalar(u32, init=0)
    for k_tile in ptx.range(k_tiles(A, tile_k)):
        with ptx.if_(leader):
            ptx.mbarrier.arrive_expect_tx(full, a.bytes + b.bytes)
            ptx.tma.load(a, A.tma_desc(), (k_tile * tile_k, row), full)
            ptx.tma.load(b, B.tma_desc(), (k_tile * tile_k, column), full)
        ptx.mbarrier.wait(full, phase)
        phase ^= 1
        wgmma_stage(acc, a, b)
        ptx.wgmma.wait_group(0)
        ptx.bar.sync(0)
    return acc
