"""D = A B with the rows of A on several GPUs: an all-gather and a product in one launch.

Every GPU has rows of A, (M / ranks, K), and its own B, (N, K). Each pushes its rows to all others while it multiplies
them itself; tiles of others' rows wait until the rows are there, a chunk of K at a time.

Roles      loader     warpgroup 0, thread 0: TMA loads; waits for rows that have to come
           pusher     warpgroup 0, warps 1 to 3: this GPU's rows to the others, 16 bytes from each lane
           consumer   every other warpgroup: wgmma for its rows of a tile, TMA store

               loader     [own rows ...............][rows of rank + 1, as they come ][rows of rank + 2 ...
               pusher     [to rank - 1 ...][to rank - 2 ...][to rank - 3 ...] |
               consumer   [multiply, store ........................................................]

Order      one's own rows first, then those of rank + 1 and so on; rank - 1 needs this GPU's rows first, and gets them
           first: the first chunk of K of all rows, then the second one. So all tiles of a part follow what comes, and
           behind the last chunk only that chunk is left to multiply, not a whole tile.
Scales     of the tensor, or of rows: then this GPU's travel with its rows, or are there already (`replicated`)
Kept       with `keep` the pushing warps of all CTAs also put the rows of all ranks together, as they come
Signals    counter r                       GPU r has read what was pushed to it       1 of GPU r for each launch
           counter ranks + (r x down + t) x CHUNKS + c    chunk c of the rows of tile t of GPU r has come, 1 for each
                                           piece of `PIECE_ROWS` rows
           They only grow (`collective.tile.rounds`).
Barriers   full[s], empty[s]               the ring's
           bar 1..                         128 threads of a consumer: its store boxes
           bar 8                           all of the CTA: it is done
Memory     gathered: on each GPU ranks x its rows x K, of A's type, written by the others
Limits     rows of A contiguous, K a multiple of 16 bytes' worth; A K-major; every GPU has as many CTAs
           resident as the grid, or a wait would not end
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.epilogue.tma_store import TmaStore
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.tma import Stage, TmaPipeline
from ...collective.tile.ranked import RankedTile, RankedTiles
from ...collective.tile.raster import grouped
from ...collective.tile.roles import WARP, each_consumer, producer_warpgroup, warpgroup_index
from ...collective.tile.rounds import STATE_WORDS, Rounds
from ...collective.tile.sizes import OnAll
from ...errors import ArgumentError
from ...isa.dtypes import b32, f32, u32, u64
from ...lang import Kernel, Tile, kernel, ptx
from ...lang.peers import PeerArrays
from ...lang.pointers import TensorMap
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle, Scalar
from ...lang.values import Register
from ..gemm_mainloop import ConsumerLoop
from . import gemm
from .description import Config, Fusion, Product
from .ranked_scales import Scales, check_end, end_of

__all__ = ["CONFIG", "build", "counters"]

CONFIG = Config(ctas=1, pdl=False)
"""A tile of 128 x 256 for two consumers."""
WHOLE_CTA = 8
"""Its named barrier."""
PUSHERS = 3
"""Warps of a CTA that push."""
CHUNKS, LEAST_CHUNK = 8, 8
"""Of K, at most; and k-tiles of one, at least."""
PIECE_ROWS = 4
"""Rows of a tile that one warp pushes at a time: few, so that few rows of A are enough to keep all warps at it."""
PUSHING_EIGHTHS = 3
"""Of the CTAs, how many push: enough to keep up with the products, few enough to leave them the memory."""
_BYTES = 16
_UNROLL = 4
"""Vectors of a lane that are on their way at a time."""


def counters(rows: int, ranks: int, config: Config = CONFIG) -> int:
    """How many counters each GPU needs; `rows`: of A on each."""
    return ranks + ranks * -(-rows // config.tile_m) * CHUNKS


@lru_cache(maxsize=64)
def build(
    ranks: int,
    product: Product = Product(),  # noqa: B008 - frozen
    config: Config = CONFIG,
    fusion: Fusion = Fusion(),  # noqa: B008
    *,
    replicated: bool = False,
    keep: bool = False,
) -> Kernel:
    """The kernel for a group of `ranks` GPUs; called as
    kernel(a, b, gathered, counters, state, record, *more, rank, out=d).

    a (1, M / ranks, K), contiguous; b (N, K); gathered: of each GPU (ranks, M / ranks, K); counters: of each GPU
    `counters(...)` words of u32, zero before the first launch; state: `STATE_WORDS` words of u32 of this GPU, likewise;
    record: `watch.words(...)` of this GPU; d (ranks, M / ranks, N).

    more: with scales of rows `came`, of each GPU (ranks, M / ranks) f32; what `epilogue_arguments` names, scale_a of
    this GPU's rows (M / ranks,); with `keep` the rows of all ranks (ranks, M / ranks, K).
    fusion: scales, a bias of the column, an activation, alpha, a factor of the output.
    replicated: scale_a (ranks, M / ranks) has all rows' scales, and there is no `came`.
    Raises ArgumentError where the configuration does not fit.
    """
    config.check(product, fusion)
    check(product, config, ranks)
    check_end(product, fusion)
    tile = (config.tile_m, config.tile_n)
    travel = fusion.scales == "row" and not replicated
    more = {**({"came": Tile(ranks, "R", f32, peers=ranks)} if travel else {}),
            **epilogue_arguments(fusion, product.out, rows="R")}  # fmt: skip
    if fusion.scales == "row" and replicated:
        more["scale_a"] = Tile(ranks, "R", f32)
    if keep:
        more["kept"] = Tile(ranks, "R", "K", product.a, multiple=(1, 1, _BYTES // product.a.bytes), inout=True)
    vector = _BYTES // product.a.bytes
    of_a = Tile.operand("One", "R", "K", product.a, along=1, tile=(config.tile_m, product.tile_k))

    @kernel(
        in_specs={
            "A": of_a,
            "B": gemm.operand_b(product, config),
            "gathered": Tile(ranks, "R", "K", product.a, multiple=(1, 1, vector), box=of_a.box, swizzle=of_a.swizzle,
                             layout=of_a.layout, peers=ranks),
            "signals": Tile("Signals", u32, peers=ranks),
            "state": Tile(STATE_WORDS, u32, inout=True),
            "record": Tile("Record", u32, inout=True),
            "rank": Scalar(u32),
            **more,
        },
        out_specs={"D": result(product, ranks)},
        grid=OnAll(),
        block=config.threads,
        arch="sm_90a",
        registers=gemm.launch_registers(config),
        name="gemm_all_gather",
    )  # fmt: skip
    def gemm_all_gather(A, B, gathered, signals, state, record, rank, D, **args):
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.consumers,
            a=gemm.ring_tile(product.a, product.a_major, config.tile_m, product.tile_k, config.stages, "ring.a"),
            b=gemm.ring_tile(product.b, product.b_major, config.tile_n, product.tile_k, config.stages, "ring.b"),
        )
        epilogue, scales, (producer_regs, consumer_regs) = end_of(fusion, config, D, args, rank)
        out = TmaStore(D, config.consumers, epi_stages=config.epi_stages, epilogue=epilogue)
        ring.initialise()
        rounds = Rounds(signals, rank, state, record)
        rows, depth, columns = A.shape[1], A.shape[2], D.shape[2]
        schedule = RankedTiles(rows, columns, tile, ranks, rank, grouped(config.group))
        num_k_tiles, warpgroup = (depth + (product.tile_k - 1)) // product.tile_k, warpgroup_index()
        chunks = Chunks.of(num_k_tiles, product.tile_k * product.a.bytes, depth * product.a.bytes)
        arrivals = Arrivals(rounds, ranks, schedule.down, config.tile_m // PIECE_ROWS)
        with producer_warpgroup(warpgroup, producer_regs):
            with ptx.if_(ptx.special.tid.x() == 0):
                produce = ring.producer_state()
                for here in schedule.tiles():
                    source, part, others = rows_of(A, gathered, rank, here)
                    for chunk in ptx.range(chunks.count, unroll=False):
                        with ptx.if_(others):
                            arrivals.wait(here.owner, here.down, chunk)
                            ptx.fence.proxy_async()  # the others wrote through the generic proxy
                        for k_tile in chunks.k_tiles(chunk):
                            with ring.produce(produce) as stage:
                                k = k_tile * product.tile_k
                                load_rows(stage, source, (k, here.row, part))
                                ptx.tma.load(stage.b, B.tma_desc(), stage.b.coordinates(here.column, k), stage.full)
            with ptx.if_(ptx.special.tid.x() >= WARP):
                pieces = Pieces(chunks, config.tile_m, schedule.down, A.shape[1], ranks, rank)
                push(A, gathered, pieces, arrivals, scales)
                if keep:
                    keep_rows(args["kept"], A, gathered, pieces, arrivals)
            ptx.bar.sync(WHOLE_CTA, config.threads)
            with ptx.if_(ptx.special.tid.x() == 0):
                rounds.finish()
        for me in each_consumer(warpgroup, config.consumers, consumer_regs):
            out.begin()
            state_of_ring, first = ring.consumer_state(), me * config.rows
            acc = wgmma_accumulators(config.rows, config.tile_n, dtype=product.accumulator)
            loop = ConsumerLoop(ring, state_of_ring)
            for here in schedule.tiles():
                for stage, accumulate in loop.stages(num_k_tiles):
                    wgmma_stage(acc, stage.a.rows(first, config.rows), stage.b, accumulate=accumulate)
                loop.drain()
                owner = here.owner
                if scales is not None:
                    scales.owner = owner
                out.store(acc, me, here.row + first, here.column, at=lambda row, column: (column, row, owner))  # noqa: B023
            out.finish()
            ptx.bar.sync(WHOLE_CTA, config.threads)

    return gemm_all_gather


def result(product: Product, ranks: int) -> Tile:
    """D (ranks, M / ranks, N), stored in boxes that end with a GPU's rows."""
    flat = gemm.result(product)
    return Tile(
        ranks, "R", "N", product.out, multiple=(1, 1, _BYTES // product.out.bytes), box=(*(flat.box or ()), 1),
        swizzle=flat.swizzle,
    )  # fmt: skip


def check(product: Product, config: Config, ranks: int) -> None:
    """Raise ArgumentError if no such kernel can be built."""
    fits = config.kernel_schedule == "cooperative" and (config.ctas, config.pdl, config.split_tail) == (1, False, False)
    if not fits or product.a_major == "MN" or ranks < 2:
        raise ArgumentError(
            f"the product with an all-gather cannot be built as {config.name()} for {ranks} GPUs",
            expected="a cooperative form of one CTA, A contiguous in k, 2 GPUs or more",
            got=f"{product}, {config}",
            code="configuration",
        )


# -- what travels --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chunks:
    """Of K: how many there are, k-tiles of all and of each but the last, bytes of a row of A and of its chunk."""

    count: Register
    num_k_tiles: Register
    of_chunk: Register
    row_bytes: Register
    bytes: Register

    @classmethod
    def of(cls, num_k_tiles: Register, k_tile_bytes: int, row_bytes: Register) -> Chunks:
        """As few k-tiles in each as make no more than `CHUNKS`."""
        eighth = (num_k_tiles + (CHUNKS - 1)) // CHUNKS
        of_chunk = ptx.select(eighth > LEAST_CHUNK, eighth, LEAST_CHUNK)
        return cls((num_k_tiles + of_chunk - 1) // of_chunk, num_k_tiles, of_chunk, row_bytes, of_chunk * k_tile_bytes)

    def k_tiles(self, chunk: Register) -> Iterator[Register]:
        """Of a chunk."""
        first = chunk * self.of_chunk
        end = first + self.of_chunk
        yield from ptx.range(first, ptx.select(end < self.num_k_tiles, end, self.num_k_tiles))


@dataclass(frozen=True)
class Arrivals:
    """What has come from other GPUs: a counter for each chunk of K of the rows of each of their tiles.

    pieces: of a tile's rows, each of which one warp sends. Pieces past the last row count, too.
    """

    rounds: Rounds
    ranks: int
    down: Register
    pieces: int

    def wait(self, owner: Register, tile: Register, chunk: Register) -> None:
        """By one thread: until a chunk of the rows of a tile of GPU `owner` is here."""
        self.rounds.wait(self._counter(owner, tile, chunk), self.pieces)

    def add(self, to: Register, owner: Register, tile: Register, chunk: Register) -> None:
        """By one thread: tell GPU `to` that a piece of GPU `owner` is there."""
        self.rounds.add(to, self._counter(owner, tile, chunk))

    def _counter(self, owner: Register, tile: Register, chunk: Register) -> Register:
        counter: Register = (owner * self.down + tile) * CHUNKS + chunk + self.ranks
        return counter


@dataclass(frozen=True)
class Piece:
    """Some rows of a tile in a chunk of K: the first row, how many there are, where they begin, in bytes, and how many
    bytes of each row there are."""

    tile: Register
    chunk: Register
    first: Register
    rows: Register
    start: Register
    bytes: Register


@dataclass(frozen=True)
class Pieces:
    """The rows of one GPU, which each other one gets piece by piece: a chunk of K of all rows, then the next one."""

    chunks: Chunks
    tile_m: int
    down: Register
    rows: Register
    ranks: int
    rank: Register

    @property
    def number(self) -> Register:
        """How many there are."""
        count: Register = self.chunks.count * self.down * (self.tile_m // PIECE_ROWS)
        return count

    def of(self, number: Register) -> Piece:
        """By its number."""
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
        return Piece(inside // of_tile, chunk, first, here, start, size)

    def rank_after(self, distance: Register) -> Register:
        """The GPU that is so far behind this one."""
        far = self.rank + distance
        after: Register = ptx.select(far >= self.ranks, far - self.ranks, far)
        return after


def rows_of(
    A: ArrayHandle, gathered: PeerArrays, rank: Register, here: RankedTile
) -> tuple[TensorMap, Register, Predicate]:
    """The tensor that holds a tile's rows, one's own or what others have pushed; which of its parts they are; and
    whether they are others'."""
    own, came = A.tma_desc(), gathered.tma_desc(rank)
    others: Predicate = here.owner != rank
    source = TensorMap(ptx.select(others, came.register, own.register), came.array, came.box)
    source.origin = own.origin | came.origin
    return source, ptx.select(others, here.owner, 0), others


def load_rows(stage: Stage, source: TensorMap, place: tuple[Register, Register, Register]) -> None:
    """A tile of A; `place` is (k, row, part)."""
    ptx.tma.load(stage.a, source, place, stage.full)


# -- the pusher ----------------------------------------------------------------------------------------------------


def push(A: ArrayHandle, gathered: PeerArrays, pieces: Pieces, arrivals: Arrivals, scales: Scales | None) -> None:
    """This GPU's rows to all others, one after the other, each piece by one warp."""
    ranks, rank = pieces.ranks, pieces.rank
    lane, warp = ptx.special.tid.x() & (WARP - 1), (ptx.special.tid.x() - WARP) // WARP
    pushing = (ptx.special.nctaid.x() * PUSHING_EIGHTHS + 7) // 8
    cta = ptx.special.ctaid.x()
    start_at = ptx.select(cta < pushing, warp * pushing + cta, pieces.number)
    for turn in ptx.range(1, ranks, unroll=False):
        owner = pieces.rank_after(ranks - turn)
        with ptx.if_(lane == 0):
            arrivals.rounds.wait_for_launch(owner)
        ptx.warp.sync()
        target = gathered.pointer(owner) + rank.to(u64) * (pieces.rows * pieces.chunks.row_bytes.to(u64))
        for number in ptx.range(start_at, pieces.number, pushing * PUSHERS, unroll=False):
            piece = pieces.of(number)
            if scales is not None:
                with ptx.if_(piece.chunk == 0):
                    scales.send(owner, piece.first, lane, piece.rows)
            copy(A.pointer(), target, piece, pieces.chunks.row_bytes, lane)
            ptx.warp.sync()
            with ptx.if_(lane == 0):
                arrivals.add(owner, rank, piece.tile, piece.chunk)


def keep_rows(kept: ArrayHandle, A: ArrayHandle, gathered: PeerArrays, pieces: Pieces, arrivals: Arrivals) -> None:
    """The rows of all ranks into one array of this GPU, its own first, each piece by one warp."""
    rank = pieces.rank
    lane, warp = ptx.special.tid.x() & (WARP - 1), (ptx.special.tid.x() - WARP) // WARP
    start_at = warp * ptx.special.nctaid.x() + ptx.special.ctaid.x()
    for number in ptx.range(start_at, pieces.number * pieces.ranks, ptx.special.nctaid.x() * PUSHERS, unroll=False):
        owner = pieces.rank_after(number // pieces.number)
        piece, others = pieces.of(number % pieces.number), owner != rank
        with ptx.if_((lane == 0) & others):
            arrivals.wait(owner, piece.tile, piece.chunk)
        ptx.warp.sync()
        behind = owner.to(u64) * (pieces.rows * pieces.chunks.row_bytes.to(u64))
        source = ptx.select(others, gathered.pointer(rank) + behind, A.pointer())
        copy(source, kept.pointer() + behind, piece, pieces.chunks.row_bytes, lane)


def copy(source: Register, target: Register, piece: Piece, row_bytes: Register, lane: Register) -> None:
    """A piece from one array to another, by a warp: 16 bytes of a lane, several loads of each in front of their
    stores."""
    step = WARP * _BYTES
    for row in ptx.range(piece.rows, unroll=False):
        start = piece.start + row.to(u64) * row_bytes
        whole = piece.bytes // (step * _UNROLL) * (step * _UNROLL)
        for at in ptx.range(lane * _BYTES, whole, step * _UNROLL, unroll=False):
            here = start + at
            values = [ptx.load(b32, ptx.addr(source + here, turn * step), vector=4) for turn in range(_UNROLL)]
            for turn, value in enumerate(values):
                ptx.store(ptx.addr(target + here, turn * step), value)
        for at in ptx.range(whole + lane * _BYTES, piece.bytes, step, unroll=False):
            here = start + at
            ptx.store(ptx.addr(target + here), ptx.load(b32, ptx.addr(source + here), vector=4))
