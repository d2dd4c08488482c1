"""The finished Hopper GEMM: persistent, warp-specialised, any tile, any layout, with a fused epilogue.

Roles      producer   warpgroup 0, one thread: TMA loads of the k-tiles of all the CTA's tiles, in order. With constant
                      weights, two threads, one per operand; the thread of B does not wait for the previous kernel
           consumer   every other warpgroup: wgmma, then conversion and TMA store of its rows
Schedules  cooperative   the consumers split the rows of one tile; stores overlap the next tile's wgmmas

               consumer 0   [multiply rows 0.. ][write][multiply ...
               consumer 1   [multiply rows n/2..][write][multiply ...

           ping_pong     each consumer has its own tile; the tensor core is handed over at the last wgmma's issue

               consumer 0   [multiply tile 0][write tile 0    ][multiply tile 2]
               consumer 1                    [multiply tile 1][write tile 1    ]

           staggered     as cooperative, but each consumer has two blocks of 64 rows and stores one while it multiplies
                         the other (`hopper.staggered`)
Barriers   full[s]    1 arrival of each producer + bytes     producers of the cluster -> consumers
           empty[s]   1 arrival for each consumer that reads the stage, of each CTA    -> producers (remote, relaxed)
           bar 1..    128 threads of a consumer, twice per store box
           operands   with a fused gate or addend: 1 arrival + bytes of its boxes      TMA -> one consumer
           order      ping-pong: two more named barriers, 128 threads wait and 128 arrive
           drained, received   split tail only (`collective.reduce.pair_exchange`)
           cluster    before the first remote access, and at the end
Ring       `stages` stages of A tile_m x 128 bytes and B tile_n x 128 bytes
Limits     any M, N, K that TMA can address: rows of A, B and D start at multiples of 16 bytes, and the length of D's
           rows is a multiple of 16 bytes (with `pads_to_16b`, any length, if nobody else uses the bytes after a row)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...collective.epilogue.apply import Epilogue
from ...collective.epilogue.arguments import epilogue_arguments, result_tile
from ...collective.epilogue.tma_store import TmaStore
from ...collective.mma.wgmma import WGMMA_ROWS, wgmma_accumulators, wgmma_stage
from ...collective.pipeline.tma import State, TmaPipeline
from ...collective.reduce.pair_exchange import PairExchange
from ...collective.tile import cluster
from ...collective.tile.ordered_barrier import OrderedBarrier
from ...collective.tile.raster import grouped
from ...collective.tile.roles import each_consumer, each_producer, warpgroup_index
from ...collective.tile.scheduler import Persistent, TileCoord
from ...collective.tile.sizes import persistent_grid
from ...isa.dtypes import DType
from ...lang import Kernel, Tile, kernel, ptx, smem
from ...lang.arrays import RegisterArray
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..fallback_hint import other_rungs
from ..fields import builder
from ..gemm_mainloop import ConsumerLoop, k_tiles, operand_loads
from .description import Config, Fusion, Product
from .staggered import MIN_K_TILES, Staggered

ROLE_REGS = {1: (40, 232), 2: (40, 232), 3: (32, 160)}
"""Registers per thread of a producer and of a consumer (setmaxnreg), by the number of consumers."""
LARGE_ROLE_REGS = (24, 240)
"""`ROLE_REGS` of two consumers whose accumulators per thread exceed `LARGE_ACC_REGS`, or `LARGE_FUSED_ACC_REGS` if the
epilogue is fused."""
LARGE_ACC_REGS = 192
LARGE_FUSED_ACC_REGS = 144
LAUNCH_REGS = {1: 232, 2: 168, 3: 128}
"""Registers per thread at launch: as many as all threads of a CTA can have, and at most what a consumer requests."""
WIDE_TILE_COLUMNS = {1: 208, 2: 112, 3: 80}
"""Columns of a tile from which ptxas finds `LAUNCH_REGS` by itself, because two CTAs with such a wgmma do not fit on an
SM. With fewer columns, ptxas ignores setmaxnreg (note C7508) unless the PTX states the number. Values that are uniform
across a role then pass through ordinary registers: 40 `R2UR` instead of 16 in `cooperative_128x96x6_g8`."""
ADDRESS_REGS = 40
"""Registers of a consumer's thread for addresses and counters: not accumulators, and not available to its epilogue."""
PRODUCERS = {1: ("ab",), 2: ("a", "b")}
"""The operands that each producer thread loads, by the number of producers."""


@builder(keep=256)
def build(
    product: Product = Product(),  # noqa: B008 - frozen
    config: Config = Config(),  # noqa: B008
    fusion: Fusion = Fusion(),  # noqa: B008
    pads_to_16b: bool = False,
) -> Kernel:
    """Build D = A B followed by the epilogue that `fusion` describes; see `description`.

    Call it as kernel(a, b, ..., out=d). a is (M, K) or, if MN-major, (K, M); b is (N, K) or (K, N); d is (M, N).
    Between b and d come the arguments that `epilogue_arguments` names: arrays, then numbers.
    `pads_to_16b`: the caller guarantees that nobody else uses the bytes after a row of d, up to a multiple of 16. They
    are overwritten, and N may then be any number. The PTX is the same.
    Raises ArgumentError if the configuration does not fit.
    """
    config.check(product, fusion)
    fused = epilogue_arguments(fusion, product.out)

    @kernel(
        in_specs={"A": operand_a(product, config), "B": operand_b(product, config), **fused},
        out_specs={"D": result(product, pads_to_16b=pads_to_16b, may_alias="C" if fusion.addend else "")},
        grid=persistent_grid((config.tile_m, config.tile_n), config.ctas, config.multicast),
        block=config.threads,
        cluster=(config.ctas, 1, 1),
        arch="sm_90a",
        registers=launch_registers(config),
        fallback_hint=other_rungs,
        pdl=config.pdl,
        name=config.kernel_schedule,
    )
    def gemm(A, B, D, **epilogue_args):
        tile_k, stages = config.stage_k(product), config.stages
        ring = TmaPipeline(
            stages=stages,
            consumers=1 if config.kernel_schedule == "ping_pong" else config.consumers,
            ctas=config.ctas,
            producers=2 if config.constant_weights else 1,
            a=ring_tile(product.a, product.a_major, config.tile_m, tile_k, stages, "ring.a"),
            b=ring_tile(product.b, product.b_major, config.tile_n, tile_k, stages, "ring.b"),
        )
        producer_regs, consumer_regs = role_registers(config, not fusion.empty)
        epilogue = None
        if not fusion.empty:
            spare = max(consumer_regs - config.accumulators - ADDRESS_REGS, 0)
            epilogue = Epilogue(fusion, D, epilogue_args, spare=spare, pdl=config.pdl)
        out = TmaStore(
            D, config.consumers, epi_stages=config.epi_stages, epilogue=epilogue, evict_first=config.evict_first
        )
        exchange = PairExchange(ring, config.accumulators) if config.split_tail else None
        ring.initialise(*([exchange] if exchange is not None else []))
        cta = Cta(product, config, A, B, D, ring, out, exchange)

        warpgroup = warpgroup_index()
        for me in each_producer(warpgroup, ring.producers, producer_regs):
            produce(cta, PRODUCERS[ring.producers][me])
        for me in each_consumer(warpgroup, config.consumers, consumer_regs):
            out.begin()
            CONSUME[config.kernel_schedule](cta, me)
            out.finish()
        cluster.leave()

    return gemm


def role_registers(config: Config, fused: bool = False) -> tuple[int, int]:
    """Registers of a producer's and of a consumer's thread."""
    if config.consumers == 2 and config.accumulators > (LARGE_FUSED_ACC_REGS if fused else LARGE_ACC_REGS):
        return LARGE_ROLE_REGS
    return ROLE_REGS[config.consumers]


def launch_registers(config: Config) -> int | None:
    """Registers per thread at launch, as the PTX states them (.maxnreg); None if ptxas finds the number by itself."""
    return LAUNCH_REGS[config.consumers] if config.tile_n < WIDE_TILE_COLUMNS[config.consumers] else None


# -- arguments -----------------------------------------------------------------------------------------------------


def operand_a(product: Product, config: Config) -> Tile:
    """A (M, K), or (K, M) if it is MN-major. A multicast operand is loaded in slices."""
    rows = config.tile_m
    if product.a_major == "MN":
        return Tile.wgmma_a("K", "M", product.a, major="MN", tile_m=rows, tile_k=config.stage_k(product), ragged=True)
    if config.multicast == "a":
        rows //= config.ctas
    return Tile.wgmma_a("M", "K", product.a, tile_m=rows, tile_k=config.stage_k(product), ragged=True)


def operand_b(product: Product, config: Config) -> Tile:
    """B (N, K), or (K, N) if it is MN-major. A multicast operand is loaded in slices."""
    rows = config.tile_n
    if product.b_major == "MN":
        return Tile.wgmma_b("K", "N", product.b, major="MN", tile_n=rows, tile_k=config.stage_k(product), ragged=True)
    if config.multicast == "b":
        rows //= config.ctas
    return Tile.wgmma_b("N", "K", product.b, major="K", tile_n=rows, tile_k=config.stage_k(product), ragged=True)


def result(product: Product, rows: str = "M", pads_to_16b: bool = False, may_alias: str = "") -> Tile:
    """D (M, N), stored by TMA in units of 16 bytes; its rows begin at multiples of 16 bytes."""
    return result_tile(rows, "N", product.out, order="rows", pads_to_16b=pads_to_16b, may_alias=may_alias)


def ring_tile(dtype: DType, major: str, rows: int, tile_k: int, stages: int, name: str) -> smem.OperandTile:
    """The stages of one operand."""
    shape = (rows, tile_k) if major == "K" else (tile_k, rows)
    return smem.wgmma_tile(dtype, shape, major=major, stages=stages, name=name)


# -- what the roles share ------------------------------------------------------------------------------------------


@dataclass
class Cta:
    """The arguments and the shared memory. Each role derives what it needs by itself, because registers are scarce."""

    product: Product
    config: Config
    A: ArrayHandle
    B: ArrayHandle
    D: ArrayHandle
    ring: TmaPipeline
    out: TmaStore
    exchange: PairExchange | None

    def scheduler(self) -> Persistent:
        """The CTA's tiles."""
        config = self.config
        return Persistent(
            self.D, (config.tile_m, config.tile_n), grouped(config.group), config.ctas, config.multicast,
            split_tail=config.split_tail,
        )  # fmt: skip

    @property
    def tile_k(self) -> int:
        """Elements of k per stage."""
        return self.config.stage_k(self.product)

    def num_k_tiles(self) -> Register:
        """The number of k-tiles of a tile."""
        count = k_tiles(self.A, self.tile_k, self.product.a_major)
        return (
            ptx.select(count < MIN_K_TILES, MIN_K_TILES, count) if self.config.kernel_schedule == "staggered" else count
        )

    def half_k_tiles(self) -> Register:
        """k-tiles per CTA in the split tail; those beyond K are zeros."""
        return (self.num_k_tiles() + 1) // 2

    def accumulators(self) -> list[RegisterArray]:
        """One register array per 64 rows of a consumer."""
        return wgmma_accumulators(self.config.rows, self.config.tile_n, dtype=self.product.accumulator)


# -- the producer --------------------------------------------------------------------------------------------------


def produce(cta: Cta, operands: str) -> None:
    """Load the k-tiles of all tiles, in order, with one thread. `operands`: "ab", "a" or "b".

    A producer of B alone does not wait for the previous kernel: the caller promised that no running kernel writes B.
    """
    A, B, ring, config, tile_k = cta.A, cta.B, cta.ring, cta.config, cta.tile_k
    waits = config.pdl and operands != "b"
    scheduler, num_k_tiles, state = cta.scheduler(), cta.num_k_tiles(), ring.producer_state()
    if waits:
        ptx.griddepcontrol.wait()
    for tile in scheduler.tiles():
        load_a, load_b = operand_loads(config.ctas, config.multicast)
        for k_tile in ptx.range(num_k_tiles):
            with ring.produce(state, operands) as stage:
                k = k_tile * tile_k
                if "a" in operands:
                    load_a(stage.a, A, stage.a.coordinates(tile.row, k), stage.full)
                if "b" in operands:
                    load_b(stage.b, B, stage.b.coordinates(tile.column, k), stage.full)
    if config.split_tail:
        with cta.scheduler().tail() as tile:
            half = cta.half_k_tiles()
            first = ptx.special.cluster_ctarank() * half
            load_a, load_b = operand_loads(config.ctas, config.multicast, same_k=False)
            start = first * tile_k
            for k_tile in ptx.range(half):
                with ring.produce(state) as stage:
                    k = k_tile * tile_k + start
                    load_a(stage.a, A, stage.a.coordinates(tile.row, k), stage.full)
                    load_b(stage.b, B, stage.b.coordinates(tile.column, k), stage.full)
    if waits:
        ptx.griddepcontrol.launch_dependents()


# -- consumers -----------------------------------------------------------------------------------------------------


def cooperative(cta: Cta, me: int) -> None:
    """Multiply and store this consumer's rows of every tile."""
    ring, out, rows, first = cta.ring, cta.out, cta.config.rows, me * cta.config.rows
    state, acc, num_k_tiles = ring.consumer_state(), cta.accumulators(), cta.num_k_tiles()
    loop = ConsumerLoop(ring, state)
    for tile in cta.scheduler().tiles():
        for stage, accumulate in loop.stages(num_k_tiles):
            wgmma_stage(acc, stage.a.rows(first, rows), stage.b, accumulate=accumulate)
        if out.operands is not None:
            out.prefetch(acc, me, tile.row + first, tile.column)
        loop.drain()
        out.store(acc, me, tile.row + first, tile.column, ahead=True)
    split_tail(cta, me, state, acc, lambda tile: out.store(acc, me, tile.row + first, tile.column))


def ping_pong(cta: Cta, me: int) -> None:
    """Multiply and store every other tile, and skip the k-tiles of the other consumer's tiles."""
    ring, out, consumers = cta.ring, cta.out, cta.config.consumers
    turns = OrderedBarrier(1 + consumers)
    state, acc, num_k_tiles = ring.consumer_state(), cta.accumulators(), cta.num_k_tiles()
    loop = ConsumerLoop(ring, state)
    turns.begin(me)
    if me:
        ring.skip(state, num_k_tiles)
    for tile in cta.scheduler().tiles(first=me, every=consumers):
        turns.wait(me)
        for stage, accumulate in loop.stages(num_k_tiles):
            wgmma_stage(acc, stage.a, stage.b, accumulate=accumulate)
        turns.pass_on(me)
        if out.operands is not None:
            out.prefetch(acc, me, tile.row, tile.column)
        loop.drain()
        ring.skip(state, num_k_tiles)
        out.store(acc, me, tile.row, tile.column, ahead=True)


def staggered(cta: Cta, me: int) -> None:
    """As `cooperative`, but the epilogues of the two blocks of rows run at different times."""
    out, first = cta.out, me * cta.config.rows
    state, acc = cta.ring.consumer_state(), cta.accumulators()

    def store(block: RegisterArray, tile: TileCoord, row: int) -> None:
        out.store([block], me, tile.row + (first + row), tile.column)

    def store_both(tile: TileCoord) -> None:
        store(acc[0], tile, 0)
        store(acc[1], tile, WGMMA_ROWS)

    Staggered(cta.ring, state, cta.scheduler(), acc[0], acc[1], first, cta.num_k_tiles(), store).run()
    split_tail(cta, me, state, acc, store_both)


def split_tail(cta: Cta, me: int, state: State, acc: list[RegisterArray], store: Callable[[TileCoord], None]) -> None:
    """Multiply and store the tile that two CTAs share, if the schedule has one; each CTA takes half of K."""
    if cta.exchange is None:
        return
    rows, loop = cta.config.rows, ConsumerLoop(cta.ring, state)
    with cta.scheduler().tail() as tile:
        for stage, accumulate in loop.stages(cta.half_k_tiles()):
            wgmma_stage(acc, stage.a.rows(me * rows, rows), stage.b, accumulate=accumulate)
        loop.drain()
        with ptx.if_(cta.exchange.combine(acc, me)):
            store(tile)


CONSUME: dict[str, Callable[[Cta, int], None]] = {
    "cooperative": cooperative,
    "ping_pong": ping_pong,
    "staggered": staggered,
}
"""The function that runs a consumer, by kernel schedule."""
