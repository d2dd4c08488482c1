"""Which keys of which sequences a CTA reads: an equal share of all tiles of the launch, whatever the lengths are.

    tiles    | sequence 0: head 0 | head 1 | sequence 1: head 0 ............ | head 1 ............ | ...
    CTAs     [ 0 ........][ 1 .........][ 2 .........][ 3 .........][ 4 .........][ 5 ...

Lengths are read in every launch, so that a CUDA graph follows them; there is nothing to plan. How many tiles stand
before each sequence is added up by one warp at the start. A head's tiles on several CTAs are added up by the last of
them to arrive, in the order of the CTAs. Where rows do not fit a CTA, their chunks follow each other like heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...collective.tile.groups import Groups
from ...collective.tile.sizes import MOST_GROUPS
from ...collective.tile.stream_k import EqualShares
from ...isa.dtypes import s32, u32, u64
from ...lang import ptx, reg, smem
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .attention_decode_config import DecodeConfig


@dataclass
class Keys:
    """The keys of one sequence, s32.

    Attributes:
        length: how many there are.
        least: that all queries see; the last one sees `length`.
        first: before it no query sees any.
    """

    length: Register
    least: Register
    first: Register


@dataclass
class Segment:
    """Tiles of one key head's keys, one after the other.

    Attributes:
        sequence, head: whose, u32.
        row: the first row, u32; rows are numbered query by query, the query heads of each next to each other.
        keys: of the sequence.
        start: the first key, s32.
        tiles: how many here.
        number: of the key head and chunk of rows among those of all sequences.
        owners: the first and the last CTA that have tiles of it.
    """

    sequence: Register
    head: Register
    row: Register
    keys: Keys
    start: Register
    tiles: Register
    number: Register
    owners: tuple[Register, Register]

    @property
    def shared(self) -> Predicate:
        """Whether other CTAs have tiles of it."""
        more: Predicate = self.owners[0] != self.owners[1]
        return more


class Work(Groups):
    """All tiles of a launch.

    Args:
        config: the kernel's.
        lengths: (B,) s32, keys of each sequence; taken to be no more than `most` and no less than 0.
        most: keys that there is room for.
        queries, group, kv_heads: of a sequence, query heads of a key head, and key heads.
        causal: s32, 1 if a query sees a key less than the one after it, 0 if all see all.
        left: s32, keys before its own that a query sees; None where there is no such limit.
    """

    def __init__(
        self, config: DecodeConfig, lengths: ArrayHandle, most: Register, queries: Register, group: Register,
        kv_heads: Register, causal: Register, left: Register | None,
    ) -> None:  # fmt: skip
        self.config, self.lengths, self.most, self.left = config, lengths, most.view(s32), left
        self.count, self.causal, self.kv_heads = lengths.shape[0], causal, kv_heads
        self.rows = queries * group
        self.behind = causal * (queries.view(s32) - 1)
        self.chunks = (self.rows + (config.rows - 1)) // config.rows
        self.per_sequence = kv_heads * self.chunks
        self.before = smem.array(u32, MOST_GROUPS + 1, name="tiles_before")

    def keys(self, sequence: Register) -> Keys:
        """Read the length of a sequence."""
        told = ptx.load(s32, ptx.addr(self.lengths.pointer() + sequence.to(u64) * s32.bytes))
        length = ptx.math.min(ptx.math.max(told, 0), self.most)
        least, first = length - self.behind, reg.scalar(s32, init=0)
        if self.left is not None:
            first.set(ptx.math.max(least - 1 - self.left, 0))
        return Keys(length, least, first)

    def _rows(self, group: Register) -> Register:
        """Tiles of a sequence, at least one, so that somebody writes its rows; 0 after the last sequence."""
        tiles = reg.scalar(u32, init=0)
        with ptx.if_(group < self.count):
            keys = self.keys(group)
            behind_last = (keys.length.view(u32) + (self.config.keys - 1)) // self.config.keys
            tiles.set(ptx.math.max(behind_last - keys.first.view(u32) // self.config.keys, 1))
        return tiles

    def begin(self) -> None:
        """By all threads, after the CTA has met."""
        self.shares = EqualShares(ptx.load(u32, self.before[self.count]) * self.per_sequence, self.config.several)

    def segments(self, *, only_first: bool = False) -> Iterator[Segment]:
        """This CTA's; a run-time loop."""
        shares, size = self.shares, self.config.keys
        position = reg.scalar(u32, init=shares.begin)
        with ptx.if_(position < shares.end) if only_first else ptx.while_(lambda: position < shares.end):
            sequence = self.holding(position // self.per_sequence)
            before = ptx.load(u32, self.before[sequence])
            tiles = ptx.load(u32, self.before[sequence + 1]) - before
            rest = position - before * self.per_sequence
            which = rest // tiles
            tile = rest - which * tiles
            keys = self.keys(sequence)
            count = ptx.math.min(tiles - tile, shares.end - position)
            owners = shares.owner(position - tile), shares.owner(position - tile + (tiles - 1))
            start = (keys.first.view(u32) // size + tile) * size
            yield Segment(
                sequence, which // self.chunks, which % self.chunks * self.config.rows, keys, start.view(s32), count,
                sequence * self.per_sequence + which, owners,
            )  # fmt: skip
            position += count
