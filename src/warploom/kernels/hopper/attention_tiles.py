"""Map a number to its block of queries, and find the tiles of keys that the block sees.

    keys    0 ........ begin | low ... | full ......... | above ... first |  ......... T
                               window's                   diagonal's
                               edge                       edge, or the end of the keys

Tiles are read from the last to the first. A tile that an edge crosses is masked; `full` tiles are not. The longest
blocks come first, so that the last ones to run are short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...collective.tile.groups import Groups, Limits, Offsets
from ...isa.dtypes import s32, u32, u64
from ...lang import ptx, reg, smem
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .attention_config import MOST_SEQUENCES, Attention


class BlockShape(Protocol):
    """The part of a kernel's configuration that describes its tiles."""

    @property
    def tile_m(self) -> int:
        """Queries per block."""

    @property
    def tile_n(self) -> int:
        """Keys per tile."""


@dataclass
class QueryBlock:
    """A block of queries. Counts of rows, keys and tiles are s32, indices of heads and batches u32.

    Attributes:
        row: index of its first query in its sequence.
        head, kv_head, batch: indices of its head, its key head and its batch.
        queries, keys: lengths of the sequence.
        query_begin, key_begin: the sequence's first rows in its arrays; 0 if each sequence has its own batch.
        last, first: query i of the sequence sees keys i + first to i + last; None if there is no such edge.
        start: the first key of its first tile. Later tiles have lower keys.
        above: number of masked tiles after the first.
        full: number of tiles after those that need no mask.
        low: number of masked tiles after the full ones.
        list: address of the tile numbers in reading order, if lists say which tiles are seen.
        whole: true if the first tile of such a list is full.
    """

    row: Register
    head: Register
    kv_head: Register
    batch: Register
    queries: Register
    keys: Register
    query_begin: Register | int
    key_begin: Register | int
    last: Register | None
    first: Register | None
    start: Register
    above: Register
    full: Register
    low: Register
    list: Register | None = None
    whole: Predicate | None = None

    @property
    def after_first(self) -> Register:
        """The number of tiles after the first."""
        return self.above + self.full + self.low


class KeyTileIterator:
    """Steps through a block's tiles, giving the first key of each.

    Args:
        block: the block.
        start: a register of its own with the first key of the first tile.
        size: keys per tile.
    """

    def __init__(self, block: QueryBlock, start: Register, size: int) -> None:
        self.start, self._size = start, size
        self._at = None if block.list is None else reg.scalar(u64, init=block.list)

    def next(self, *, read: bool = True) -> None:
        """Advance to the next tile. If a list names the tiles, `start` is updated only if `read`."""
        if self._at is None:
            self.start -= self._size
            return
        self._at += s32.bytes
        if read:
            self.start.set(ptx.load(s32, ptx.addr(self._at)) * self._size)


class BlockScheduler:
    """All blocks of a launch.

    Args:
        of, config: the kernel.
        queries, keys: Q (B, S, H, D), K (B, T, G, D).
        section: number of heads whose blocks are interleaved; `block_at` needs it.
        last, first: s32: query i sees keys i + first to i + last; None if `of` has no such edge. For sequences of
            different lengths, T - S of each sequence is added to both.
        ends: for such sequences, the end of each in Q and in K, s32.
        lists: the tiles that each block sees, and the numbers of partly and fully visible ones; see `attention.build`.
    """

    def __init__(
        self, of: Attention, config: BlockShape, queries: ArrayHandle, keys: ArrayHandle, section: Register | None,
        last: Register | None, first: Register | None, ends: tuple[ArrayHandle, ArrayHandle] | None = None,
        lists: tuple[ArrayHandle, ArrayHandle] | None = None,
    ) -> None:  # fmt: skip
        self.lists = lists
        self.of, self.config, self.section, self.last, self.first = of, config, section, last, first
        batches, self.queries, self.heads, _ = queries.shape
        _, self.keys, kv_heads, _ = keys.shape
        self.all_heads = batches * self.heads
        self.group = self.heads // kv_heads
        self.sequences: Sequences | None = None
        if ends is None:
            self._set((self.queries + (config.tile_m - 1)) // config.tile_m)
        else:
            self.sequences = Sequences(Offsets(ends[0]), Offsets(ends[1]), self.queries, self.keys, config.tile_m)

    def _set(self, per_head: Register) -> None:
        self.per_head, self.count = per_head, per_head * self.all_heads

    def initialise(self) -> None:
        """Count the blocks of all sequences. All threads call this before the CTA's barrier."""
        if self.sequences is not None:
            self.sequences.initialise()

    def begin(self) -> None:
        """Set `count`. All threads call this after the CTA's barrier."""
        if self.sequences is not None:
            self._set(self.sequences.total())

    def block_at(self, number: Register) -> QueryBlock:
        """The block with a number, in the order in which blocks should start."""
        assert self.section is not None
        before = number // (self.per_head * self.section) * self.section
        rest = number - before * self.per_head
        width = ptx.math.min(self.section, self.all_heads - before)
        block = (self.per_head - 1) - rest // width
        both = before + rest % width
        if self.sequences is None:
            return self.block(block, both % self.heads, both // self.heads)
        return self.sequence_block(self.sequences.find(block), both)

    def find(self, block: Register) -> Sequence:
        """The sequence that contains block `block` of a head."""
        assert self.sequences is not None
        return self.sequences.find(block)

    def sequence_block(self, sequence: Sequence, head: Register) -> QueryBlock:
        """The block of queries that `sequence` refers to, in one head."""
        queries, keys = sequence.query_end - sequence.query_begin, sequence.key_end - sequence.key_begin
        offset = keys - queries
        last, first = (None if edge is None else edge + offset for edge in (self.last, self.first))
        begins = sequence.query_begin, sequence.key_begin
        return self._block(sequence.row, head, reg.scalar(u32, init=0), (queries, keys), begins, last, first)

    def block(self, index: Register, head: Register, batch: Register) -> QueryBlock:
        """Block `index` of a head, for sequences of equal length."""
        row = (index * self.config.tile_m).view(s32)
        lengths = self.queries.view(s32), self.keys.view(s32)
        if self.lists is not None:
            return self._listed(index, row, head, batch, lengths)
        return self._block(row, head, batch, lengths, (0, 0), self.last, self.first)

    def _block(
        self, row: Register, head: Register, batch: Register, lengths: tuple[Register, Register],
        begins: tuple[Register | int, Register | int], last: Register | None, first: Register | None,
    ) -> QueryBlock:  # fmt: skip
        """A block with its tiles counted: at least one, even if it is fully masked."""
        size, rows = self.config.tile_n, self.config.tile_m
        queries, keys = lengths
        stop = keys if last is None else ptx.math.min(keys, row + rows + last)
        if last is not None or self.sequences is not None:
            stop = ptx.math.max(stop, 1)
        newest = _tile(stop - 1, size)
        # every row sees a key in the tiles from the boundary on, or sees none before it
        boundary = newest
        if last is not None:
            boundary = ptx.math.min(newest, _tile(ptx.math.max(row + last, 0), size))
        begin = reg.scalar(s32, init=0)
        low = reg.scalar(s32, init=0)
        if first is not None:
            begin = ptx.math.min(newest, _tile(ptx.math.max(row + first, 0), size))
            boundary = ptx.math.max(boundary, begin)
            clear = _tile(ptx.math.max(row + (rows - 1 + size - 1) + first, 0), size)
            low = ptx.math.min(ptx.math.max(clear - begin, 0), boundary - begin)
        return QueryBlock(
            row, head, head // self.group, batch, queries, keys, *begins, last, first,
            newest * size, newest - boundary, boundary - begin - low, low,
        )  # fmt: skip

    def _listed(
        self, index: Register, row: Register, head: Register, batch: Register, lengths: tuple[Register, Register]
    ) -> QueryBlock:
        """A block whose tiles are listed, partly visible ones first. If there are none, one tile is read and masked."""
        assert self.lists is not None
        tiles, counts = self.lists
        batches, heads, blocks, most = tiles.shape
        line = ptx.math.min(batch, batches - 1) * heads + ptx.math.min(head, heads - 1)
        line = line * blocks + index
        list_ = tiles.pointer() + (line * most).to(u64) * s32.bytes
        partial, full = ptx.load(s32, ptx.addr(counts.pointer() + line.to(u64) * (2 * s32.bytes)), vector=2)
        none = (partial + full) == 0
        whole = (partial == 0) & ~none
        start = ptx.select(none, 0, ptx.load(s32, ptx.addr(list_)) * self.config.tile_n)
        return QueryBlock(
            row, head, head // self.group, batch, lengths[0], ptx.select(none, 0, lengths[1]), 0, 0, None, None, start,
            ptx.math.max(partial - 1, 0), full - ptx.select(whole, reg.scalar(s32, init=1), 0),
            reg.scalar(s32, init=0), list_, whole,
        )  # fmt: skip

    def outside(self) -> tuple[Register, Register]:
        """A batch and a head out of bounds: TMA fills what it loads from there with zeros."""
        return self.all_heads // self.heads, reg.scalar(u32, init=0)


def _tile(key: Register, size: int) -> Register:
    """The index of the tile that contains a key, s32."""
    return (key.view(u32) // size).view(s32)


@dataclass
class Sequence:
    """The sequence of a block: its number, u32, the block's first row in it, and its bounds in its arrays, s32."""

    number: Register
    row: Register
    query_begin: Register
    query_end: Register
    key_begin: Register
    key_end: Register


class Sequences(Groups):
    """Sequences packed in one array, as groups of rows divided into blocks of `rows`.

    Args:
        queries, keys: bounds of the sequences in Q and in K.
        query_rows, key_rows: total rows of all sequences.
        rows: rows per block.
    """

    def __init__(self, queries: Limits, keys: Limits, query_rows: Register, key_rows: Register, rows: int) -> None:
        self.limits, self.tile, self.height = queries, (rows, 1), query_rows.view(s32)
        self.count = queries.count
        self.before = smem.array(u32, MOST_SEQUENCES + 1, name="blocks_before")
        self._keys, self._key_rows = keys, key_rows.view(s32)

    def total(self) -> Register:
        """Blocks of all sequences per head."""
        return ptx.load(u32, self.before[self.count])

    def find(self, block: Register) -> Sequence:
        """The sequence and rows of block `block` of a head."""
        low = self.holding(block)
        row = (block - ptx.load(u32, self.before[low])) * self.tile[0]
        query_begin, query_end = self._bounds(low)
        key_begin, key_end = self._keys.of(low)
        key_begin = ptx.math.min(ptx.math.max(key_begin, 0), self._key_rows)
        key_end = ptx.math.max(ptx.math.min(key_end, self._key_rows), key_begin)
        return Sequence(low, row.view(s32), query_begin, query_end, key_begin, key_end)
