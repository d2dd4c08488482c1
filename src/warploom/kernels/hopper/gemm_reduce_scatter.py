"""D = the sum over GPUs of A B, each GPU keeping its rows: a product and a reduce-scatter in one launch.

Every GPU has a part of K: A (M, K / ranks), B (N, K / ranks). Rank r keeps rows r M / ranks and on.

Roles      loader     warpgroup 0, thread 0: TMA loads of the k-tiles of the CTA's tiles
           adder      warpgroup 0, warps 2 and 3: add up the slots of tiles that have arrived from all GPUs
           consumer   every other warpgroup: wgmma for its rows of a tile, written to shared memory
           sender     warpgroup 0, one thread of warp 1: TMA stores whole tiles to their owners, into the slot of this
                      GPU, and signals them (`collective.epilogue.deferred_store`)

               loader       [A, B of a tile of rank + 1][of rank + 2] ... [of its own] ...
               consumer     [multiply][write][multiply][write] ...
               sender       wait ............ [send, signal] wait [send, signal] ...
               other GPUs   ..... [send, signal] .......
               adder        wait for a tile ............ [add its slots, store] wait for the next one ...

Order      a row of tiles of each GPU in turn (`collective.tile.ranked`), so that the links are always busy, and slots
           are added while the rest is multiplied. Slots are added in rank order: the bits of the result do not depend
           on the order of arrival.
Signals    counter r                the slots of GPU r may be written again      1 of GPU r for each launch
           counter ranks + tile     a tile has come                              1 of each GPU
           They only grow (`collective.tile.peer_signals`).
Clusters   with `ctas` 2, two CTAs share B: their tiles are in adjacent rows of that order, of different GPUs
Barriers   full[s], empty[s]        the ring's
           ready[c], free[c]        the boxes of consumer c: written, and read by the sender's stores
           bar 8                    all of the CTA: it is done
Memory     slots: on each GPU ranks x its rows x N, of D's type, written by all
Limits     M a multiple of the ranks; N a multiple of 16 bytes; 16-bit D; A K-major; the whole grid must be resident
           on every GPU, or a wait would not end
"""

from __future__ import annotations

from dataclasses import replace

from ...collective.epilogue.arguments import BOX_ROWS, BOX_SWIZZLE, box_columns, epilogue_arguments
from ...collective.epilogue.deferred_store import DeferredTmaStore
from ...collective.mma.fragment import pack, unpack
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.tma import TmaPipeline
from ...collective.tile import cluster
from ...collective.tile.peer_signals import STATE_WORDS, PeerSignals
from ...collective.tile.ranked import RankedTiles
from ...collective.tile.raster import grouped
from ...collective.tile.roles import WARP, WARPGROUP, each_consumer, producer_warpgroup, warpgroup_index
from ...collective.tile.sizes import OneCtaPerSm
from ...errors import ArgumentError
from ...isa.dtypes import DType, b32, f32, u32, u64
from ...lang import Kernel, Tile, kernel, ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.peers import PeerArrays
from ...lang.pointers import TensorMap
from ...lang.tile import ArrayHandle, Scalar
from ...lang.values import Register
from ..fields import builder
from ..gemm_mainloop import ConsumerLoop, k_tiles, operand_loads
from . import gemm
from .description import Config, Fusion, Product
from .ranked_scales import check_fusion, epilogue_of
from .ranked_tile import CONFIG as PLAIN

__all__ = ["CONFIG", "build", "counters"]

CONFIG = replace(PLAIN, stages=3, epi_stages=4)
"""128 x 256, with a box for every 64 columns."""
WHOLE_CTA = 8
"""The named barrier of a whole CTA."""
ADDERS = 2
"""Adding warps per CTA."""
ADDED_ROWS = 16
"""Rows of a tile that a warp adds up at a time."""
LOADS = 8
"""Vectors of a lane in flight, from all GPUs together: the last tiles are added when nothing else is left to do."""
_VECTOR = 8
"""16-bit elements in 16 bytes."""


def counters(rows: int, columns: int, ranks: int, config: Config = CONFIG) -> int:
    """Return the number of counters that each GPU needs; `rows`: rows of D that it keeps."""
    return ranks + -(-rows // config.tile_m) * -(-columns // config.tile_n)


@builder(keep=64)
def build(
    ranks: int,
    product: Product = Product(),  # noqa: B008 - frozen
    config: Config = CONFIG,
    fusion: Fusion = Fusion(),  # noqa: B008
    *,
    mean: bool = False,
) -> Kernel:
    """The kernel for a group of `ranks` GPUs; called as
    kernel(a, b, slots, counters, state, record, *more, rank, out=d).

    a (M, K), b (N, K); slots: of each GPU (ranks, M / ranks, N); counters: of each GPU `counters(...)` words of u32,
    zero before the first launch; state: `STATE_WORDS` words of u32 of this GPU, likewise; record of this GPU:
    `timeout_record.words(...)`; d (M / ranks, N).

    more: the arguments named by `epilogue_arguments`, with scale_a of all rows as (ranks, M / ranks).
    fusion: the epilogue of this GPU's partial sum before it is rounded and sent: scales, a column bias, an
    activation, alpha. mean: divide the sums by the number of ranks.
    Raises ArgumentError if the configuration does not fit.
    """
    config.check(product, fusion)
    check(product, config, ranks)
    check_fusion(product, fusion)
    more = epilogue_arguments(fusion, product.out, rows="R")
    if fusion.scales == "row":
        more["scale_a"] = Tile(ranks, "R", f32)
    tile = (config.tile_m, config.tile_n)
    slot_box = (box_columns(product.out), BOX_ROWS, 1)

    @kernel(
        in_specs={
            "A": gemm.operand_a(product, config),
            "B": gemm.operand_b(product, config),
            "slots": Tile(ranks, "R", "N", product.out, multiple=(1, 1, _VECTOR), box=slot_box, swizzle=BOX_SWIZZLE,
                          peers=ranks),
            "signals": Tile("Signals", u32, peers=ranks),
            "state": Tile(STATE_WORDS, u32, inout=True),
            "record": Tile("Record", u32, inout=True),
            "rank": Scalar(u32),
            **more,
        },
        out_specs={"D": Tile("R", "N", product.out, multiple=(1, _VECTOR))},
        grid=OneCtaPerSm(config.ctas),
        block=config.threads,
        cluster=(config.ctas, 1, 1),
        arch="sm_90a",
        registers=gemm.launch_registers(config),
        name="gemm_reduce_scatter",
    )  # fmt: skip
    def gemm_reduce_scatter(A, B, slots, signals, state, record, rank, D, **args):
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.consumers,
            ctas=config.ctas,
            a=gemm.ring_tile(product.a, product.a_major, config.tile_m, product.tile_k, config.stages, "ring.a"),
            b=gemm.ring_tile(product.b, product.b_major, config.tile_n, product.tile_k, config.stages, "ring.b"),
        )
        target = Target(slots)
        epilogue, scales, (producer_regs, consumer_regs) = epilogue_of(fusion, config, D, args, rank)
        out = DeferredTmaStore(target, config.consumers, blocks=config.rows // BOX_ROWS, columns=config.tile_n,
                          epilogue=epilogue, evict_first=config.evict_first)  # fmt: skip
        ring.initialise(out)
        signals = PeerSignals(signals, rank, state, record)
        order = grouped(config.group)
        rows, columns = D.shape
        schedule = RankedTiles(rows, columns, tile, ranks, rank, order, in_turns=True, ctas=config.ctas)
        num_k_tiles, warpgroup = k_tiles(A, product.tile_k), warpgroup_index()
        with producer_warpgroup(warpgroup, producer_regs):
            with ptx.if_(ptx.special.tid.x() == 0):
                produce = ring.producer_state()
                load_a, load_b = operand_loads(config.ctas, config.multicast)
                for here in schedule.tiles():
                    row = here.owner * D.shape[0] + here.row
                    for k_tile in ptx.range(num_k_tiles):
                        with ring.produce(produce) as stage:
                            k = k_tile * product.tile_k
                            load_a(stage.a, A, stage.a.coordinates(row, k), stage.full)
                            load_b(stage.b, B, stage.b.coordinates(here.column, k), stage.full)
            with ptx.if_(ptx.special.tid.x() == WARP):
                send_tiles(out, target, schedule, signals, config.rows)
            with ptx.if_(ptx.special.tid.x() >= WARPGROUP - ADDERS * WARP):
                add_slots(slots, D, schedule, signals, config, mean)
            ptx.bar.sync(WHOLE_CTA, config.threads)
            with ptx.if_(ptx.special.tid.x() == 0):
                signals.finish()
        for me in each_consumer(warpgroup, config.consumers, consumer_regs):
            out.begin()
            state_of_ring, first = ring.consumer_state(), me * config.rows
            acc = wgmma_accumulators(config.rows, config.tile_n, dtype=product.accumulator)
            loop = ConsumerLoop(ring, state_of_ring)
            phase = reg.scalar(u32, init=1)
            for here in schedule.tiles():
                for stage, accumulate in loop.stages(num_k_tiles):
                    wgmma_stage(acc, stage.a.rows(first, config.rows), stage.b, accumulate=accumulate)
                loop.drain()
                if scales is not None:
                    scales.owner = here.owner
                out.write(acc, me, here.row + first, here.column, phase)
            ptx.bar.sync(WHOLE_CTA, config.threads)
        if config.ctas > 1:
            cluster.leave()

    return gemm_reduce_scatter


def check(product: Product, config: Config, ranks: int) -> None:
    """Raise ArgumentError if no such kernel can be built."""
    fits = config.kernel_schedule == "cooperative" and (config.pdl, config.split_tail) == (False, False)
    fits = fits and (config.ctas == 1 or (config.multicast == "b" and ranks % config.ctas == 0))
    if not fits or product.a_major == "MN" or product.out.bits != 16 or ranks < 2:
        raise ArgumentError(
            f"the product with a reduce-scatter cannot be built as {config.name()} for {ranks} GPUs",
            expected="a cooperative form of one CTA, or of two that share B if the number of GPUs is even; A "
            "contiguous in k, a 16-bit result, 2 GPUs or more",
            got=f"{product}, {config}",
            code="configuration",
        )


class Target:
    """The slots of the GPU that a tile belongs to, as `TmaStore` takes an array."""

    def __init__(self, slots: PeerArrays) -> None:
        self.slots, self.trace, self.name, self.spec, self.dtype = (
            slots,
            slots.trace,
            slots.name,
            slots.spec,
            slots.dtype,
        )
        self.owner: Register | int = 0

    def tma_desc(self, box: tuple[int, ...] | None = None) -> TensorMap:
        return self.slots.tma_desc(self.owner, box)


def send_tiles(out: DeferredTmaStore, target: Target, schedule: RankedTiles, signals: PeerSignals, rows: int) -> None:
    """Store this CTA's tiles to their owners and signal them, in one thread. rows: of a consumer's part."""
    phase, ranks, known = reg.scalar(u32, init=0), schedule.ranks, reg.scalar(u32, init=0)
    for here in schedule.tiles():
        mark = reg.scalar(u32, init=1) << here.owner
        with ptx.if_((known & mark) == 0):  # its slots may be written for the whole launch
            signals.wait_for_launch(here.owner)
            known |= mark
        target.owner = here.owner
        out.send(here.row, here.column, rows, phase, lambda row, column: (column, row, signals.rank))
        ptx.cp.async_.bulk.wait_group(0)
        ptx.fence.proxy_async()
        signals.add(here.owner, here.number + ranks)


def add_slots(
    slots: PeerArrays, D: ArrayHandle, schedule: RankedTiles, signals: PeerSignals, config: Config, mean: bool,
) -> None:  # fmt: skip
    """Add up this GPU's own rows in rank order, tile by tile as they arrive: a warp adds `ADDED_ROWS` rows of a tile at
    a time, 16 bytes per lane."""
    ranks, thread, tile = len(slots), ptx.special.tid.x(), schedule.tile
    lane, warp = thread & (WARP - 1), ptx.special.ctaid.x() * ADDERS + (thread - (WARPGROUP - ADDERS * WARP)) // WARP
    rows, columns = D.shape
    in_row, pieces = tile[1] // _VECTOR, tile[0] // ADDED_ROWS
    source, result = slots.pointer(schedule.rank), D.pointer()
    part = rows.to(u64) * columns * D.dtype.bytes
    order, steps = grouped(max(1, config.group * config.ctas // ranks)), max(1, LOADS // ranks)
    for number in ptx.range(warp, schedule.in_part * pieces, ptx.special.nctaid.x() * ADDERS, unroll=False):
        here = schedule.own(number // pieces, order)
        first = here.row + number % pieces * ADDED_ROWS
        with ptx.if_(lane == 0):
            signals.wait(here.number + ranks, ranks)
        ptx.warp.sync()
        for piece in ptx.range(lane, ADDED_ROWS * in_row, steps * WARP, unroll=False):
            places = []
            for at in (piece + step * WARP for step in range(steps)):
                row, column = first + at // in_row, here.column + at % in_row * _VECTOR
                inside = (at < ADDED_ROWS * in_row) & (row < rows) & (column < columns)
                places.append(((row.to(u64) * columns + column) * D.dtype.bytes, inside))
            came = [[ptx.load(b32, ptx.addr(source + part * slot + place), vector=4, pred=inside)
                     for slot in range(ranks)] for place, inside in places]  # fmt: skip
            for (place, inside), words in zip(places, came, strict=True):
                ptx.store(ptx.addr(result + place), added(words, D.dtype, mean), pred=inside)


def added(came: list[RegisterArray], dtype: DType, mean: bool) -> RegisterArray:
    """Return the sums of vectors of 16-bit values in their order, or the means."""
    sums: list[Register] = []
    for words in came:
        values = [value for word in words for value in unpack(word, dtype)]
        sums = [a + b for a, b in zip(sums, values, strict=True)] if sums else values
    if mean:
        sums = [each * (1 / len(came)) for each in sums]
    return RegisterArray([pack(sums[at : at + 2], dtype) for at in range(0, _VECTOR, 2)])
