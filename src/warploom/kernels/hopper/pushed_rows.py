"""Pushing rows of A to peer GPUs piece by piece, and the counters that report their arrival.

If copy engines copy the rows, no warp pushes: one flag reports a chunk of K of the rows of a block of tiles.

A piece is a few rows of a tile in a chunk of K. One warp copies it, 16 bytes per lane, and increments a counter in the
destination GPU's memory. A tile is multiplied as far as the chunks of its rows are complete.

    order    to one GPU after the other, each time all rows of a chunk and then the next chunk; if all tiles run at
             once (`together`), a chunk to each GPU and then the next chunk, as all parts are awaited then
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...collective.tile.peer_signals import PeerSignals
from ...collective.tile.roles import WARP, WARPGROUP
from ...isa.dtypes import b32, u64
from ...lang import ptx
from ...lang.peers import PeerArrays, wrapped
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .ranked_scales import Scales

__all__ = ["CHUNKS", "PIECE_ROWS", "Arrivals", "Chunks", "CopyEngineArrivals", "Pieces", "copy", "push"]

PUSHERS = 3
"""Pushing warps per CTA, at most."""
CHUNKS, LEAST_CHUNK = 8, 8
"""Most chunks of K, and least k-tiles of a chunk."""
PIECE_ROWS = 4
"""Rows of a tile that one warp pushes at a time: few, so that a short A keeps all warps busy."""
PUSHING_EIGHTHS = {2: 3}
MOST_EIGHTHS = 5
"""Eighths of the CTAs that push, to one peer and to several, with `PUSHERS` warps each; with fewer warps, more CTAs:
enough to keep up with the products, but few enough to leave them memory bandwidth."""
_BYTES = 16
_UNROLL = 4
"""Vectors of a lane that are in flight at a time."""
COLUMNS = 2
"""Vectors of each row of a piece that a lane has in flight: with `PIECE_ROWS` rows, eight."""


@dataclass(frozen=True)
class Chunks:
    """The chunks of K: their number, k-tiles in all and in each but the last, bytes of a row of A and of its chunk."""

    count: Register
    num_k_tiles: Register
    of_chunk: Register
    row_bytes: Register
    bytes: Register

    @classmethod
    def of(cls, num_k_tiles: Register, k_tile_bytes: int, row_bytes: Register, most: int, whole: int = 1) -> Chunks:
        """Make at most `most` chunks, with a multiple of `whole` k-tiles, and at least `LEAST_CHUNK`, each."""
        share = (num_k_tiles + (most - 1)) // most
        of_chunk = ptx.select(share > LEAST_CHUNK, share, LEAST_CHUNK)
        if whole > 1:
            of_chunk = (of_chunk + (whole - 1)) // whole * whole
        return cls.by(of_chunk, num_k_tiles, k_tile_bytes, row_bytes)

    @classmethod
    def by(cls, of_chunk: Register, num_k_tiles: Register, k_tile_bytes: int, row_bytes: Register) -> Chunks:
        """Make chunks of `of_chunk` k-tiles."""
        return cls((num_k_tiles + of_chunk - 1) // of_chunk, num_k_tiles, of_chunk, row_bytes, of_chunk * k_tile_bytes)

    def k_tiles(self, chunk: Register) -> Iterator[Register]:
        """Iterate over the k-tiles of a chunk."""
        first = chunk * self.of_chunk
        end = first + self.of_chunk
        yield from ptx.range(first, ptx.select(end < self.num_k_tiles, end, self.num_k_tiles))


@dataclass(frozen=True)
class Arrivals:
    """Arrivals from other GPUs: a counter for each chunk of K of the rows of each tile.

    pieces: the number of pieces of a tile's rows, each sent by one warp. Pieces past the last row count, too.
    chunks: the most chunks of K.
    """

    signals: PeerSignals
    ranks: int
    down: Register
    pieces: int
    chunks: int

    def wait(self, owner: Register, tile: Register, chunk: Register) -> None:
        """Wait, in one thread, until a chunk of the rows of a tile of GPU `owner` has arrived."""
        self.signals.wait(self._counter(owner, tile, chunk), self.pieces)

    def add(self, to: Register, owner: Register, tile: Register, chunk: Register) -> None:
        """Signal to GPU `to`, in one thread, that a piece of GPU `owner` has arrived."""
        self.signals.add(to, self._counter(owner, tile, chunk))

    def _counter(self, owner: Register, tile: Register, chunk: Register) -> Register:
        counter: Register = (owner * self.down + tile) * self.chunks + chunk + self.ranks
        return counter


@dataclass(frozen=True)
class CopyEngineArrivals:
    """Arrivals by the copy engines of other GPUs: a flag for each chunk of K of each block of tiles' rows.

    tiles_of_block: tiles of a block along M. Flags come after the counters of the ranks.
    """

    signals: PeerSignals
    ranks: int
    down: Register
    chunks: Chunks
    tiles_of_block: Register

    @property
    def count(self) -> Register:
        """The number of flags, including the never raised ones of this GPU's own rows."""
        count: Register = self._blocks * self.chunks.count * self.ranks
        return count

    @property
    def _blocks(self) -> Register:
        blocks: Register = (self.down + self.tiles_of_block - 1) // self.tiles_of_block
        return blocks

    def wait(self, owner: Register, tile: Register, chunk: Register) -> None:
        """Wait, in one thread, until a chunk of the rows of a tile of GPU `owner` has arrived."""
        block = owner * self._blocks + tile // self.tiles_of_block
        self.signals.wait_for_flag(block * self.chunks.count + chunk + self.ranks)


@dataclass(frozen=True)
class RowSlice:
    """Some rows of a tile in a chunk of K: the first row, the number of rows, their start in bytes, and the bytes per
    row."""

    tile: Register
    chunk: Register
    first: Register
    rows: Register
    start: Register
    bytes: Register


@dataclass(frozen=True)
class Pieces:
    """The pieces of one GPU's rows in the order of sending: a chunk of K of all rows, then the next chunk."""

    chunks: Chunks
    tile_m: int
    down: Register
    rows: Register
    ranks: int
    rank: Register

    @property
    def number(self) -> Register:
        """The number of pieces."""
        count: Register = self.chunks.count * self.down * (self.tile_m // PIECE_ROWS)
        return count

    def of(self, number: Register) -> RowSlice:
        """Return a piece by its index."""
        of_tile = self.tile_m // PIECE_ROWS
        of_chunk = self.down * of_tile
        chunk, inside = number // of_chunk, number % of_chunk
        first = inside * PIECE_ROWS
        left = ptx.select(first < self.rows, self.rows - first, 0)
        here = ptx.select(left < PIECE_ROWS, left, PIECE_ROWS)
        column = chunk * self.chunks.bytes
        rest = self.chunks.row_bytes - column
        size = ptx.select(rest < self.chunks.bytes, rest, self.chunks.bytes)
        start = first.to(u64) * self.chunks.row_bytes + column
        return RowSlice(inside // of_tile, chunk, first, here, start, size)

    def rank_after(self, distance: Register) -> Register:
        """Return the rank `distance` after this one, wrapped."""
        return wrapped(self.rank + distance, self.ranks)


def push(
    A: ArrayHandle, gathered: PeerArrays, pieces: Pieces, arrivals: Arrivals, scales: Scales | None,
    together: Predicate, pushers: int = PUSHERS,
) -> None:  # fmt: skip
    """Push this GPU's rows to all peers, each piece by one warp, in the order that `together` selects; see the
    module. By the last `pushers` warps of warpgroup 0."""
    ranks, rank = pieces.ranks, pieces.rank
    lane, warp = ptx.special.tid.x() & (WARP - 1), (ptx.special.tid.x() - (WARPGROUP - pushers * WARP)) // WARP
    eighths = min(8, -(-PUSHING_EIGHTHS.get(ranks, MOST_EIGHTHS) * PUSHERS // pushers))
    pushing = (ptx.special.nctaid.x() * eighths + 7) // 8
    cta = ptx.special.ctaid.x()
    start_at = ptx.select(cta < pushing, warp * pushing + cta, pieces.number)
    rounds = ptx.select(together, pieces.chunks.count, 1)
    of_round = pieces.number // rounds
    for turn in ptx.range(rounds * (ranks - 1), unroll=False):
        first = turn // (ranks - 1) * of_round
        owner = pieces.rank_after(ranks - 1 - turn % (ranks - 1))
        with ptx.if_(lane == 0):
            arrivals.signals.wait_for_launch(owner)
        ptx.warp.sync()
        target = gathered.pointer(owner) + rank.to(u64) * (pieces.rows * pieces.chunks.row_bytes.to(u64))
        for number in ptx.range(first + start_at, first + of_round, pushing * pushers, unroll=False):
            piece = pieces.of(number)
            if scales is not None:
                with ptx.if_(piece.chunk == 0):
                    scales.send(owner, piece.first, lane, piece.rows)
            copy_piece(A.pointer(), target, piece, pieces.chunks.row_bytes, lane)
            ptx.warp.sync()
            with ptx.if_(lane == 0):
                arrivals.add(owner, rank, piece.tile, piece.chunk)


def copy_piece(source: Register, target: Register, piece: RowSlice, row_bytes: Register, lane: Register) -> None:
    """Copy a piece from one array to another, by one warp: a lane loads its vectors of all rows before it stores
    them."""
    count, there = piece.bytes // _BYTES, target - source
    first = source + piece.start
    for at in ptx.range(lane, ptx.select(piece.rows != 0, count, 0), COLUMNS * WARP, unroll=False):
        start = first + at.to(u64) * _BYTES
        rows = [start + number * row_bytes.to(u64) for number in range(PIECE_ROWS)]
        moved = [
            (row, step * WARP * _BYTES, (piece.rows > number) & (at + step * WARP < count))
            for number, row in enumerate(rows) for step in range(COLUMNS)
        ]  # fmt: skip
        values = [ptx.load(b32, ptx.addr(row, step), vector=4, pred=inside) for row, step, inside in moved]
        for (row, step, inside), value in zip(moved, values, strict=True):
            ptx.store(ptx.addr(row + there, step), value, pred=inside)


def copy(source: Register, target: Register, thread: Register, count: Register, threads: int) -> None:
    """Copy `count` 16-byte vectors by `threads` threads, each issuing several loads before their stores."""
    whole = count // (threads * _UNROLL) * (threads * _UNROLL)
    for at in ptx.range(thread, whole, threads * _UNROLL, unroll=False):
        here = at.to(u64) * _BYTES
        steps = [step * threads * _BYTES for step in range(_UNROLL)]
        values = [ptx.load(b32, ptx.addr(source + here, step), vector=4) for step in steps]
        for step, value in zip(steps, values, strict=True):
            ptx.store(ptx.addr(target + here, step), value)
    for at in ptx.range(whole + thread, count, threads, unroll=False):
        here = at.to(u64) * _BYTES
        ptx.store(ptx.addr(target + here), ptx.load(b32, ptx.addr(source + here), vector=4))
