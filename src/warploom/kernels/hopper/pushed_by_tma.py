"""Pushing rows of A to peer GPUs by TMA, in the order of the waves that multiply them.

    loader    one thread    [row segment -> slot 0][-> slot 1] ...                      bulk loads, slots[s] full
    sender    one warp      [slot 0 -> peer][slot 1 -> peer] ... [signal] ...           bulk stores, slots[s] free

A segment is at most `SEGMENT` bytes of a row. Bulk copies need no registers and few instructions, so one CTA sends as
much as many warps would. A CTA has at most `IN_FLIGHT` segments on their way; a slot is free when its segment has
arrived. A piece is signalled when it has arrived, while segments of the next one are on their way.

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

SEGMENT, SLOTS = 2048, 8
"""Bytes of a row in one bulk copy, at most, and number of slots for them in shared memory."""
IN_FLIGHT = 4
"""Segments of a CTA on their way to peers, at most. 132 CTAs x 4 x 2 KiB are 1.1 MB: 400 GB/s for a round trip of 2.7
us. More would queue for the link, and in each multiprocessor the product's requests behind them. The other slots are
being loaded."""
SENDING_EIGHTHS = 8
"""Eighths of the CTAs that send."""


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
        begin, senders = reg.scalar(u32, init=0), (ctas * SENDING_EIGHTHS + 7) // 8
        for wave in ptx.range(1, (schedule.in_part * schedule.ranks + ctas - 1) // ctas + 1, unroll=False):
            done = wave * ctas * blocks // schedule.in_part
            end = ptx.select(done > blocks, done - blocks, 0)
            end = ptx.select(end < units, end, units)
            here = (end - begin) * of_unit
            count = here * self.chunks.count
            first_of = ptx.select(ptx.special.ctaid.x() < senders, ptx.special.ctaid.x(), count)
            for number in ptx.range(first_of, count, senders, unroll=False):
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
    """Send the segments to their receivers and signal each piece, in one warp."""
    state, rank = State(reg.scalar(u32, init=0), reg.scalar(u32, init=0)), order.schedule.rank
    known, sent, since = (reg.scalar(u32, init=0) for _ in range(3))  # since: segments since the last piece
    part, down = order.rows.to(u64) * order.chunks.row_bytes, order.schedule.down
    last, tile, chunk = reg.scalar(u32, init=0), reg.scalar(u32, init=down), reg.scalar(u32, init=0)

    def signal() -> None:
        with ptx.if_(tile < down):
            arrivals.add(last, rank, tile, chunk)

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
                ptx.cp.async_.bulk.wait_group(IN_FLIGHT)
                with ptx.if_(sent >= IN_FLIGHT):
                    ptx.mbarrier.arrive(slots.free[(state.index + (SLOTS - IN_FLIGHT)) % SLOTS])
                sent += 1
                since += 1
                with ptx.if_(since == IN_FLIGHT):
                    signal()
                advance(state, SLOTS)
            with ptx.if_(since < IN_FLIGHT):
                ptx.cp.async_.bulk.wait_group(0)
                signal()
            for register, value in ((last, owner), (tile, piece.tile), (chunk, piece.chunk), (since, 0)):
                register.set(value)
    with ptx.if_(lane == 0):
        ptx.cp.async_.bulk.wait_group(0)
        signal()
