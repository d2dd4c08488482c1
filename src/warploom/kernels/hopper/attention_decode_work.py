"""Divide the keys among CTAs: each reads an equal share of all tiles of the launch, regardless of sequence lengths.

    tiles    | sequence 0: head 0 | head 1 | sequence 1: head 0 ............ | head 1 ............ | ...
    CTAs     [ 0 ........][ 1 .........][ 2 .........][ 3 .........][ 4 .........][ 5 ...

Every launch reads the lengths, so a CUDA graph follows them and no planning step is needed. At the start, one warp
computes the number of tiles before each sequence. If several CTAs share a head's tiles, the last to arrive combines
their parts, in the order of the CTAs. With `config.head_aligned`, shares begin where heads do if all lengths are equal.
Rows that do not fit one CTA are split into chunks, which are treated as heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...collective.tile.groups import Groups
from ...collective.tile.sizes import MOST_GROUPS
from ...collective.tile.stream_k import EqualShares
from ...isa.dtypes import DType, s32, u32, u64
from ...lang import ptx, reg, smem
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .attention_decode_config import DecodeConfig


@dataclass
class KeyRange:
    """The keys of one sequence, s32.

    Attributes:
        length: number of keys.
        least: number of keys that the first query sees; the last query sees `length`.
        first: first key that any query sees.
    """

    length: Register
    least: Register
    first: Register


@dataclass
class Segment:
    """Consecutive tiles of one key head.

    Attributes:
        sequence, head: indices, u32.
        row: the first row, u32; rows are numbered query by query, and a query's heads are adjacent.
        keys: the sequence's keys.
        start: the first key, s32.
        tiles: number of tiles in the segment.
        number: index of the key head and chunk of rows among all sequences.
        owners: the first and the last CTA that have tiles of this head and chunk.
        step: keys from one tile to the next.
    """

    sequence: Register
    head: Register
    row: Register
    keys: KeyRange
    start: Register
    tiles: Register
    number: Register
    owners: tuple[Register, Register]
    step: int

    @property
    def shared(self) -> Predicate:
        """True if other CTAs have tiles of the same head and chunk."""
        more: Predicate = self.owners[0] != self.owners[1]
        return more


class WorkPartition(Groups):
    """All tiles of a launch.

    Args:
        config: the kernel's configuration.
        lengths: (B,) s32, keys of each sequence; clamped to 0 and `most`.
        most: capacity in keys.
        queries, group, kv_heads: queries per sequence, query heads per key head, key heads.
        causal: s32, 1 if each query sees one key less than the next query, 0 if all see all keys.
        left: s32, keys that a query sees before its own; None if there is no limit.
    """

    def __init__(
        self, config: DecodeConfig, lengths: ArrayHandle, most: Register, queries: Register, group: Register,
        kv_heads: Register, causal: Register, left: Register | None,
    ) -> None:  # fmt: skip
        self.config, self.lengths, self.most, self.left = config, lengths, most.view(s32), left
        self.count, self.causal, self.kv_heads = lengths.shape[0], causal, kv_heads
        self.rows = queries * group
        self.behind = causal * (queries.view(s32) - 1)
        self.chunks = (self.rows + (config.tile_m - 1)) // config.tile_m
        self.per_sequence = kv_heads * self.chunks
        self.final = True
        self.aligned = self._aligned() if config.head_aligned else None
        self.allocate()

    def allocate(self) -> None:
        """Allocate the prefix sums."""
        self.before = smem.array(u32, MOST_GROUPS + 1, name="tiles_before")

    def told(self, sequence: Register) -> Register:
        """Read the length of a sequence, not checked."""
        return self.read(s32, self.lengths.pointer() + sequence.to(u64) * s32.bytes)

    def read(self, dtype: DType, place: Register) -> Register:
        """Read a length or a page's number."""
        if self.final:
            found: Register = ptx.load(dtype, ptx.addr(place))
            return found
        found = reg.scalar(dtype)
        ptx.inst(f"ld.relaxed.gpu.global.{dtype}", found, ptx.addr(place))  # an old value must not stay in L1
        return found

    @contextmanager
    def provisionally(self) -> Iterator[None]:
        """Within this, lengths may be old: the previous kernel may still write them."""
        self.final = False
        yield
        self.final = True

    def keys(self, sequence: Register, told: Register | None = None) -> KeyRange:
        """The keys of a sequence; `told`: its length as read."""
        told = self.told(sequence) if told is None else told
        length = ptx.math.min(ptx.math.max(told, 0), self.most)
        least, first = length - self.behind, reg.scalar(s32, init=0)
        if self.left is not None:
            first.set(ptx.math.max(least - 1 - self.left, 0))
        return KeyRange(length, least, first)

    def _rows(self, group: Register) -> Register:
        """Tiles of a sequence, at least one, so that some CTA writes its rows; 0 after the last sequence."""
        tiles = reg.scalar(u32, init=0)
        with ptx.if_(group < self.count):
            keys = self.keys(group)
            behind_last = (keys.length.view(u32) + (self.config.tile_n - 1)) // self.config.tile_n
            tiles.set(ptx.math.max(behind_last - keys.first.view(u32) // self.config.tile_n, 1))
        return tiles

    def begin(self) -> None:
        """Compute this CTA's share. All threads call this after the CTA's barrier."""
        tiles = ptx.load(u32, self.before[self.count])
        ctas = None if self.aligned is None else self._sharing(self.aligned, tiles)
        self.shares = EqualShares(tiles * self.per_sequence, self.config.min_tiles_per_cta, ctas)

    def _aligned(self) -> Register:
        """The most CTAs among which the heads of equally long sequences can be divided so that each CTA reads whole
        heads or an equal part of one, if that leaves at most a sixteenth of the CTAs without a share; else all CTAs."""
        launched, heads = ptx.special.nctaid.x(), self.count * self.per_sequence
        each = (heads + (launched - 1)) // launched
        few = ptx.select(heads < launched, launched // heads * heads, heads // each)
        enough = (few * 16 >= launched * 15) & ((heads < launched) | (few * each == heads))
        return ptx.select(enough, few, launched)

    def _sharing(self, aligned: Register, tiles: Register) -> Register:
        """The CTAs that share the tiles: `aligned` if all sequences are as long as the first, else all."""
        same = ptx.load(u32, self.before[1]) * self.count == tiles
        return ptx.select(same, aligned, ptx.special.nctaid.x())

    def segments(self, most: int | None = None) -> Iterator[Segment]:
        """Iterate over this CTA's segments, or over those of its first `most` tiles, with a run-time loop."""
        shares, size = self.shares, self.config.tile_n
        position = reg.scalar(u32, init=shares.begin)
        end = shares.end if most is None else ptx.math.min(shares.end, shares.begin + most)
        with ptx.while_(lambda: position < end):
            sequence = self.holding(position // self.per_sequence)
            before = ptx.load(u32, self.before[sequence])
            tiles = ptx.load(u32, self.before[sequence + 1]) - before
            rest = position - before * self.per_sequence
            which = rest // tiles
            tile = rest - which * tiles
            keys = self.keys(sequence)
            count = ptx.math.min(tiles - tile, end - position)
            owners = shares.owner(position - tile), shares.owner(position - tile + (tiles - 1))
            start = (keys.first.view(u32) // size + tile) * size
            yield Segment(
                sequence, which // self.chunks, which % self.chunks * self.config.tile_m, keys, start.view(s32), count,
                sequence * self.per_sequence + which, owners, size,
            )  # fmt: skip
            position += count

    def measured(self, segment: Segment) -> Segment:
        """The segment, with its keys and its number of tiles."""
        return segment
