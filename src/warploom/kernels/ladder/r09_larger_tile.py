"""Rung 9: a larger output tile; each loaded byte is used more often.

Idea       A tile of m x n does m n k multiply-adds for (m + n) k elements loaded: 64 x 64 gives 32 per element,
           128 x 128 gives 64. Loading and multiplying still alternate, but there is half as much to load, and wgmmas of
           128 columns read shared memory less often per multiply-add than those of 64. The warpgroup holds two blocks
           of 64 x 128: 128 accumulators per thread, half of the registers it may have.
Reuses     declare and load_and_multiply of rung 8
Roles, Barriers as on rung 8
Buffers    A 128 x 64 and B 128 x 64 bf16, 32 KiB
Timeline   as on rung 8: twice as much to load per k-tile, four times as much to multiply
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 423 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import store_accumulators
from ...isa.dtypes import bf16
from ...lang import Kernel, ptx, smem
from .r08_tma_wgmma import declare, load_and_multiply


@dataclass(frozen=True)
class Config:
    """Tile in elements (tile_m a multiple of 64)."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k

    @declare("larger_tile", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k))[0]
        b = smem.wgmma_tile(bf16, (tile_n, tile_k))[0]
        full = smem.mbarrier(1)[0]
        row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
        acc = load_and_multiply(A, B, a, b, full, row, column)
        store_accumulators(acc, C, row, column)

    return gemm
