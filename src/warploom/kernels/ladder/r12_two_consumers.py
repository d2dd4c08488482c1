"""Rung 12: two consumer warpgroups share one 128 x 256 output tile.

Idea       The next larger tile would be 128 x 256: 85 multiply-adds for each element loaded instead of 64. In one
           warpgroup its accumulators alone were 256 registers a thread, more than there are. Two consumers take 64
           rows each: 128 accumulators, wgmmas of 64 x 256, the widest there are, and both read the same B.
           And while one stands at a barrier, the other keeps the tensor core busy.

                            B 256 x 64
               A  64 x 64   [ consumer 0: 64 x 256 ]
                  64 x 64   [ consumer 1: 64 x 256 ]
Roles      producer   warpgroup 0, one thread      fills the ring with TMA
           consumer   warpgroups 1, 2              64 x 256 each: wgmma, then store
Barriers   full[s]    1 + 256 arrivals + bytes     producer -> both consumers
           empty[s]   256 arrivals                 consumers -> producer
Ring       4 stages of A 128 x 64 and B 256 x 64 bf16, 192 KiB
Buffers    the ring
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       610 TFLOP/s, from 498 (*Inside NVIDIA GPUs*, H100)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...lang import Kernel
from . import r11_warp_specialised


@dataclass(frozen=True)
class Config(r11_warp_specialised.Config):
    """As on rung 11, with a larger tile for two."""

    tile_n: int = 256
    stages: int = 4
    consumers: int = 2


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16 or f32, all row-major."""
    return r11_warp_specialised.specialised("two_consumers", config)
