"""Rung 23: staggered ends; a consumer stores one half of its rows while it multiplies the other.

Idea       Ping-pong hides the stores and needs tiles small enough that two fit. Here the large tile stays: a consumer's
           128 rows are two blocks of 64, and the upper one's last wgmmas are committed before the lower one's. So the
           upper block is complete and can be stored under the lower one's wgmmas, and the lower one under the first
           wgmmas of the next tile:

               upper   ... k-2 | k-1 |  store  | 0' (next tile) ...        | 1' ...
               lower   ... k-2 |       k-1     |   store                0' | 1' ...

           From the first k-tile of a CTA to its last some wgmma is always under way.
Roles      as on rung 21
Barriers   as on rung 22
Buffers    as on rung 21; the three boxes of a consumer are one block
Limits     any M; N and K multiples of 8; B is (N, K)
Seed       none
"""

from __future__ import annotations

from dataclasses import dataclass

from ...lang import Kernel
from . import r22_split_tail


@dataclass(frozen=True)
class Config(r22_split_tail.Config):
    """As on rung 22."""

    form: str = "staggered"


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """D = A @ Bᵀ with A (M, K) and B (N, K) bf16, D (M, N) bf16, all row-major."""
    return r22_split_tail.build(config)
