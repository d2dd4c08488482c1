"""Rung 18: tiles along a Hilbert curve; what is computed at one time lies close together, at every scale.

Idea       The 66 clusters of an H200 work on 66 neighbouring numbers. In bands of fixed height these are a rectangle
           of that height; along a Hilbert curve any stretch of numbers is a compact patch, whatever its length, so its
           rows of A and B are few, and most of them are still in the L2 cache from the stretch before.

               0  3  4  5
               1  2  7  6        squares of 8 x 8 clusters, one beside the other in bands of 8;
              14 13  8  9        what is no whole square goes column by column
              15 12 11 10

           The curve is calculated by the threads, three bits for each tile, without a table.
Roles      as on rung 17
Barriers   as on rung 17
Buffers    as on rung 17
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16
Seed       764 TFLOP/s, from 758 (*Inside NVIDIA GPUs*, H100)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective.tile.raster import hilbert
from ...lang import Kernel
from . import r17_tma_store


@dataclass(frozen=True)
class Config(r17_tma_store.Config):
    """As on rung 17; squares of the curve have a side of 2^bits clusters (`group` is not used)."""

    bits: int = 3


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16, all row-major."""
    return r17_tma_store.cooperative("hilbert", config, hilbert(config.bits), matrices=False)
