"""Rung 9: a larger output tile; each byte that arrives is used more often.

Idea       A tile of m x n does m n k multiply-adds for (m + n) k elements loaded: 64 x 64 gives 32 for each element,
           128 x 128 gives 64. Loading and multiplying still take turns, but there is half as much to load, and the
           wgmmas are 128 wide, which read shared memory less often for each multiply-add than those of 64.
           The warpgroup holds two blocks of 64 x 128: 128 accumulators for each thread, half of what it may have.
Roles      one warpgroup of 128 threads; thread 0 also starts the copies
Barriers   as on rung 8
Buffers    A 128 x 64 and B 128 x 64 bf16, 32 KiB
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       423 TFLOP/s, from 317 (*Inside NVIDIA GPUs*, H100)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...lang import Kernel
from . import r08_tma_wgmma


@dataclass(frozen=True)
class Config(r08_tma_wgmma.Config):
    """As on rung 8, with a larger tile."""

    tile_m: int = 128
    tile_n: int = 128


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16 or f32, all row-major."""
    return r08_tma_wgmma.synchronous("larger_tile", config)
