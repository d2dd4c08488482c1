"""The tiling of the kernel that computes dQ, dK and dV together, and the order in which its CTAs take their work.

    ticket        0     1     2     3     4     5   ...      CTAs take them by an atomic addition
    block, head   0 h0  0 h1  0 h2  1 h0  1 h1  1 h2         within a section of 3 heads; the next section follows

With a causal mask, the first block of keys is the longest. So the longest ones begin first, and the CTAs that add to
the dQ of one head are far apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...isa.dtypes import bf16, f16, f32
from .attention_config import L2_BYTES, QUERY_ROWS, Attention
from .description import SHARED_BYTES

WIDEST = 128
"""Largest head dimension. dQ is computed transposed, in blocks of 64 of its columns, one or two."""
SUM_ROWS = 64
"""Columns of dQ per consumer: rows of its transposed product."""
LEAST_HEADS = 4
"""Fewest heads whose blocks are interleaved (nvidia-h100/attention-backward-candidates.json)."""
RESERVE_BYTES = 1024
"""Shared memory reserved for barriers and the ticket."""


@dataclass(frozen=True)
class JointConfig:
    """A configuration.

    Attributes:
        tile: queries per tile, a multiple of 16; up to head dimension 64 a multiple of 32.
        consumers: consumer warpgroups, with 64 keys each.
        stages: stages of the rings of queries and of dO.
        ds_stages: buffers of dS, 1 or 2.
        deterministic: the CTAs add to a tile of dQ in the order of their blocks.
        early: dV is issued before dP is complete, so that it overlaps dS.
    """

    tile: int = 64
    consumers: int = 2
    stages: int = 2
    ds_stages: int = 2
    deterministic: bool = True
    early: bool = False

    @property
    def rows(self) -> int:
        """Keys per CTA."""
        return QUERY_ROWS * self.consumers

    @property
    def part_queries(self) -> int:
        """Queries of the part of dQ that a consumer computes up to head dimension 64: consumers divide the tile."""
        return self.tile // self.consumers

    def part(self, of: Attention, me: int) -> tuple[int, int, int]:
        """First column, first query and number of queries of consumer `me`'s part of a tile of dQ; 64 columns each."""
        if of.key_columns == SUM_ROWS:
            return 0, me * self.part_queries, self.part_queries
        return me * SUM_ROWS, 0, self.tile

    def part_elements(self, of: Attention) -> int:
        """Elements of a consumer's part of a tile of dQ."""
        return SUM_ROWS * self.part(of, 0)[2]

    def tiles(self, queries: int) -> int:
        """Tiles of a head's queries."""
        return -(-queries // self.tile)

    def sum_elements(self, of: Attention, queries: int) -> int:
        """Elements of the workspace per head: every part of every tile."""
        return self.tiles(queries) * self.consumers * self.part_elements(of)

    def turns(self, heads: int, queries: int) -> int:
        """Counters of a launch: one for each part of each tile of all `heads` of all batches, and last, in four words,
        the tickets."""
        return -(-heads * self.tiles(queries) * self.consumers // 4) * 4 + 4

    def shared_bytes(self, of: Attention) -> int:
        """Bytes of shared memory for the tiles."""
        width = of.key_columns + of.value_columns
        tiles = (self.rows + self.stages * self.tile) * width + self.ds_stages * self.tile * self.rows
        rows = 2 * self.stages * self.tile * f32.bytes
        return tiles * of.dtype.bytes + self.consumers * self.part_elements(of) * f32.bytes + rows

    def fits(self, of: Attention) -> bool:
        """True if the tiles fit in shared memory."""
        return self.shared_bytes(of) <= SHARED_BYTES - RESERVE_BYTES


def joint_config(of: Attention) -> JointConfig:
    """The configuration for head dimensions."""
    if of.key_columns > SUM_ROWS:
        return JointConfig(tile=80, ds_stages=1)
    return JointConfig(tile=128 if of.columns <= SUM_ROWS else 64)


def joint_section(of: Attention, queries: int, heads: int, kv_heads: int) -> int:
    """The number of key heads whose blocks are interleaved: as many as have Q, dO and sums that fit the L2 cache, but
    at least `LEAST_HEADS`. Blocks of one head wait for each other; those of other heads do not."""
    bytes_of_head = queries * (2 * of.head_dim * of.dtype.bytes + of.head_dim * f32.bytes)
    return max(LEAST_HEADS, L2_BYTES // max(1, bytes_of_head * max(1, heads // max(1, kv_heads))))


def joins(of: Attention) -> bool:
    """True if the kernel can compute these gradients."""
    special = of.varlen or of.softcap or of.score_mod is not None or of.mask_mod is not None
    return of.dtype in (bf16, f16) and max(of.head_dim, of.value_dim) <= WIDEST and not special


@dataclass(frozen=True)
class TicketGrid:
    """The grid rule: one CTA for each block of `rows` keys of each key head and batch, all along x."""

    rows: int

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        return (-(-dims["T"] // self.rows) * dims["G"] * dims["B"], 1, 1)
