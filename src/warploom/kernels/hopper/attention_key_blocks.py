"""A block of keys of the gradient kernel: which one a CTA takes, and which tiles of queries see it.

    queries   0 ...... begin | clear ................ low | ...... end ....... S
                     diagonal's edge               window's edge

Tiles from `begin` to `clear` and from `low` to `end` are masked. Packed sequences are numbered block by block, and each
has whole tiles of queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...collective.tile.groups import Offsets
from ...isa.dtypes import s32, u32, u64
from ...lang import ptx, reg, smem
from ...lang.values import Register
from .attention_backward_config import BackwardConfig
from .attention_backward_rows import padded_begin
from .attention_config import QUERY_ROWS, Attention
from .attention_rows import Rows
from .attention_tiles import Sequence, Sequences
from .attention_visits import Visits


@dataclass
class Packed:
    """The first index of a packed sequence's keys, of its queries (s32), and of their lse2 and delta (u32)."""

    key: Register
    query: Register
    padded: Register


@dataclass
class KeyBlock:
    """A block of keys and the tiles of queries that see it. Tile indices, `row` and `keys` are s32; query i sees keys
    i + first to i + last. `row`: the first of the block's keys; `keys`: the number of all keys, of the sequence.
    `visits`: the tiles, if lists say which see the block."""

    row: Register
    keys: Register
    kv_head: Register
    batch: Register
    group: Register
    begin: Register
    clear: Register
    low: Register
    end: Register

    last: Register | None
    first: Register | None
    packed: Packed | None = None
    visits: Visits | None = None

    def queries(self, head: Register, tile: int) -> Iterator[Register]:
        """A run-time loop over the tiles of `tile` queries: the first query of each, the last tile first."""
        if self.visits is not None:
            for visit in self.visits.walk(head):
                yield visit.tile * tile
        else:
            query = (self.end - 1) * tile
            for _ in ptx.range(self.begin, self.end):
                yield query
                query -= tile


class KeyBlocks:
    """All blocks of a launch, and the one of this CTA.

    With a fixed order of sums, a CTA takes a ticket, so that those before it are running or done. Otherwise no CTA
    waits for another, and the CTA's index will do. `section`: see `attention_backward_config`.
    """

    def __init__(self, of: Attention, config: BackwardConfig, call: dict[str, Any]) -> None:
        self.of, self.config, self.call = of, config, call
        self.ticket = smem.array(u32, 1, name="ticket") if config.ordered else None
        self.batches, self.keys, self.heads, _ = call["K"].shape
        self.sequences: Sequences | None = None
        if of.varlen:
            ends = Offsets(call["k_ends"]), Offsets(call["q_ends"])
            self.sequences = Sequences(*ends, self.keys, call["Q"].shape[1], config.tile_n)

    def initialise(self) -> None:
        """Take a ticket and count the blocks of sequences; the CTA must synchronise before `block`."""
        if self.ticket is not None:
            with ptx.if_(ptx.special.tid.x() == 0):
                turns = self.call["turns"]
                counter = turns.pointer() + (turns.shape[0] - 1).to(u64) * u32.bytes
                ptx.store(self.ticket[0], ptx.atomic.add(ptx.addr(counter), 1))
        if self.sequences is not None:
            self.sequences.initialise()

    def exists(self) -> Any:
        """True if this CTA has a block: packed sequences have fewer than the grid has CTAs."""
        return self._number() < self._per_head() * self.heads * self.batches

    def block(self) -> KeyBlock:
        """The block of this CTA."""
        index, both = self._index()
        heads = self.call["Q"].shape[2]
        place = both % self.heads, both // self.heads, heads // self.heads
        edges = self.call.get("last"), self.call.get("first")
        if self.sequences is None:
            row = (index * self.config.tile_n).view(s32)
            block = self._block(row, self.keys.view(s32), self.call["Q"].shape[1], edges, place)
            return replace(block, visits=Visits.of(self.call, index, block.batch)) if self.of.block_mask else block
        sequence = self.sequences.find(index)  # whose "queries" are keys, because its blocks are blocks of keys
        keys, queries = sequence.query_end - sequence.query_begin, sequence.key_end - sequence.key_begin
        last, first = (None if edge is None else edge + (keys - queries) for edge in edges)
        block = self._block(sequence.row, keys, queries.view(u32), (last, first), place)
        padded = padded_begin(sequence.key_begin, sequence.number, self.config.tile_m)
        return replace(block, packed=Packed(sequence.query_begin, sequence.key_begin, padded))

    def rows_of(self, me: int) -> Rows:
        """The 64 keys of a consumer in a packed sequence, found again: accumulators need the registers until then."""
        assert self.sequences is not None
        index, head = self._index()
        sequence: Sequence = self.sequences.find(index)
        begin, end = sequence.query_begin, sequence.query_end
        return Rows(sequence.row + QUERY_ROWS * me, begin, end - begin, head, self.heads)

    def _number(self) -> Register:
        return ptx.special.ctaid.x() if self.ticket is None else ptx.load(u32, self.ticket[0])

    def _per_head(self) -> Register:
        """Blocks of a key head."""
        if self.sequences is not None:
            return self.sequences.total()
        return (self.keys + (self.config.tile_n - 1)) // self.config.tile_n

    def _index(self) -> tuple[Register, Register]:
        """This CTA's block of a head, and its head among those of all batches."""
        number, section = self._number(), self.call["section"]
        per_head = self._per_head()
        before = number // (per_head * section) * section
        rest, width = number - before * per_head, ptx.math.min(section, self.heads * self.batches - before)
        return rest // width, before + rest % width

    def _block(
        self, row: Register, keys: Register, queries: Register, edges: tuple[Register | None, Register | None],
        place: tuple[Register, Register, Register],
    ) -> KeyBlock:  # fmt: skip
        """The block whose first key is `row`, with the tiles that see it.

        The first block has all tiles, also those that see no key: it stores what the others add to. A block that
        extends beyond the keys is masked in all tiles: the exponential of a zero score may be infinite, and would reach
        dQ.
        """
        rows, tile, (last, first) = self.config.tile_n, self.config.tile_m, edges
        total = ((queries + (tile - 1)) // tile).view(s32)
        begin = clear = ptx.math.min(total, 0)
        end = low = total
        if last is not None:  # query i sees keys up to i + last
            begin = ptx.math.min(total, _tiles(row - last, tile))
            clear = ptx.math.min(total, _tiles(row - last + (rows - 1 + tile - 1), tile))
        if first is not None:  # and no keys before i + first
            end = ptx.math.min(total, _tiles(row - first + (rows - 1 + tile), tile))
            end = ptx.math.max(end, begin)
            clear = ptx.math.min(clear, end)
            low = ptx.math.min(ptx.math.max(_tiles(row - first + 1, tile), clear), end)
        zero = reg.scalar(s32, init=0)
        begin = ptx.select(row == 0, zero, begin)
        ragged = row + rows > keys
        clear, low = (ptx.select(ragged, end, edge) for edge in (clear, low))
        return KeyBlock(row, keys, *place, begin, clear, low, end, last, first)


def _tiles(query: Register, size: int) -> Register:
    """The number of full tiles before a query, at least 0."""
    return (ptx.math.max(query, 0).view(u32) // size).view(s32)
