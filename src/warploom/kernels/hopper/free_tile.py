"""D = A Wᵀ for few to medium rows: tiles wide enough to fill the GPU in one wave, none reaching outside the tensor.

Idea       With 1 to 512 rows, a product should finish in one wave. The tile is chosen so that there are about as many
           CTAs as SMs. Either operand may be on wgmma's M axis, in blocks of 64 rows; the other is on its N axis, in
           any multiple of 8. The last tile is moved back inside the tensor, and a tensor smaller than a tile gets a TMA
           box of its own size: rows of a box outside the tensor cost five times as much as rows inside.
Roles      producer   the last warp, one thread: TMA loads of its tiles' stages
           consumer   1 to 3 warpgroups, each with some rows of the M axis: wgmma, exchange of partial sums, store

               producer   [init][weights to L2] wait [stage 0][stage 1] ... [stage 0 again] ...
               consumer   [zeros] wait . . . . . . . . . [multiply 0][multiply 1] ... [sums][stage, store]

           wait: griddepcontrol.wait, until the previous kernel has completed. Constant weights of all stages are
           loaded before it.
Barriers   full[s]    1 arrival + bytes of the stage         producer -> consumers
           empty[s]   1 arrival per consumer                 consumers -> producer; if CTAs share an operand, to the
                      producer of each of them
           bar 0      all threads: the barriers are initialised
           bar 1..3   128 threads of a consumer: its stores are staged
           bar 8      all consumers: rows past a small tensor are zeros; the ring is read and may be overwritten
           cluster    split: arrive after bar 0, wait before the first partial sums are sent
                      shared: arrive and wait in place of bar 0; at the end, the producer waits for all releases
           received   split: 1 arrival + bytes, per consumer: partial sums of the other splits of K
Buffers    ring: both operands' tiles, of k_tiles x 128 bytes of k, per stage
           sums (split): what the other splits push; staged (persistent): a buffer of its own, else over the ring
Grid       tiles along the tokens first, so that CTAs that read the same weights run together; the splits of K of a tile
           are adjacent CTAs. Persistent: as many CTAs as SMs
Layouts    16-bit operands may be MN-major, (K, M) or (K, N): tiles are panels of 64 rows, and slices are rows of k
Limits     any M, N; K a multiple of 16 bytes' worth, unless both operands are MN-major; D of 16-bit elements
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.cache_policy import read_once
from ...collective.pipeline.tma import Stage, State, TmaPipeline
from ...collective.reduce.peers import PeerReduce
from ...collective.reduce.split_k import DsmemReduce, NoReduce, SemaphoreReduce
from ...collective.tile import cluster
from ...collective.tile.cluster import ClusterGrid, MulticastSlices, WholeTiles, slice_boxes
from ...collective.tile.moved_tiles import MovedTile, MovedTiles, at_most
from ...collective.tile.roles import each_consumer, producer_warp, warpgroup_index
from ...collective.tile.stream_k import Segment, SplitKSchedule
from ...isa.dtypes import DType, b32, f32, u32
from ...lang import Kernel, Tile, kernel, ptx, reg, smem
from ...lang.arrays import RegisterArray
from ...lang.smem import SharedAddress
from ...lang.tile import ArrayHandle, Scalar
from ...lang.values import Register
from ..fields import builder
from ..gemm_mainloop import ConsumerLoop, k_tiles
from .description import TILE_K_BYTES, Fusion, Product
from .free_tile_config import BLOCK, WORKSPACE_COLUMNS, FreeTileConfig, FreeTileGrid
from .free_tile_epilogue import EpilogueVectors, OutputStore
from .gemm import ring_tile

__all__ = ["FreeTileConfig", "build"]

ALL_CONSUMERS = 8
"""The named barrier of all consumers."""


@builder(keep=256)
def build(
    product: Product = Product(),  # noqa: B008 - frozen
    config: FreeTileConfig = FreeTileConfig(),  # noqa: B008
    fusion: Fusion = Fusion(),  # noqa: B008
) -> Kernel:
    """Build D (M, N) = A (M, K) Wᵀ, with W (N, K) or MN-major operands, followed by the epilogue that `fusion`
    describes: scales of the tensor or of rows, a bias along the columns, an activation, a gate, an addend. Call it as
    kernel(a, w, *arrays, *numbers, out=d) with the arguments that `epilogue_arguments` names. Raises ArgumentError.
    """
    config.check(product, fusion)
    fused = epilogue_arguments(fusion, product.out, operand=result(product, config))
    arrays = {name: spec for name, spec in fused.items() if isinstance(spec, Tile)}
    names = operands(product, config) | arrays | workspace(config) | fused

    def free_tile(**args: Any) -> None:
        run_roles(Cta.make(args, product, config, fusion))

    return traced(free_tile, names, product, config, FreeTileGrid(config), may_alias="C" if fusion.addend else "")


def traced(
    body: Callable[..., None], names: Mapping[str, Tile | Scalar], product: Product, config: FreeTileConfig, grid: Any,
    may_alias: str = "",
) -> Kernel:  # fmt: skip
    """The kernel of a body that takes the arguments `names` and D as keywords, under the body's name. may_alias: an
    argument whose memory D may share."""
    return kernel(
        in_specs=names, out_specs={"D": result(product, config, may_alias)}, grid=grid, block=config.threads,
        cluster=(config.ctas, 1, 1), arch="sm_90a", registers=config.launch_registers, pdl=config.pdl,
        name=body.__name__,
    )(body)  # fmt: skip


def operands(product: Product, config: FreeTileConfig) -> dict[str, Tile]:
    """A (M, K) and W (N, K); (K, M) and (K, N) if they are MN-major, whose boxes have rows of k. An operand that CTAs
    share is loaded in slices, which are never clipped."""

    def operand(rows: str, dtype: DType, major: str, tile: int, ctas: int) -> Tile:
        return Tile.wgmma_a(
            *((rows, "K") if major == "K" else ("K", rows)), dtype, major=major, tile_m=tile,
            tile_k=config.k_tiles * product.tile_k, ragged=True, clipped=ctas == 1 and major == "K",
        )  # fmt: skip

    return {"A": operand("M", product.a, product.a_major, config.tokens, config.along_weights),
            "W": operand("N", product.b, product.b_major, config.weights, config.along_tokens)}  # fmt: skip


def workspace(config: FreeTileConfig) -> dict[str, Tile]:
    """The arrays in which the splits of K meet, if they do (`FreeTileConfig.workspace`)."""
    if not config.shared_workspace:
        return {}
    return {"workspace": Tile("blocks", WORKSPACE_COLUMNS, f32), "counters": Tile("places", u32)}


def result(product: Product, config: FreeTileConfig, may_alias: str = "") -> Tile:
    """D. Rows stored in 16-byte units must begin at multiples of 16 bytes; otherwise they begin anywhere."""
    if config.vector_store:
        return Tile("M", "N", product.out, multiple=(1, 8), order="rows", may_alias=may_alias)
    return Tile("M", "N", product.out, may_alias=may_alias)


# -- what the roles share ------------------------------------------------------------------------------------------


@dataclass
class Cta:
    """What the roles share: the arrays, the ring, this CTA's tiles and stages of K, the exchange of partial sums."""

    config: FreeTileConfig
    fusion: Fusion
    args: Mapping[str, Any]
    ring: TmaPipeline
    schedule: MovedTiles
    exchange: NoReduce | DsmemReduce | SemaphoreReduce
    staged: SharedAddress

    @staticmethod
    def make(args: Mapping[str, Any], product: Product, config: FreeTileConfig, fusion: Fusion) -> Cta:
        """Allocate shared memory and set up the ring, the schedule and the exchange."""
        A: ArrayHandle = args["A"]
        tile_k = config.k_tiles * product.tile_k
        of_m, of_n = config.on_axes((product.a, product.a_major), (product.b, product.b_major))
        grid = ClusterGrid(config.along_weights, config.along_tokens) if config.multicast == "both" else None
        ring = TmaPipeline(
            stages=config.stages, consumers=config.consumers, ctas=config.sharing_ctas, grid=grid,
            a=ring_tile(*of_m, config.tile_m, tile_k, config.stages, "ring.m"),
            b=ring_tile(*of_n, config.tile_n, tile_k, config.stages, "ring.n"),
        )  # fmt: skip
        if config.persistent:
            staged = smem.array(product.out, config.staged_bytes // product.out.bytes, name="staged")[0]
        else:
            staged = SharedAddress(A.trace, ring.tiles["a"].buffer.offset)
        exchange: NoReduce | DsmemReduce | SemaphoreReduce = NoReduce()
        if config.in_cluster > 1:
            exchange = DsmemReduce(config.tile_n // 2, config.consumers, config.split_k)
        k = SplitKSchedule(k_tiles(A, tile_k, product.a_major), config.split_k, config.sharing_ctas)
        if config.shared_workspace:
            blocks = config.tile_m // BLOCK
            exchange = SemaphoreReduce(args["workspace"], args["counters"], k, blocks, config.blocks)
        schedule = MovedTiles(
            A, args["W"], config.output_tile, k, config.persistent, config.cluster, config.shared, grid, config.group,
        )  # fmt: skip
        return Cta(config, fusion, args, ring, schedule, exchange, staged)

    @property
    def k(self) -> SplitKSchedule:
        """The stages of K that this CTA multiplies."""
        return self.schedule.k

    @property
    def operands(self) -> tuple[Operand, Operand]:
        """The tokens and the weights."""
        of_tokens, of_weights = self.config.on_axes("a", "b")
        return (
            Operand(self.args["A"], "a", of_tokens, self.config.tokens, self.config.along_weights),
            Operand(self.args["W"], "b", of_weights, self.config.weights, self.config.along_tokens),
        )

    def split_index(self, tile: Register, block: int) -> Register:
        """The index of this CTA's split of a block of 64 rows of a tile, over all tiles, blocks and splits."""
        return (tile * (self.config.tile_m // BLOCK) + block) * self.config.split_k + self.k.split


@dataclass(frozen=True)
class Operand:
    """A or W: its name in D = A Bᵀ, that of its tiles in the ring, their rows, and the CTAs that share a tile."""

    array: ArrayHandle
    name: str
    in_ring: str
    rows: int
    ctas: int


# -- roles ---------------------------------------------------------------------------------------------------------


def run_roles(cta: Cta, peer_reduce: PeerReduce | None = None) -> None:
    """Run all roles of a CTA. `peer_reduce`: the reduction across GPUs, if each GPU holds a part of K."""
    config, warpgroup = cta.config, warpgroup_index(reduced=cta.config.reduced_index)
    first = ptx.special.tid.x() == 128 * config.consumers
    with ptx.if_(first):
        initialise(cta)
    if config.multicast:
        cluster.sync_after_init()
    else:
        ptx.bar.sync(0)
    if config.in_cluster > 1:
        ptx.cluster.arrive(relaxed=True)
    registers = config.role_registers
    with producer_warp(warpgroup, config.consumers, registers[0]):
        with ptx.if_(first):
            load(cta)
        cta.exchange.ready()
    for me in each_consumer(warpgroup, config.consumers, registers[1], first=0):
        multiply(cta, me, peer_reduce)


def initialise(cta: Cta) -> None:
    """Run by the producer's thread before any thread waits."""
    for operand in reversed(cta.operands):
        boxes = [None] if operand.ctas == 1 else slice_boxes(operand.ctas, operand.array)
        for box in boxes:
            ptx.tma.prefetch_descriptor(operand.array.tma_desc(box))
    cta.ring.init_barriers()
    cta.exchange.init_barriers()
    ptx.fence.mbarrier_init()
    if cta.config.pdl:
        ptx.griddepcontrol.launch_dependents()


class Load:
    """The producer's loads of an operand: whole tiles, or slices if several CTAs share them."""

    def __init__(self, cta: Cta, operand: Operand) -> None:
        self.operand, self.k, self.ring = operand, cta.k, cta.ring
        group = cta.schedule.sharing(operand.name)
        self.loads = WholeTiles(operand.array) if group is None else MulticastSlices(group, operand.array)

    def rows(self) -> Register | int:
        """Rows that a load brings: of clipped boxes those inside the tensor."""
        operand = self.operand
        return at_most(operand.array.shape[0], operand.rows) if operand.array.spec.clipped else operand.rows

    def __call__(self, number: Register, row: Register, stage: Stage, policy: Register | None = None) -> None:
        """Load the operand's rows from `row` of this CTA's n-th stage of K."""
        tile = stage.tiles[self.operand.in_ring]
        self.loads.load(tile, tile.coordinates(row, (self.k.first + number) * tile.layout.k), stage.full, policy)

    def prefetch(self, number: Register, row: Register) -> None:
        """Prefetch the same into L2. If it is written later, the write updates it there."""
        tile = self.ring.tiles[self.operand.in_ring][0]
        self.loads.prefetch(tile, tile.coordinates(row, (self.k.first + number) * tile.layout.k))


def load(cta: Cta) -> None:
    """The producer: the loads that may precede the end of the previous kernel, then stage by stage."""
    config, ring, total = cta.config, cta.ring, cta.k.total
    policy = read_once() if config.evict_first else None
    tokens, weights = (Load(cta, operand) for operand in cta.operands)
    # a sum begins with a register, so the order follows from which rows are a constant
    rows = weights.rows() + tokens.rows() if config.multicast == "tokens" else tokens.rows() + weights.rows()
    stage_bytes, state = rows * (config.k_tiles * TILE_K_BYTES), ring.producer_state()
    ahead, waits = reg.scalar(u32, init=0), reg.scalar(u32, init=1)

    def prologue(at: MovedTile) -> None:
        """Start the first tile before the previous kernel has completed. With constant weights, the weights of all
        stages are loaded before that and the tokens after it (`ahead` stages are then in flight). Otherwise weights go
        to L2."""
        if not config.constant_weights:
            if config.prefetch and config.pdl:
                for number in ptx.range(at_most(total, config.prefetch), unroll=False):
                    weights.prefetch(number, at.column)
            wait_for_previous_kernel(config)
            return
        ahead.set(at_most(total, config.stages))
        for number in ptx.range(ahead, unroll=False):
            stage = ring.stage(State(number, number))
            ptx.mbarrier.arrive_expect_tx(stage.full, stage_bytes)
            weights(number, at.column, stage, policy)
        wait_for_previous_kernel(config)
        for number in ptx.range(ahead, unroll=False):
            tokens(number, at.row, ring.stage(State(number, number)))
        around = ahead == config.stages
        state.index.set(ptx.select(around, 0, ahead))
        state.phase.set(ptx.select(around, reg.scalar(u32, init=0), 1))

    for tile in cta.schedule.tiles():
        at = cta.schedule.coordinates(tile)
        if not config.persistent:
            prologue(at)
        else:
            with ptx.if_(waits == 1):
                prologue(at)
            waits.set(0)
        for number in ptx.range(ahead, total, unroll=False):
            ptx.mbarrier.wait(ring.empty[state.index], state.phase)
            stage = ring.stage(state)
            ptx.mbarrier.arrive_expect_tx(stage.full, stage_bytes)
            weights(number, at.column, stage, policy)
            tokens(number, at.row, stage)
            ring.advance(state)
        ahead.set(0)
    if config.multicast:
        ring.producer_tail(state)


def wait_for_previous_kernel(config: FreeTileConfig) -> None:
    """Wait until the previous kernel has completed and its writes are visible; an ordinary launch starts after that."""
    if config.pdl:
        ptx.griddepcontrol.wait()


def multiply(cta: Cta, me: int, peer_reduce: PeerReduce | None) -> None:
    """A consumer: multiply its rows of the M axis tile by tile, then complete the partial sums and store them."""
    config = cta.config
    if config.zero_fill:
        zero_fill_rows(cta)
    wait_for_previous_kernel(config)
    if peer_reduce is not None:
        peer_reduce.begin()
    empty_split = config.split_k > 1
    acc = wgmma_accumulators(BLOCK * config.blocks, config.tile_n, zero=empty_split)
    loop, rows = ConsumerLoop(cta.ring, cta.ring.consumer_state()), BLOCK * config.blocks
    for tile in cta.schedule.tiles():
        vectors = EpilogueVectors(cta.args, cta.fusion, config, cta.schedule, me, tile)
        for stage, later in loop.stages(cta.k.total):
            mine = stage.a.rows(me * rows, rows)
            wgmma_stage(acc, mine, stage.b, accumulate=True if empty_split else later)
        loop.drain(cta.k.total != 0 if empty_split and config.multicast else None)
        if not config.persistent:
            ptx.bar.sync(ALL_CONSUMERS, 128 * config.consumers)
        cta.exchange.ready()
        store = OutputStore(
            cta.args, cta.fusion, config, vectors if peer_reduce is None else vectors.without_scales(), me, cta.staged
        )
        coordinates = cta.schedule.coordinates(tile)
        sent: list[tuple[RegisterArray, int, range]] = []
        first, segment = me * config.blocks, Segment(cta.k.output(), cta.k.total)
        for index, complete in cta.exchange.combine_parts(acc, first, segment):
            block = acc[index]
            if peer_reduce is None:
                store.block(block, index, complete, coordinates)
            else:
                vectors.scale(block, complete, index)
                peer_reduce.send(block[complete.start : complete.stop], cta.split_index(tile, first + index))
                sent.append((block, index, complete))
                if config.split_k > 1 or index + 1 == len(acc):
                    for piece, _ in zip(sent, peer_reduce.received(), strict=True):
                        store.block(*piece, coordinates)
                    sent.clear()
    if peer_reduce is not None:
        peer_reduce.finish(me)


def zero_fill_rows(cta: Cta) -> None:
    """Zero the rows of a tile past a smaller tensor, once: no TMA box ever writes them. Boxes of a shared or MN-major
    operand are whole and bring the zeros themselves."""
    config, ring = cta.config, cta.ring
    threads, thread = 128 * config.consumers, ptx.special.tid.x()
    extents = [(each.in_ring, each.array.shape[0], each.rows) for each in cta.operands if each.array.spec.clipped]
    if not extents:
        return
    small = extents[0][1] < extents[0][2]
    if len(extents) > 1:
        small = small | (extents[1][1] < extents[1][2])
    with ptx.if_(small):
        for name, extent, rows in extents:
            start = SharedAddress(cta.args["A"].trace, ring.tiles[name].buffer.offset)
            first = at_most(extent, rows) * TILE_K_BYTES
            for panel in ptx.range(0, config.stages * config.k_tiles * rows * TILE_K_BYTES, rows * TILE_K_BYTES,
                                   unroll=False):  # fmt: skip
                for at in ptx.range(first + thread * 16, rows * TILE_K_BYTES, threads * 16, unroll=False):
                    zero = [reg.scalar(b32, init=0) for _ in range(4)]
                    ptx.store(start + panel + at, RegisterArray(zero))
        ptx.fence.proxy_async_shared_cta()
        ptx.bar.sync(ALL_CONSUMERS, threads)
