"""D = the sum over GPUs of A B, each GPU keeping its rows: a product and a reduce-scatter in one launch.

Every GPU has a part of K: A (M, K / ranks), B (N, K / ranks). Rank r keeps rows r M / ranks and on.

Roles      producer   warpgroup 0, one thread: TMA loads of the k-tiles of the CTA's tiles
           consumer   every other warpgroup: wgmma for its rows of a tile; TMA stores them to the tile's owner, into
                      the slot of this GPU; behind all tiles, adds up its share of what came here

               producer     [A, B of a tile of rank + 1] ... [A, B of a tile of its own]
               consumer     [multiply][send, signal the tile before] ... | [wait for a tile][add its slots][store] ...
               other GPUs   ..... [send, signal] ....................... |

Order      tiles of other GPUs first, one's own last (`collective.tile.ranked`). Slots are added in the order of the
           ranks, so the bits of the result do not depend on who came first.
Signals    counter r                the slots of GPU r may be written again      1 of GPU r for each launch
           counter ranks + tile     a tile has come                              1 of each consumer of each GPU
           They only grow (`collective.tile.rounds`).
Barriers   full[s], empty[s]        the ring's
           bar 1..                  128 threads of a consumer: its store boxes, and what it waited for
           bar 8                    all consumers: the CTA is done
Memory     slots: on each GPU ranks x its rows x N, of D's type, written by all
Limits     M a multiple of the ranks; N a multiple of 16 bytes' worth; 16-bit D; A K-major; every GPU has
           as many CTAs resident as the grid, or a wait would not end
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...collective.epilogue.arguments import BOX_ROWS, BOX_SWIZZLE, box_columns, epilogue_arguments
from ...collective.epilogue.tma_store import TmaStore
from ...collective.mma.fragment import pack, thread_of_warpgroup, unpack
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.tma import TmaPipeline
from ...collective.tile.ranked import RankedTile, RankedTiles
from ...collective.tile.raster import grouped
from ...collective.tile.roles import WARPGROUP, each_consumer, producer, warpgroup_index
from ...collective.tile.rounds import STATE_WORDS, Rounds
from ...collective.tile.sizes import OnAll
from ...errors import ArgumentError
from ...isa.dtypes import b32, f32, u32, u64
from ...lang import Kernel, Tile, kernel, ptx
from ...lang.arrays import RegisterArray
from ...lang.peers import PeerArrays
from ...lang.pointers import TensorMap
from ...lang.tile import ArrayHandle, Scalar
from ...lang.values import Register
from ..gemm_mainloop import ConsumerLoop, k_tiles
from . import gemm
from .description import Config, Fusion, Product
from .ranked_scales import check_end, end_of

__all__ = ["CONFIG", "build", "counters"]

CONFIG = Config(ctas=1, pdl=False)
"""A tile of 128 x 256 for two consumers."""
ALL_CONSUMERS = 8
"""Their named barrier."""
_VECTOR = 8
"""16-bit elements of 16 bytes."""


def counters(rows: int, columns: int, ranks: int, config: Config = CONFIG) -> int:
    """How many counters each GPU needs; `rows`: that it keeps."""
    return ranks + -(-rows // config.tile_m) * -(-columns // config.tile_n)


@lru_cache(maxsize=64)
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
    zero before the first launch; state: `STATE_WORDS` words of u32 of this GPU, likewise; record: `watch.words(...)`
    of this GPU; d (M / ranks, N).

    more: what `epilogue_arguments` names, scale_a of all rows as (ranks, M / ranks).
    fusion: what is done to this GPU's part, before it is rounded and sent: scales, a bias of the column, an
    activation, alpha. mean: the sums are divided by the ranks.
    Raises ArgumentError where the configuration does not fit.
    """
    config.check(product, fusion)
    check(product, config, ranks)
    check_end(product, fusion)
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
        grid=OnAll(),
        block=config.threads,
        arch="sm_90a",
        registers=gemm.launch_registers(config),
        name="gemm_reduce_scatter",
    )  # fmt: skip
    def gemm_reduce_scatter(A, B, slots, signals, state, record, rank, D, **args):
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.consumers,
            a=gemm.ring_tile(product.a, product.a_major, config.tile_m, product.tile_k, config.stages, "ring.a"),
            b=gemm.ring_tile(product.b, product.b_major, config.tile_n, product.tile_k, config.stages, "ring.b"),
        )
        target = Target(slots)
        epilogue, scales, (producer_regs, consumer_regs) = end_of(fusion, config, D, args, rank)
        out = TmaStore(target, config.consumers, epi_stages=config.epi_stages, epilogue=epilogue)
        ring.initialise()
        rounds = Rounds(signals, rank, state, record)
        schedule = RankedTiles(D.shape[0], D.shape[1], tile, ranks, rank, grouped(config.group))
        num_k_tiles, warpgroup = k_tiles(A, product.tile_k), warpgroup_index()
        with producer(warpgroup, producer_regs):
            produce = ring.producer_state()
            for here in schedule.tiles():
                row = here.owner * D.shape[0] + here.row
                for k_tile in ptx.range(num_k_tiles):
                    with ring.produce(produce) as stage:
                        k = k_tile * product.tile_k
                        ptx.tma.load(stage.a, A.tma_desc(), stage.a.coordinates(row, k), stage.full)
                        ptx.tma.load(stage.b, B.tma_desc(), stage.b.coordinates(here.column, k), stage.full)
        for me in each_consumer(warpgroup, config.consumers, consumer_regs):
            out.begin()
            state_of_ring, first = ring.consumer_state(), me * config.rows
            acc = wgmma_accumulators(config.rows, config.tile_n, dtype=product.accumulator)
            loop, sent = ConsumerLoop(ring, state_of_ring), Sent(rounds, ranks)
            for here in schedule.tiles():
                for stage, accumulate in loop.stages(num_k_tiles):
                    wgmma_stage(acc, stage.a.rows(first, config.rows), stage.b, accumulate=accumulate)
                loop.drain()
                sent.before(here)
                target.owner = here.owner
                if scales is not None:
                    scales.owner = here.owner
                out.store(acc, me, here.row + first, here.column, at=lambda row, column: (column, row, rank))
            sent.last()
            for here in schedule.own(me, config.consumers):
                add_slots(slots, D, rank, here, tile, rounds, config.consumers, me, mean)
            ptx.bar.sync(ALL_CONSUMERS, WARPGROUP * config.consumers)
            if me == 0:
                with ptx.if_(thread_of_warpgroup() == 0):
                    rounds.finish()

    return gemm_reduce_scatter


def check(product: Product, config: Config, ranks: int) -> None:
    """Raise ArgumentError if no such kernel can be built."""
    fits = config.kernel_schedule == "cooperative" and (config.ctas, config.pdl, config.split_tail) == (1, False, False)
    if not fits or product.a_major == "MN" or product.out.bits != 16 or ranks < 2:
        raise ArgumentError(
            f"the product with a reduce-scatter cannot be built as {config.name()} for {ranks} GPUs",
            expected="a cooperative form of one CTA, A contiguous in k, a 16-bit result, 2 GPUs or more",
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


@dataclass
class Sent:
    """What the storing thread of a consumer has sent: a tile is signalled when the next one is ready, for its stores
    are complete then and nobody has waited for them."""

    rounds: Rounds
    ranks: int

    def __post_init__(self) -> None:
        zero = self.rounds.rank - self.rounds.rank
        self.owner, self.number, self.any = zero.copy(), zero.copy(), zero.copy()

    def before(self, here: RankedTile) -> None:
        """Signal the tile before this one, and wait until the owner of this one takes it."""
        with ptx.if_(thread_of_warpgroup() == 0):
            self._signal()
            self.rounds.wait_for_launch(here.owner)
        self.owner.set(here.owner)
        self.number.set(here.number)
        self.any.set(1)

    def last(self) -> None:
        """Signal the last tile."""
        with ptx.if_(thread_of_warpgroup() == 0):
            self._signal()

    def _signal(self) -> None:
        with ptx.if_(self.any == 1):
            ptx.cp.async_.bulk.wait_group(0)
            ptx.fence.proxy_async()
            self.rounds.add(self.owner, self.number + self.ranks)


def add_slots(
    slots: PeerArrays, D: ArrayHandle, rank: Register, here: RankedTile, tile: tuple[int, int], rounds: Rounds,
    consumers: int, me: int, mean: bool,
) -> None:  # fmt: skip
    """The sums of a tile of this GPU's own rows, over the ranks in their order: 128 threads, 16 bytes from each."""
    ranks, thread = len(slots), thread_of_warpgroup()
    with ptx.if_(thread == 0):
        rounds.wait(here.number + ranks, ranks * consumers)
    ptx.bar.sync(1 + me, WARPGROUP)
    rows, columns = D.shape
    in_row = tile[1] // _VECTOR
    source, result = slots.pointer(rank), D.pointer()
    part = rows.to(u64) * columns * D.dtype.bytes
    for piece in ptx.range(thread, tile[0] * in_row, WARPGROUP, unroll=False):
        row, column = here.row + piece // in_row, here.column + piece % in_row * _VECTOR
        with ptx.if_((row < rows) & (column < columns)):
            place = (row.to(u64) * columns + column) * D.dtype.bytes
            sums: list[Register] = []
            for slot in range(ranks):
                words = ptx.load(b32, ptx.addr(source + part * slot + place), vector=4)
                values = [value for word in words for value in unpack(word, D.dtype)]
                sums = [a + b for a, b in zip(sums, values, strict=True)] if sums else values
            if mean:
                sums = [each * (1 / ranks) for each in sums]
            packed = [pack(sums[at : at + 2], D.dtype) for at in range(0, _VECTOR, 2)]
            ptx.store(ptx.addr(result + place), RegisterArray(packed))
