"""Lists of the tiles of queries that see each block of keys, and the walk along a list.

    visits   (1 or B, 1 or H, blocks of keys, tiles of queries, 2), s32    2 tile + partly seen, rank
    visited  (1 or B, 1 or H, blocks of keys), s32                         the number of tiles in each list
    visitors (1 or B, 1 or H, tiles of queries), s32                       the number of blocks that see each tile

A list runs from the last tile to the first. The rank is the number of earlier blocks of keys that see the tile: the
turn of this block among those that add to the tile's dQ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...isa.dtypes import s32, u32, u64
from ...lang import Tile, ptx, reg
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .attention_config import Attention

ENTRY_BYTES = 2 * s32.bytes


def list_tiles(of: Attention) -> dict[str, Tile]:
    """The lists as arguments of the gradient kernel."""
    if not of.block_mask:
        return {}
    return {"visits": Tile("LB", "LH", "KB", "QB", 2, s32), "visited": Tile("LB", "LH", "KB", s32)}


def visitor_tiles(of: Attention) -> dict[str, Tile]:
    """The argument of the kernel that converts dQ."""
    return {"visitors": Tile("LB", "LH", "QB", s32)} if of.block_mask else {}


@dataclass
class Visit:
    """A tile of queries that sees a block of keys: its number, s32, whether the mask applies to it, and the number of
    blocks that add to its dQ before this one, u32."""

    tile: Register
    partly: Predicate
    before: Register


@dataclass
class Visits:
    """The lists of a block of keys, one for each query head.

    Attributes:
        entries, counts: `visits` and `visited`.
        block: the number of the block, u32. batch: its batch.
    """

    entries: ArrayHandle
    counts: ArrayHandle
    block: Register
    batch: Register

    @classmethod
    def of(cls, call: dict[str, Any], block: Register, batch: Register) -> Visits:
        """Those in the kernel's arguments."""
        return cls(call["visits"], call["visited"], block, batch)

    def walk(self, head: Register) -> Iterator[Visit]:
        """A run-time loop over the list of a query head (u32); its body is traced once."""
        _, _, blocks, most, _ = self.entries.shape
        line = line_of(self.entries, self.batch, head) * blocks + self.block
        count = ptx.load(s32, ptx.addr(self.counts.pointer() + line.to(u64) * s32.bytes))
        at = reg.scalar(u64, init=self.entries.pointer() + (line * most).to(u64) * ENTRY_BYTES)
        for _ in ptx.range(count):
            word, rank = ptx.load(s32, ptx.addr(at), vector=2)
            yield Visit(word >> 1, (word & 1) != 0, rank.view(u32))
            at += ENTRY_BYTES


def line_of(lists: ArrayHandle, batch: Register, head: Register) -> Register:
    """Which of the lists' batches and heads is for these; one may be for all."""
    batches, heads = lists.shape[:2]
    return ptx.math.min(batch, batches - 1) * heads + ptx.math.min(head, heads - 1)
