"""The tiling of the kernel that computes dQ, dK and dV together, and the order in which its CTAs take their work.

    ticket        0     1     2     3     4     5   ...      CTAs take them by an atomic addition
    block, head   0 h0  0 h1  0 h2  1 h0  1 h1  1 h2         within a section of 3 heads; the next section follows

With a causal mask, the first block of keys is the longest. So the longest ones begin first, and the CTAs that add to
the dQ of one head are far apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...isa.dtypes import f32
from .attention_config import L2_BYTES, MOST_SEQUENCES, QUERY_ROWS, REGISTERS, Attention
from .description import SHARED_BYTES

SUM_ROWS = 64
"""dQ is computed transposed, in blocks of this number of its columns: rows of the product."""
WIDEST = 128
"""Largest head dimension for which a thread's registers hold dK, dV and scores of 64 queries and more."""
MOST_COLUMNS = 320
"""Most columns of dK and dV together that a thread's registers hold beside scores of 32 queries; above it, and with
functions or packed sequences, which take more registers, dV has its own kernel
(nvidia-h100/attention-backward-wide.json)."""
LEAST_HEADS = 4
"""Fewest heads whose blocks are interleaved (nvidia-h100/attention-backward-candidates.json)."""
WHOLE_BLOCKS = 64, 128
"""Queries and keys: blocks of a mask of multiples of them are whole numbers of tiles of every `backward_config`."""
RESERVE_BYTES = 1024
"""Shared memory reserved for barriers and the ticket."""


@dataclass(frozen=True)
class BackwardConfig:
    """A configuration.

    Attributes:
        tile_m: queries per tile, a multiple of 16; of 32 where consumers divide a tile of dQ by its queries.
        consumers: consumer warpgroups, with 64 keys each.
        stages: stages of the rings of queries and of dO.
        ds_stages: buffers of dS, 1 or 2.
        parts_per_add: parts of a tile of dQ that a consumer writes before one addition; divides `parts`.
        deterministic: the CTAs add to a tile of dQ in the order of their blocks.
        dv_overlaps_ds: dV is issued before dP is complete, so that it overlaps dS.
        compute_dk_dq: dK and dQ are computed.
        compute_dv: dV is computed.
    """

    tile_m: int = 64
    consumers: int = 2
    stages: int = 2
    ds_stages: int = 2
    parts_per_add: int = 1
    deterministic: bool = True
    dv_overlaps_ds: bool = False
    compute_dk_dq: bool = True
    compute_dv: bool = True

    @property
    def tile_n(self) -> int:
        """Keys per CTA."""
        return QUERY_ROWS * self.consumers

    @property
    def ordered(self) -> bool:
        """True if CTAs take tickets and wait for their turns."""
        return self.deterministic and self.compute_dk_dq

    def parts(self, of: Attention) -> int:
        """Parts of a tile of dQ that each consumer computes, one after the other."""
        blocks = of.key_columns // SUM_ROWS
        return blocks // self.consumers if self._whole(of) else blocks

    def part(self, of: Attention, me: int, number: int) -> tuple[int, int, int]:
        """First column, first query and number of queries of a part of consumer `me`; 64 columns each."""
        if self._whole(of):
            return (number * self.consumers + me) * SUM_ROWS, 0, self.tile_m
        queries = self.tile_m // self.consumers
        return number * SUM_ROWS, me * queries, queries

    def _whole(self, of: Attention) -> bool:
        """True if the consumers divide the columns of dQ evenly; else they divide the queries."""
        return of.key_columns // SUM_ROWS % self.consumers == 0

    def part_elements(self, of: Attention) -> int:
        """Elements of a part."""
        return SUM_ROWS * self.part(of, 0, 0)[2]

    def registers(self, of: Attention) -> tuple[int, int, int]:
        """Registers per thread as in `REGISTERS`. Adders of several parts need more than other producers."""
        return REGISTERS[self.consumers] if self.parts(of) == 1 else (40, 232, 168)

    def parts_per_tile(self, of: Attention) -> int:
        """Parts of a tile of all consumers."""
        return self.consumers * self.parts(of)

    def padded(self, queries: int, sequences: int = 0) -> int:
        """Entries of lse2 and delta of a head: whole tiles, with one more for each of `sequences` packed ones."""
        return (-(-queries // self.tile_m) + sequences) * self.tile_m

    def sum_elements(self, of: Attention, padded: int) -> int:
        """Elements of the workspace per head: every part of every tile."""
        return padded // self.tile_m * self.parts_per_tile(of) * self.part_elements(of)

    def turns(self, heads: int, padded: int) -> int:
        """Counters of a launch: one for each consumer and tile of all `heads` of all batches, and last, in four words,
        the tickets."""
        return -(-heads * (padded // self.tile_m) * self.consumers // 4) * 4 + 4

    def shared_bytes(self, of: Attention) -> int:
        """Bytes of shared memory for the tiles."""
        width = of.key_columns + of.value_columns
        tiles = (self.tile_n + self.stages * self.tile_m) * width
        rows = 2 * self.stages * self.tile_m + (MOST_SEQUENCES + 1 if of.varlen else 0)
        if self.compute_dk_dq:
            tiles += self.ds_stages * self.tile_m * self.tile_n
            rows += self.consumers * self.parts_per_add * self.part_elements(of)
        return tiles * of.dtype.bytes + rows * f32.bytes

    def fits(self, of: Attention) -> bool:
        """True if the tiles fit in shared memory."""
        return self.shared_bytes(of) <= SHARED_BYTES - RESERVE_BYTES


def backward_config(of: Attention) -> BackwardConfig:
    """The configuration for head dimensions; `values_config` says whether another kernel computes dV."""
    if max(of.depth, of.columns) > WIDEST:
        whole = BackwardConfig(tile_m=32)
        if of.depth + of.columns <= MOST_COLUMNS and not (of.varlen or of.block_mask or modified(of)):
            return replace(whole, parts_per_add=whole.parts(of))
        tiles = ((32, 2), (32, 1)) if of.has_both_functions else ((64, 2), (32, 2), (32, 1))
        found = [BackwardConfig(tile, stages=n, compute_dv=False) for tile, n in tiles]
        once = replace(found[0], ds_stages=1, parts_per_add=found[0].parts(of))
        return next(each for each in (once, *found) if each.fits(of))
    if modified(of) or of.block_mask:  # 64 queries, or 32, divide most blocks of a mask
        # with both functions ptxas keeps up to 148 bytes of registers in memory at 64 queries, and 36 at 48
        crowded = of.has_both_functions and not of.block_mask and of.key_columns > SUM_ROWS
        stages = 1 if max(of.depth, of.columns) > SUM_ROWS else 2
        return BackwardConfig(tile_m=48 if crowded else 64, ds_stages=stages)
    if of.key_columns > SUM_ROWS:
        return BackwardConfig(tile_m=80, ds_stages=1)
    return BackwardConfig(tile_m=128 if of.columns <= SUM_ROWS else 64)


def values_config(config: BackwardConfig) -> BackwardConfig | None:
    """The configuration of the kernel of dV, with the same tiles, if that of dK and dQ does not compute it."""
    return None if config.compute_dv else replace(config, compute_dk_dq=False, compute_dv=True)


def modified(of: Attention) -> bool:
    """True if there are functions of scores or masks."""
    return of.score_mod is not None or of.mask_mod is not None


def backward_section(of: Attention, queries: int, heads: int, kv_heads: int) -> int:
    """The number of key heads whose blocks are interleaved: as many as have Q, dO and sums that fit the L2 cache, but
    at least `LEAST_HEADS`. Blocks of one head wait for each other; those of other heads do not."""
    bytes_of_head = queries * (2 * of.head_dim * of.dtype.bytes + of.head_dim * f32.bytes)
    return max(LEAST_HEADS, L2_BYTES // max(1, bytes_of_head * max(1, heads // max(1, kv_heads))))


@dataclass(frozen=True)
class TicketGrid:
    """The grid rule: one CTA for each block of `rows` keys of each key head and batch, all along x. If sequences are
    packed, as many as there can be blocks."""

    rows: int
    varlen: bool = False

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        blocks = -(-dims["T"] // self.rows) + (dims["N"] if self.varlen else 0)
        return (blocks * dims["G"] * dims["B"], 1, 1)
