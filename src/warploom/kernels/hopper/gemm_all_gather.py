"""D = A B with the rows of A on several GPUs: an all-gather and a product in one launch.

Every GPU has rows of A, (M / ranks, K), and its own B, (N, K). Each GPU pushes its rows to all peers while it
multiplies them itself; tiles of a peer's rows wait for the rows, a chunk of K at a time.

Roles      loader     warpgroup 0, thread 0: TMA loads; waits for rows of peers
           pusher     warpgroup 0, warps 1 to 3: pushes this GPU's rows to the peers, 16 bytes per lane
           consumer   every other warpgroup: wgmma for its rows of a tile, TMA store

               loader     [own rows ...............][rows of rank + 1, as they come ][rows of rank + 2 ...
               pusher     [to rank - 1 ...][to rank - 2 ...][to rank - 3 ...] |
               consumer   [multiply, store ........................................................]

Order      this GPU's rows first, then those of rank + 1 and so on. Rank - 1 needs this GPU's rows first, and gets them
           first: the first chunk of K of all rows, then the second (`pushed_rows`). So all tiles of a peer follow its
           chunks, and after the last chunk only that chunk is left to multiply, not a whole tile.
Scales     per tensor, or per row: row scales travel with the rows, or are replicated beforehand (`replicated`)
Kept       with `keep` warp 1 of warpgroup 0 pushes nothing: one thread stores the gathered rows of all ranks, by TMA
           from the stages of the ring, each k-tile in one of the CTAs that have it (`kept_rows`)
Signals    counter r                       GPU r has read what was pushed to it       1 of GPU r for each launch
           counter ranks + (r x down + t) x CHUNKS + c    chunk c of the rows of tile t of GPU r has come, 1 for each
                                           piece of `PIECE_ROWS` rows; by TMA, of `MOST_CHUNKS` and `ROWS`
           They only grow (`collective.tile.peer_signals`).
Barriers   full[s], empty[s]               the ring's
           bar 1..                         128 threads of a consumer: its store boxes
           bar 8                           all of the CTA: it is done
Memory     gathered: on each GPU ranks x its rows x K, of A's type, written by the others
By TMA     with `by="tma"` a thread pushes by bulk copies (`pushed_by_tma`), through slots in shared memory:

               mover      warp 2, one thread: this GPU's rows to slots, slots to peers
               signaller  warp 3: the signals, and rows' scales

Copied     with `by="copy"` the copy engines of all GPUs copy the rows, in other streams, and no warp pushes:

               stream     [block of rows to rank - 1, flag][the next block, flag] ... [to rank - 2 ...
               loader     [own rows ...............][rows of rank + 1, after their flags  ][rows of rank + 2 ...

           The counters after the ranks' are then flags, one per chunk of K of a block of tiles' rows. The launches of
           all GPUs end together (`collective.tile.peer_signals`), so the next copies overwrite nothing that is in use.
           The caller of the kernel also enqueues the copies (`copies`); the kernel's `tiles_of_block` and
           `k_tiles_of_chunk` give the blocks and chunks.
Limits     rows of A contiguous, K a multiple of 16 bytes; A K-major; the whole grid must be resident on every GPU,
           or a wait would not end
"""

from __future__ import annotations

from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.epilogue.tma_store import TmaStore
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.tma import Stage, TmaPipeline
from ...collective.tile.peer_signals import STATE_WORDS, PeerSignals
from ...collective.tile.ranked import RankedTile, RankedTiles
from ...collective.tile.raster import grouped
from ...collective.tile.roles import WARP, WARPGROUP, each_consumer, producer_warpgroup, warpgroup_index
from ...collective.tile.sizes import OneCtaPerSm
from ...errors import ArgumentError
from ...isa.dtypes import f32, u32
from ...lang import Kernel, Tile, kernel, ptx
from ...lang.peers import PeerArrays
from ...lang.pointers import TensorMap
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle, Scalar
from ...lang.values import Register
from ...settings import GATHERS
from ..fields import builder
from ..gemm_mainloop import ConsumerLoop
from . import gemm
from .description import TILE_K_BYTES, Config, Fusion, Product
from .kept_rows import keep_rows
from .pushed_by_tma import IN_FLIGHT, MOST_CHUNKS, ROWS, Order, Slots, move_segments, segment_bytes, signal_pieces
from .pushed_rows import CHUNKS, PIECE_ROWS, PUSHERS, Arrivals, Chunks, CopyEngineArrivals, Pieces, push
from .ranked_scales import check_fusion, epilogue_of
from .ranked_tile import CONFIG

__all__ = ["CONFIG", "build", "counters"]

WHOLE_CTA = 8
"""The named barrier of a whole CTA."""
_BYTES = 16


def counters(rows: int, ranks: int, config: Config = CONFIG, by: str = "push") -> int:
    """Return the number of counters that each GPU needs if its rows are pushed; `rows`: rows of A per GPU."""
    return ranks + ranks * -(-rows // config.tile_m) * (MOST_CHUNKS if by == "tma" else CHUNKS)


@builder(keep=64)
def build(
    ranks: int,
    product: Product = Product(),  # noqa: B008 - frozen
    config: Config = CONFIG,
    fusion: Fusion = Fusion(),  # noqa: B008
    *,
    replicated: bool = False,
    keep: bool = False,
    by: str = "push",
    in_flight: int = IN_FLIGHT,
) -> Kernel:
    """The kernel for a group of `ranks` GPUs; called as
    kernel(a, b, gathered, counters, state, record, *more, rank, out=d); with `by="copy"` two numbers follow rank.

    a (1, M / ranks, K), contiguous; b (N, K); gathered: of each GPU (ranks, M / ranks, K); counters: of each GPU
    `counters(...)` words of u32, zero before the first launch; state: `STATE_WORDS` words of u32 of this GPU, likewise;
    record: `timeout_record.words(...)` of this GPU; d (ranks, M / ranks, N).

    more: with scales of rows `came`, of each GPU (ranks, M / ranks) f32; what `epilogue_arguments` names, scale_a of
    this GPU's rows (M / ranks,); with `keep` the rows of all ranks (ranks, M / ranks, K).
    fusion: scales, a bias of the column, an activation, alpha, a factor of the output.
    replicated: scale_a (ranks, M / ranks) has all rows' scales, and there is no `came`.
    by: how rows reach the peers: "push", by warps; "tma", by bulk copies, of which `in_flight` are on their way at a
    time; "copy", by copy engines: rank, tiles_of_block, k_tiles_of_chunk are then the last arguments.
    Raises ArgumentError if the configuration does not fit.
    """
    config.check(product, fusion)
    check(product, config, ranks, by)
    check_fusion(product, fusion)
    copied, segment = by == "copy", segment_bytes(in_flight, config, product, fusion) if by == "tma" else 0
    tile = (config.tile_m, config.tile_n)
    travel = fusion.scales == "row" and not replicated
    more = {**({"came": Tile(ranks, "R", f32, peers=ranks)} if travel else {}),
            **epilogue_arguments(fusion, product.out, rows="R")}  # fmt: skip
    if fusion.scales == "row" and replicated:
        more["scale_a"] = Tile(ranks, "R", f32)
    of_a = Tile.operand("One", "R", "K", product.a, along=1, tile=(config.tile_m, product.tile_k))

    if keep:
        more["kept"] = rows_of_all(product, ranks, of_a, inout=True)

    @kernel(
        in_specs={
            "A": of_a,
            "B": gemm.operand_b(product, config),
            "gathered": rows_of_all(product, ranks, of_a, peers=ranks),
            "signals": Tile("Signals", u32, peers=ranks),
            "state": Tile(STATE_WORDS, u32, inout=True),
            "record": Tile("Record", u32, inout=True),
            "rank": Scalar(u32),
            **({"tiles_of_block": Scalar(u32), "k_tiles_of_chunk": Scalar(u32)} if copied else {}),
            **more,
        },
        out_specs={"D": result(product, ranks)},
        grid=OneCtaPerSm(),
        block=config.threads,
        arch="sm_90a",
        registers=gemm.launch_registers(config),
        name={"push": "gemm_all_gather", "tma": "gemm_all_gather_tma", "copy": "gemm_all_gather_copied"}[by],
    )  # fmt: skip
    def gemm_all_gather(A, B, gathered, signals, state, record, rank, D, **args):
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.consumers,
            readers=int(keep),
            a=gemm.ring_tile(product.a, product.a_major, config.tile_m, product.tile_k, config.stages, "ring.a"),
            b=gemm.ring_tile(product.b, product.b_major, config.tile_n, product.tile_k, config.stages, "ring.b"),
        )
        epilogue, scales, (producer_regs, consumer_regs) = epilogue_of(fusion, config, D, args, rank)
        out = TmaStore(D, config.consumers, epi_stages=config.epi_stages, epilogue=epilogue)
        slots = Slots(in_flight, segment) if segment else None
        ring.initialise(*([slots] if slots else []))
        signals = PeerSignals(signals, rank, state, record)
        rows, depth, columns = A.shape[1], A.shape[2], D.shape[2]
        schedule = RankedTiles(rows, columns, tile, ranks, rank, grouped(config.group))
        num_k_tiles, warpgroup = (depth + (product.tile_k - 1)) // product.tile_k, warpgroup_index()
        sizes = num_k_tiles, product.tile_k * product.a.bytes, depth * product.a.bytes
        arrivals: Arrivals | CopyEngineArrivals
        if copied:
            chunks = Chunks.by(args["k_tiles_of_chunk"], *sizes)
            arrivals = CopyEngineArrivals(signals, ranks, schedule.down, chunks, args["tiles_of_block"])
        else:
            most, piece_rows = (MOST_CHUNKS, ROWS) if slots else (CHUNKS, PIECE_ROWS)
            chunks = Chunks.of(*sizes, most, max(1, segment // TILE_K_BYTES))
            arrivals = Arrivals(signals, ranks, schedule.down, config.tile_m // piece_rows, most)
        with producer_warpgroup(warpgroup, producer_regs):
            with ptx.if_(ptx.special.tid.x() == 0):
                produce = ring.producer_state()
                for here in schedule.tiles():
                    source, part, others = rows_of(A, gathered, rank, here)
                    for chunk in ptx.range(chunks.count, unroll=False):
                        with ptx.if_(others):
                            arrivals.wait(here.owner, here.down, chunk)
                            ptx.fence.proxy_async()  # peers wrote through the generic proxy
                        for k_tile in chunks.k_tiles(chunk):
                            with ring.produce(produce) as stage:
                                k = k_tile * product.tile_k
                                load_rows(stage, source, (k, here.row, part))
                                ptx.tma.load(stage.b, B.tma_desc(), stage.b.coordinates(here.column, k), stage.full)
            if keep:
                with ptx.if_(ptx.special.tid.x() == WARP):
                    keep_rows(args["kept"], ring, schedule, num_k_tiles, product.tile_k)
            if slots is not None:
                assert isinstance(arrivals, Arrivals)
                order, thread = Order(chunks, schedule, A.shape[1]), ptx.special.tid.x()
                with ptx.if_(thread == WARPGROUP - 2 * WARP):
                    move_segments(A, gathered, slots, order, arrivals)
                with ptx.if_(thread >= WARPGROUP - WARP):
                    signal_pieces(slots, order, arrivals, scales, thread & (WARP - 1))
            elif isinstance(arrivals, Arrivals):
                pushers = PUSHERS - int(keep)
                with ptx.if_(ptx.special.tid.x() >= WARPGROUP - pushers * WARP):
                    pieces = Pieces(chunks, config.tile_m, schedule.down, A.shape[1], ranks, rank)
                    together = schedule.in_part * ranks <= ptx.special.nctaid.x()
                    push(A, gathered, pieces, arrivals, scales, together, pushers)
            ptx.bar.sync(WHOLE_CTA, config.threads)
            with ptx.if_(ptx.special.tid.x() == 0):
                if isinstance(arrivals, CopyEngineArrivals):
                    signals.finish_together(ranks, arrivals.count)
                else:
                    signals.finish()
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


def rows_of_all(product: Product, ranks: int, of_a: Tile, *, peers: int = 0, inout: bool = False) -> Tile:
    """Return the spec of the rows of all ranks (ranks, M / ranks, K), with the boxes of A."""
    return Tile(
        ranks, "R", "K", product.a, multiple=(1, 1, _BYTES // product.a.bytes), box=of_a.box, swizzle=of_a.swizzle,
        layout=of_a.layout, peers=peers, inout=inout,
    )  # fmt: skip


def result(product: Product, ranks: int) -> Tile:
    """Return the spec of D (ranks, M / ranks, N), stored in boxes that do not cross a GPU's rows."""
    flat = gemm.result(product)
    return Tile(
        ranks, "R", "N", product.out, multiple=(1, 1, _BYTES // product.out.bytes), box=(*(flat.box or ()), 1),
        swizzle=flat.swizzle,
    )  # fmt: skip


def check(product: Product, config: Config, ranks: int, by: str) -> None:
    """Raise ArgumentError if no such kernel can be built."""
    if by not in GATHERS:
        raise ArgumentError("`by` is unknown", expected=GATHERS, got=by, code="unknown-name")
    fits = config.kernel_schedule == "cooperative" and (config.ctas, config.pdl, config.split_tail) == (1, False, False)
    if not fits or product.a_major == "MN" or ranks < 2:
        raise ArgumentError(
            f"the product with an all-gather cannot be built as {config.name()} for {ranks} GPUs",
            expected="a cooperative form of one CTA, A contiguous in k, 2 GPUs or more",
            got=f"{product}, {config}",
            code="configuration",
        )


# -- the loader ----------------------------------------------------------------------------------------------------


def rows_of(
    A: ArrayHandle, gathered: PeerArrays, rank: Register, here: RankedTile
) -> tuple[TensorMap, Register, Predicate]:
    """Return the tensor map with a tile's rows, this GPU's own or gathered ones; their part's index; and a predicate
    that is true for a peer's rows."""
    own, came = A.tma_desc(), gathered.tma_desc(rank)
    others: Predicate = here.owner != rank
    source = TensorMap(ptx.select(others, came.register, own.register), came.array, came.box)
    source.origin = own.origin | came.origin
    return source, ptx.select(others, here.owner, 0), others


def load_rows(stage: Stage, source: TensorMap, place: tuple[Register, Register, Register]) -> None:
    """Load a tile of A; `place` is (k, row, part)."""
    ptx.tma.load(stage.a, source, place, stage.full)
