"""Rung 19: stmatrix; a warp writes 16 x 16 of its result in one instruction.

Idea       What a thread holds of C are pairs of columns, 4 bytes in bf16, so rung 17 takes one store for each pair of
           each row: 64 for a tile of 64 x 256. stmatrix is ldmatrix turned around: lanes name the places of 16 rows, 16
           bytes each, and the hardware brings every lane's pairs there: 16 instructions.
Roles      as on rung 17
Barriers   as on rung 17
Buffers    as on rung 17
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16
Seed       about 1 % more than rung 18 (*Inside NVIDIA GPUs*: A. Demeure's change to the same kernel)
"""

from __future__ import annotations

from ...collective.tile.raster import hilbert
from ...lang import Kernel
from . import r17_tma_store
from .r18_hilbert import Config


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16, all row-major."""
    return r17_tma_store.cooperative("stmatrix", config, hilbert(config.bits), matrices=True)
