"""Rung 21: tiles of 256 x 192; the fewest bytes into shared memory for each product.

Idea       A large product on an H200 is limited by power, and after the multiplications themselves the way from L2 to
           shared memory takes the most of it. A tile of 128 x 256 fills 384 rows of k for 32768 products, one of
           256 x 192 fills 448 for 49152: 22 % less for each. Each consumer holds 128 x 192 as two blocks of 64 x 192,
           192 accumulators of its 240 registers, the most that fits beside what else it needs.

                            B 192 x 64
               A 128 x 64   [ consumer 0: 2 x 64 x 192 ]
                 128 x 64   [ consumer 1: 2 x 64 x 192 ]

           The clusters now stand side by side and share A, whose tile is the larger one. Bands instead of the Hilbert
           curve: both use the L2 cache alike here, and bands fit grids of any shape.
Roles      producer   warpgroup 0, one thread, 24 registers
           consumer   warpgroups 1, 2, 240 registers: 128 x 192 each
Barriers   as on rung 17
Buffers    3 stages of A 256 x 64 and B 192 x 64 bf16, 168 KiB; 2 x 3 boxes of 64 x 64 bf16, 48 KiB
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16
Seed       none: this is where the ladder leaves its sources
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective.tile.raster import grouped
from ...lang import Kernel
from . import r17_tma_store


@dataclass(frozen=True)
class Config(r17_tma_store.Config):
    """As on rung 17, with the largest tile that three stages and the registers leave room for."""

    tile_m: int = 256
    tile_n: int = 192
    stages: int = 3
    slots: int = 3
    shared: str = "a"
    group: int = 8
    producer_registers: int = 24
    consumer_registers: int = 240


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16, all row-major."""
    return r17_tma_store.cooperative("large_tiles", config, grouped(config.group), matrices=True)
