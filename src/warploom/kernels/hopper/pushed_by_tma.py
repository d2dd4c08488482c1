"""Pushing rows of A to peer GPUs by TMA, in the order of the waves that multiply them.

    mover       one thread    [load 0][load 1] [store 0][load 2] [store 1][load 3] ...   own rows -> slots -> peers
    signaller   one warp      wait until a piece has arrived, [signal] ...               and its rows' scales

A segment is as much of a row as a slot holds; a chunk of K has whole segments. Bulk copies need no registers and few
instructions, so one thread sends as much as many warps would.

In flight  At most `in_flight` segments of a CTA are on their way: before the mover stores another one, it waits until
           the oldest has arrived (`wait_group`, not `.read`), and then counts it in `arrived`. `AHEAD` more are being
           loaded.
Signals    A release for other GPUs takes long, and no segment would be stored meanwhile. So another warp waits for
           `arrived` and signals each piece.
Order      A block has as many rows of tiles of a part as run at one time. Blocks go in the order of the waves that
           multiply them; blocks of one wave, of whichever parts, go chunk by chunk of K, because their tiles are
           multiplied at the same time. So the product follows the rows chunk by chunk in every wave.
Fences     `wait_group` makes a bulk store visible to the mover, `arrived` is released to the signaller, a proxy fence
           orders the store before what the signaller does in the generic proxy, and a release of .sys scope passes it
           on. TMA reads the rows at their receiver, whose acquire is followed by a proxy fence, too.
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
from .description import SHARED_BYTES, TILE_K_BYTES, Config, Fusion, Product
from .pushed_rows import Arrivals, Chunks, RowSlice
from .ranked_scales import Scales

__all__ = ["IN_FLIGHT", "MOST_CHUNKS", "ROWS", "Order", "Slots", "move_segments", "segment_bytes", "signal_pieces"]

IN_FLIGHT, MOST_IN_FLIGHT = 12, 16
"""Segments of a CTA on their way to peers at a time. More bytes would queue for the link, and in each multiprocessor
the product's requests after them."""
AHEAD = 2
"""Slots besides those in flight, which are being loaded."""
LEAST_SEGMENT, MOST_SEGMENT = 512, 2048
"""Bytes of a slot."""
MOST_CHUNKS = 16
"""Most chunks of K."""
ROWS = 8
"""Rows of a piece, which are signalled together."""
PAUSE_NS = 64
"""Between two looks of the signaller, which shares its quarter of the multiprocessor with consumers."""
_OF_SLOT = 32
"""Bytes of a slot's barrier and of its entry in `places`, and its share of `arrived`."""


def segment_bytes(in_flight: int, config: Config, product: Product, fusion: Fusion) -> int:
    """Return the bytes of a slot: as many as fit beside the ring and the store boxes. Raises ArgumentError."""
    room = SHARED_BYTES - config.shared_bytes(product, fusion)
    size = min(MOST_SEGMENT, (room // (max(in_flight, 1) + AHEAD) - _OF_SLOT) // TILE_K_BYTES * TILE_K_BYTES)
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
        places: where the segment of each slot goes, and its bytes; only the mover reads and writes them.
        arrived: how many of this CTA's segments have arrived at their receivers.
    """

    def __init__(self, in_flight: int, segment: int) -> None:
        self.in_flight, self.count, self.segment = in_flight, in_flight + AHEAD, segment
        self.memory = smem.array(b128, (self.count, segment // b128.bytes), name="segments")
        self.full = smem.mbarrier(self.count, name="segments.full")
        self.places = smem.array(u64, (self.count, 2), name="segments.places")
        self.arrived = smem.array(u32, 1, name="segments.arrived")

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for slot in range(self.count):
            ptx.mbarrier.init(self.full[slot], 1)
        ptx.store(self.arrived[0], reg.scalar(u32, init=0))


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
        begin = reg.scalar(u32, init=0)
        for wave in ptx.range(1, (tiles.in_part * ranks + ctas - 1) // ctas + 1, unroll=False):
            done = wave * ctas * blocks // tiles.in_part
            end = ptx.select(done > blocks, done - blocks, 0)
            end = ptx.select(end < units, end, units)
            here = (end - begin) * of_unit
            count = here * self.chunks.count
            for number in ptx.range(ptx.special.ctaid.x(), count, ctas, unroll=False):
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

    def segments(self, piece: RowSlice, most: int) -> Iterator[tuple[Register, Register]]:
        """Yield the offset (u64) in this GPU's rows and the bytes of each segment of a piece."""
        for row in ptx.range(piece.rows, unroll=False):
            of_row = piece.start + row.to(u64) * self.chunks.row_bytes
            for start in ptx.range(0, piece.bytes, most, unroll=False):
                rest = piece.bytes - start
                yield of_row + start, ptx.select(rest < most, rest, most)


def move_segments(A: ArrayHandle, gathered: PeerArrays, slots: Slots, order: Order, arrivals: Arrivals) -> None:
    """Load the segments of this CTA's pieces and store them to their receivers, in one thread."""
    into, out = (State(reg.scalar(u32, init=0), reg.scalar(u32, init=0)) for _ in range(2))
    known, loading, away, arrived = (reg.scalar(u32, init=0) for _ in range(4))
    part = order.schedule.rank.to(u64) * (order.rows.to(u64) * order.chunks.row_bytes)

    def count(segments: Register | int) -> None:
        ptx.inst.add.u32(arrived, arrived, segments)
        ptx.inst("st.release.cta.shared::cta.u32", slots.arrived[0], arrived)

    def store_next() -> None:
        with ptx.if_(away == slots.in_flight):
            ptx.cp.async_.bulk.wait_group(slots.in_flight - 1)
            count(1)
        with ptx.else_():
            ptx.inst.add.u32(away, away, 1)
        ptx.mbarrier.wait(slots.full[out.index], out.phase)
        place, size = ptx.load(u64, slots.places[out.index, 0], vector=2)
        ptx.cp.async_.bulk.store(ptx.addr(place), slots.memory[out.index, 0], size.to(u32))
        ptx.cp.async_.bulk.commit_group()
        advance(out, slots.count)

    for owner, piece in order.pieces():
        mark = reg.scalar(u32, init=1) << owner
        with ptx.if_((known & mark) == 0):  # its rows may be written for the whole launch
            arrivals.signals.wait_for_launch(owner)
            known |= mark
        target = gathered.pointer(owner) + part
        for offset, size in order.segments(piece, slots.segment):
            with ptx.if_(loading == AHEAD):
                store_next()
            with ptx.else_():
                ptx.inst.add.u32(loading, loading, 1)
            full = slots.full[into.index]
            ptx.mbarrier.arrive_expect_tx(full, size)
            ptx.cp.async_.bulk.load(slots.memory[into.index, 0], ptx.addr(A.pointer() + offset), size, full)
            ptx.store(slots.places[into.index, 0], [target + offset, size.to(u64)])
            advance(into, slots.count)
    for _ in ptx.range(loading, unroll=False):
        store_next()
    ptx.cp.async_.bulk.wait_group(0)
    count(away)


def signal_pieces(slots: Slots, order: Order, arrivals: Arrivals, scales: Scales | None, lane: Register) -> None:
    """Send the scales of this CTA's pieces, and signal each piece when it has arrived, in one warp."""
    due, seen, rank = reg.scalar(u32, init=0), reg.scalar(u32, init=0), order.schedule.rank

    def wait() -> None:
        with ptx.while_(lambda: seen < due):
            ptx.inst("nanosleep.u32", PAUSE_NS)
            ptx.inst("ld.acquire.cta.shared::cta.u32", seen, slots.arrived[0])

    for owner, piece in order.pieces():
        if scales is not None:
            with ptx.if_(piece.chunk == 0):
                with ptx.if_(lane == 0):
                    arrivals.signals.wait_for_launch(owner)
                ptx.warp.sync()
                scales.send(owner, piece.first, lane, piece.rows)
            ptx.warp.sync()
        with ptx.if_((lane == 0) & (piece.tile < order.schedule.down)):
            due += (piece.bytes + (slots.segment - 1)) // slots.segment * piece.rows
            wait()
            ptx.fence.proxy_async()
            arrivals.add(owner, rank, piece.tile, piece.chunk)
