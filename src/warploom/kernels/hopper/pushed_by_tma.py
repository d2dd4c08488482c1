"""Pushing rows of A to peer GPUs by TMA, in the order of the waves that multiply them.

    loader    one thread    [segment -> slot 0][segment -> slot 1] ...              bulk loads, full[s]
    sender    one warp      [slot 0 -> peer][slot 1 -> peer] ... [signal] ...       bulk stores, free[s]

A segment is a row's part of a chunk of K, or less of it if a slot is smaller. Bulk copies need no registers and few
instructions, so one CTA sends as much as many warps would.

In flight  at most `in_flight` segments of a CTA are on their way; before the sender stores another one, it waits until
           the oldest has arrived (`wait_group`, not `.read`). Then its slot is free, and if it was the last one of its
           piece, the piece is signalled. So no piece waits for an empty link, however short it is.
Order      A block has as many rows of tiles of a part as run at one time. Blocks go in the order of the waves that
           multiply them; blocks of one wave, of whichever parts, go chunk by chunk of K, because their tiles are
           multiplied at the same time. So the product follows the rows chunk by chunk in every wave.
Fences     `wait_group` makes a bulk store visible to this thread, a proxy fence orders it before what the thread does
           in the generic proxy, and a release of .sys scope passes it on. TMA reads the rows at their receiver, whose
           acquire is followed by a proxy fence, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...collective.pipeline.tma import State, advance
from ...collective.tile.ranked import RankedTiles
from ...errors import ArgumentError
from ...isa.dtypes import b128, u32, u64
from ...lang import ptx, reg, smem
from ...lang.peers import PeerArrays, wrapped
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .description import SHARED_BYTES, Config, Fusion, Product
from .pushed_rows import Arrivals, Chunks, RowSlice
from .ranked_scales import Scales

__all__ = ["IN_FLIGHT", "MOST_CHUNKS", "ROWS", "Order", "Slots", "load_segments", "segment_bytes", "send_segments"]

IN_FLIGHT, MOST_IN_FLIGHT = 6, 16
"""Segments of a CTA on their way to peers at a time: six are 12 KiB, of 132 CTAs 1.6 MB, which is 400 GB/s for a round
trip of 4 us. More would queue for the link, and in each multiprocessor the product's requests behind them."""
AHEAD = 2
"""Slots besides those in flight, which are being loaded."""
LEAST_SEGMENT, MOST_SEGMENT = 512, 2048
"""Bytes of a slot."""
MOST_CHUNKS = 16
"""Most chunks of K."""
ROWS = 8
"""Rows of a piece, which are signalled together."""
SENDING_EIGHTHS = 8
"""Eighths of the CTAs that send."""
_STEP = 128


def segment_bytes(in_flight: int, config: Config, product: Product, fusion: Fusion) -> int:
    """Return the bytes of a slot: as many as fit beside the ring and the store boxes. Raises ArgumentError."""
    room = SHARED_BYTES - config.shared_bytes(product, fusion)
    size = min(MOST_SEGMENT, room // (max(in_flight, 1) + AHEAD) // _STEP * _STEP)
    if not 1 <= in_flight <= MOST_IN_FLIGHT or size < LEAST_SEGMENT:
        raise ArgumentError(
            f"{in_flight} segments cannot be in flight beside the tiles of {config.name()}",
            expected=f"1 to {MOST_IN_FLIGHT}; {LEAST_SEGMENT} bytes of shared memory for each of them and {AHEAD} more",
            got=f"{in_flight} segments, {max(room, 0)} bytes",
            hint="a configuration with fewer store boxes (`epi_stages`) or stages leaves more",
            code="configuration",
        )
    return size


class Slots:
    """Slots for segments in shared memory. `ring.initialise` initialises the barriers.

    Attributes:
        last: for each slot, if its segment is the last one of a piece, the piece's counter and the GPU that has it;
            counter 0, which no piece has, otherwise. Only the sending thread reads and writes it.
    """

    def __init__(self, in_flight: int, segment: int) -> None:
        self.in_flight, self.count, self.segment = in_flight, in_flight + AHEAD, segment
        self.memory = smem.array(b128, (self.count, segment // b128.bytes), name="segments")
        self.full = smem.mbarrier(self.count, name="segments.full")
        self.free = smem.mbarrier(self.count, name="segments.free")
        self.last = smem.array(u32, (self.count, 2), name="segments.last")

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for slot in range(self.count):
            ptx.mbarrier.init(self.full[slot], 1)
            ptx.mbarrier.init(self.free[slot], 1)


@dataclass(frozen=True)
class Order:
    """The pieces of this GPU's rows that a CTA sends, in order; see the module's docstring. rows: of A on each GPU."""

    chunks: Chunks
    schedule: RankedTiles
    rows: Register

    def pieces(self) -> Iterator[tuple[Register, RowSlice]]:
        """Yield the receiver and the rows of each piece of this CTA."""
        tiles, ctas, ranks = self.schedule, ptx.special.nctaid.x(), self.schedule.ranks
        at_once = ctas // tiles.across
        at_once = ptx.select(at_once < tiles.down, at_once, tiles.down)
        at_once = ptx.select(at_once > 1, at_once, 1)
        blocks = (tiles.down + at_once - 1) // at_once
        of_block = (tiles.down + blocks - 1) // blocks
        units, in_piece = blocks * (ranks - 1), tiles.tile[0] // ROWS
        of_unit = of_block * in_piece
        begin, senders = reg.scalar(u32, init=0), (ctas * SENDING_EIGHTHS + 7) // 8
        for wave in ptx.range(1, (tiles.in_part * ranks + ctas - 1) // ctas + 1, unroll=False):
            done = wave * ctas * blocks // tiles.in_part
            end = ptx.select(done > blocks, done - blocks, 0)
            end = ptx.select(end < units, end, units)
            here = (end - begin) * of_unit
            count = here * self.chunks.count
            first_of = ptx.select(ptx.special.ctaid.x() < senders, ptx.special.ctaid.x(), count)
            for number in ptx.range(first_of, count, senders, unroll=False):
                chunk, inside = number // here, number % here
                unit, inside = begin + inside // of_unit, inside % of_unit
                place, tile = unit // blocks, unit % blocks * of_block + inside // in_piece
                first = tile * tiles.tile[0] + inside % in_piece * ROWS
                yield wrapped(tiles.rank + (ranks - 1) - place, ranks), self._piece(tile, chunk, first)
            begin.set(end)

    def _piece(self, tile: Register, chunk: Register, first: Register) -> RowSlice:
        left = ptx.select(first < self.rows, self.rows - first, 0)
        count = ptx.select(left < ROWS, left, ROWS)
        column = chunk * self.chunks.bytes
        rest = self.chunks.row_bytes - column
        size = ptx.select(rest < self.chunks.bytes, rest, self.chunks.bytes)
        return RowSlice(tile, chunk, first, count, first.to(u64) * self.chunks.row_bytes + column, size)

    def segments(self, piece: RowSlice, most: int) -> Iterator[tuple[Register, Register, Register]]:
        """Yield the offset (u64) in this GPU's rows and the bytes of each segment of a piece, and how many segments
        follow it there."""
        left = (piece.bytes + (most - 1)) // most * piece.rows
        for row in ptx.range(piece.rows, unroll=False):
            of_row = piece.start + row.to(u64) * self.chunks.row_bytes
            for start in ptx.range(0, piece.bytes, most, unroll=False):
                rest = piece.bytes - start
                left -= 1
                yield of_row + start, ptx.select(rest < most, rest, most), left


def load_segments(A: ArrayHandle, slots: Slots, order: Order) -> None:
    """Load the segments of this CTA's pieces, in one thread."""
    state = State(reg.scalar(u32, init=0), reg.scalar(u32, init=1))
    for _, piece in order.pieces():
        for offset, size, _ in order.segments(piece, slots.segment):
            full = slots.full[state.index]
            ptx.mbarrier.wait(slots.free[state.index], state.phase)
            ptx.mbarrier.arrive_expect_tx(full, size)
            ptx.cp.async_.bulk.load(slots.memory[state.index, 0], ptx.addr(A.pointer() + offset), size, full)
            advance(state, slots.count)


def send_segments(
    gathered: PeerArrays, slots: Slots, order: Order, arrivals: Arrivals, scales: Scales | None, lane: Register
) -> None:
    """Send the segments to their receivers and signal each piece, in one warp."""
    state, rank = State(reg.scalar(u32, init=0), reg.scalar(u32, init=0)), order.schedule.rank
    known, sent = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
    part, down = order.rows.to(u64) * order.chunks.row_bytes, order.schedule.down

    def arrived(slot: Register) -> None:
        counter, to = ptx.load(u32, slots.last[slot, 0], vector=2)
        with ptx.if_(counter != 0):
            ptx.fence.proxy_async()
            arrivals.signals.add(to, counter)

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
            counter = arrivals.counter(rank, piece.tile, piece.chunk)
            with ptx.if_((piece.rows == 0) & (piece.tile < down)):  # past the last row, but counted
                arrivals.signals.add(owner, counter)
            target = gathered.pointer(owner) + rank.to(u64) * part
            for offset, size, left in order.segments(piece, slots.segment):
                with ptx.if_(sent == slots.in_flight):
                    ptx.cp.async_.bulk.wait_group(slots.in_flight - 1)
                    oldest = wrapped(state.index + AHEAD, slots.count)
                    ptx.mbarrier.arrive(slots.free[oldest])
                    arrived(oldest)
                    sent -= 1
                ptx.mbarrier.wait(slots.full[state.index], state.phase)
                ptx.cp.async_.bulk.store(ptx.addr(target + offset), slots.memory[state.index, 0], size)
                ptx.cp.async_.bulk.commit_group()
                ptx.store(slots.last[state.index, 0], [ptx.select(left == 0, counter, 0), owner])
                sent += 1
                advance(state, slots.count)
    with ptx.if_(lane == 0):
        ptx.cp.async_.bulk.wait_group(0)
        for number in ptx.range(sent, unroll=False):
            arrived(wrapped(state.index + number + (slots.count - sent), slots.count))
