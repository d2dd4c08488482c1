"""Pushing rows of A to peer GPUs by TMA, in the order of the waves that multiply them.

    loader    one thread    [row segment -> slot 0][-> slot 1] ...                      bulk loads, slots[s] full
    sender    one warp      [slot 0 -> peer][slot 1 -> peer] ... wait, signal           bulk stores, slots[s] free

A segment is at most `SEGMENT` bytes of a row. Bulk copies need no registers and few instructions, so one CTA sends as
much as many warps would. After the rows of a piece the sender waits until they have arrived, and signals them.

Order     A block has as many rows of tiles of a part as run at one time. Blocks go in the order of the waves that
          multiply them; blocks of one wave, of whichever parts, go chunk by chunk of K, because their tiles are
          multiplied at the same time. So the product follows the rows chunk by chunk in every wave.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...collective.pipeline.tma import State, advance
from ...collective.tile.ranked import RankedTiles
from ...isa.dtypes import b128, u32, u64
from ...lang import ptx, reg, smem
from ...lang.peers import PeerArrays, wrapped
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .pushed_rows import Arrivals, Chunks, RowSlice
from .ranked_scales import Scales

__all__ = ["Order", "Slots", "load_segments", "send_segments"]

SEGMENT, SLOTS = 4096, 4
"""Bytes of a row in one bulk copy, at most, and number of slots for them in shared memory."""


class Slots:
    """Slots for segments in shared memory. `ring.initialise` initialises the barriers."""

    def __init__(self) -> None:
        self.memory = smem.array(b128, (SLOTS, SEGMENT // b128.bytes), name="segments")
        self.full = smem.mbarrier(SLOTS, name="segments.full")
        self.free = smem.mbarrier(SLOTS, name="segments.free")

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for slot in range(SLOTS):
            ptx.mbarrier.init(self.full[slot], 1)
            ptx.mbarrier.init(self.free[slot], 1)


@dataclass(frozen=True)
class Order:
    """The pieces of this GPU's rows that a CTA sends, in order; see the module's docstring.

    piece_rows: rows of a piece; rows: of A on each GPU.
    """

    chunks: Chunks
    schedule: RankedTiles
    rows: Register
    piece_rows: int

    def pieces(self) -> Iterator[tuple[Register, RowSlice]]:
        """Yield the receiver and the rows of each piece of this CTA."""
        tiles, ctas, schedule = self.schedule, ptx.special.nctaid.x(), self.schedule
        at_once = ctas // tiles.across
        at_once = ptx.select(at_once < tiles.down, at_once, tiles.down)
        at_once = ptx.select(at_once > 1, at_once, 1)
        blocks = (tiles.down + at_once - 1) // at_once
        of_block = (tiles.down + blocks - 1) // blocks
        units, in_piece = blocks * (schedule.ranks - 1), tiles.tile[0] // self.piece_rows
        of_unit = of_block * in_piece
        begin = reg.scalar(u32, init=0)
        for wave in ptx.range(1, (schedule.in_part * schedule.ranks + ctas - 1) // ctas + 1, unroll=False):
            done = wave * ctas * blocks // schedule.in_part
            end = ptx.select(done > blocks, done - blocks, 0)
            end = ptx.select(end < units, end, units)
            here = (end - begin) * of_unit
            for number in ptx.range(ptx.special.ctaid.x(), here * self.chunks.count, ctas, unroll=False):
                chunk, inside = number // here, number % here
                unit, inside = begin + inside // of_unit, inside % of_unit
                place, tile = unit // blocks, unit % blocks * of_block + inside // in_piece
                first = tile * tiles.tile[0] + inside % in_piece * self.piece_rows
                owner = wrapped(schedule.rank + (schedule.ranks - 1) - place, schedule.ranks)
                yield owner, self._piece(tile, chunk, first)
            begin.set(end)

    def _piece(self, tile: Register, chunk: Register, first: Register) -> RowSlice:
        left = ptx.select(first < self.rows, self.rows - first, 0)
        count = ptx.select(left < self.piece_rows, left, self.piece_rows)
        column = chunk * self.chunks.bytes
        rest = self.chunks.row_bytes - column
        size = ptx.select(rest < self.chunks.bytes, rest, self.chunks.bytes)
        return RowSlice(tile, chunk, first, count, first.to(u64) * self.chunks.row_bytes + column, size)

    def segments(self, piece: RowSlice) -> Iterator[tuple[Register, Register]]:
        """Yield the offset (u64) in this GPU's rows and the bytes of each segment of a piece."""
        for row in ptx.range(piece.rows, unroll=False):
            of_row = piece.start + row.to(u64) * self.chunks.row_bytes
            for start in ptx.range(0, piece.bytes, SEGMENT, unroll=False):
                rest = piece.bytes - start
                yield of_row + start, ptx.select(rest < SEGMENT, rest, SEGMENT)


def load_segments(A: ArrayHandle, slots: Slots, order: Order) -> None:
    """Load the segments of this CTA's pieces, in one thread."""
    state = State(reg.scalar(u32, init=0), reg.scalar(u32, init=1))
    for _, piece in order.pieces():
        for offset, size in order.segments(piece):
            full = slots.full[state.index]
            ptx.mbarrier.wait(slots.free[state.index], state.phase)
            ptx.mbarrier.arrive_expect_tx(full, size)
            ptx.cp.async_.bulk.load(slots.memory[state.index, 0], ptx.addr(A.pointer() + offset), size, full)
            advance(state, SLOTS)


def send_segments(
    gathered: PeerArrays, slots: Slots, order: Order, arrivals: Arrivals, scales: Scales | None, lane: Register
) -> None:
    """Send the segments to their receivers and signal each piece, in one warp. A slot is freed when the next segment is
    on its way."""
    state, rank = State(reg.scalar(u32, init=0), reg.scalar(u32, init=0)), order.schedule.rank
    known, last = reg.scalar(u32, init=0), reg.scalar(u32, init=SLOTS)
    part = order.rows.to(u64) * order.chunks.row_bytes
    for owner, piece in order.pieces():
        mark = reg.scalar(u32, init=1) << owner
        with ptx.if_((known & mark) == 0):  # its rows may be written for the whole launch
            with ptx.if_(lane == 0):
                arrivals.signals.wait_for_launch(owner)
            known |= mark
        ptx.warp.sync()
        if scales is not None:
            with ptx.if_(piece.chunk == 0):
                scales.send(owner, piece.first, lane, piece.rows)
            ptx.warp.sync()
        with ptx.if_(lane == 0):
            target = gathered.pointer(owner) + rank.to(u64) * part
            for offset, size in order.segments(piece):
                ptx.mbarrier.wait(slots.full[state.index], state.phase)
                ptx.cp.async_.bulk.store(ptx.addr(target + offset), slots.memory[state.index, 0], size)
                ptx.cp.async_.bulk.commit_group()
                ptx.cp.async_.bulk.wait_group_read(1)
                with ptx.if_(last < SLOTS):
                    ptx.mbarrier.arrive(slots.free[last])
                last.set(state.index)
                advance(state, SLOTS)
            ptx.cp.async_.bulk.wait_group(0)
            ptx.fence.proxy_async()
            with ptx.if_(piece.tile < order.schedule.down):
                arrivals.add(owner, rank, piece.tile, piece.chunk)
