"""Rung 22: the tail is split; what is left over after the last full wave takes half a wave instead of a whole one.

Idea       8192 x 8192 in tiles of 256 x 192 are 688 pairs of tiles for the 66 clusters of an H200: ten full waves, and
           28 pairs for which an eleventh is spent with more than half of the GPU idle. Now each of these 56 tiles is
           given to a cluster of its own. Its two CTAs multiply half of K each, and exchange half of their sums through
           distributed shared memory: every consumer either sends its sums or adds those it gets, and stores them.

               whole wave      66 clusters, 2 tiles each                      time 1
               tail before     28 clusters, 2 tiles each, 38 idle             time 1
               tail now        56 clusters, 1 tile each, half of K per CTA    time 1/2 + the exchange

           Large tiles cost least for each product and waste most in the last wave; this takes the waste back. And the
           kernel launches dependently: it sets itself up while the one before it ends.
Roles      as on rung 21
Barriers   as on rung 17, and
           drained    2 arrivals, the other CTA's consumers: their ring may be written to
           received   128 arrivals of the other CTA's sender: the sums are here
Buffers    as on rung 21; the sums travel into the ring, which is empty by then
Limits     any M; N and K multiples of 8; B is (N, K)
Seed       none
"""

from __future__ import annotations

from dataclasses import dataclass

from ...lang import Kernel
from ..hopper import description, gemm


@dataclass(frozen=True)
class Config(description.Config):
    """The tile of rung 21; its clusters stand below each other, so that the tail has few tiles in 8192 x 8192."""

    tile_m: int = 256
    tile_n: int = 192
    stages: int = 3
    slots: int = 3
    split_tail: bool = True


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """D = A @ Bᵀ with A (M, K) and B (N, K) bf16, D (M, N) bf16, all row-major."""
    return gemm.build(config=config)
