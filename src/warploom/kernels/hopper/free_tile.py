"""D = A Wᵀ for few to medium rows: tiles wide enough to fill the GPU in one wave, none reaching outside the tensor.

Idea       With 1 to 512 rows, a product should finish in one wave. The tile is chosen so that there are about as many
           CTAs as SMs. Either operand may be on wgmma's M axis, in blocks of 64 rows; the other is on its N axis, in
           any multiple of 8. The last tile is moved back inside the tensor, and a tensor smaller than a tile gets a TMA
           box of its own size: rows of a box outside the tensor cost five times as much as rows inside.
Roles      producer   the last warp, one thread: TMA loads of its tiles' stages
           consumer   1 to 4 warpgroups, each with some rows of the M axis: wgmma, exchange of partial sums, store

               producer   [init][weights to L2] wait [stage 0][stage 1] ... [stage 0 again] ...
               consumer   [zeros] wait . . . . . . . . . [multiply 0][multiply 1] ... [sums][stage, store]

           wait: griddepcontrol.wait, until the previous kernel has completed. Constant weights of all stages are
           loaded before it.
Barriers   full[s]    1 arrival + bytes of the stage         producer -> consumers
           empty[s]   1 arrival per consumer                 consumers -> producer; if CTAs share an operand, to the
                      producer of each of them
           bar 0      all threads: the barriers are initialised
           bar 1..4   128 threads of a consumer: its stores are staged
           bar 8      all consumers: rows past a small tensor are zeros; the ring is read and may be overwritten
           cluster    split: arrive after bar 0, wait before the first partial sums are sent
                      shared: arrive and wait in place of bar 0; at the end, the producer waits for all releases
           received   split: 1 arrival + bytes, per consumer: partial sums of the other splits of K
Buffers    ring: both operands' tiles, of k_tiles x 128 bytes of k, per stage
           sums (split): what the other splits push; staged (persistent): a buffer of its own, else over the ring
Grid       tiles along the tokens first, so that CTAs that read the same weights run together; the splits of K of a tile
           are adjacent CTAs. Persistent: as many CTAs as SMs
Limits     any M, N; K a multiple of 16 bytes' worth; both operands K-major; D of 16-bit elements
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...collective import TmaPipeline, each_consumer, warpgroup_index
from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.epilogue.staged_store import Region, StagedStore
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.cache_policy import read_once
from ...collective.pipeline.tma import State
from ...collective.reduce.peers import PeerReduce
from ...collective.reduce.split_k import DsmemReduce, NoReduce
from ...collective.tile import cluster
from ...collective.tile.cluster import ClusterGrid
from ...collective.tile.inside import inside, least
from ...collective.tile.roles import producer_warp
from ...collective.tile.stream_k import Segment, SplitKSchedule
from ...isa.dtypes import b32, u32
from ...lang import Kernel, ptx, reg, smem
from ...lang.arrays import RegisterArray
from ...lang.smem import SharedAddress
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..fields import builder
from ..gemm_mainloop import ConsumerLoop, k_tiles
from .description import TILE_K_BYTES, Fusion, Product
from .free_tile_config import BLOCK, FreeTileConfig, FreeTileGrid, staged_block_bytes, staged_pitch
from .free_tile_coordinates import OperandLoads, TileCoordinates, TileSchedule, prefetch_descriptors
from .free_tile_epilogue import Epilogue, EpilogueVectors
from .free_tile_launch import operands, result, traced

__all__ = ["FreeTileConfig", "build"]

ALL_CONSUMERS = 8
"""The named barrier of all consumers."""


@builder(keep=256)
def build(
    product: Product = Product(),  # noqa: B008 - frozen
    config: FreeTileConfig = FreeTileConfig(),  # noqa: B008
    fusion: Fusion = Fusion(),  # noqa: B008
) -> Kernel:
    """Build D (M, N) = A (M, K) Wᵀ, with W (N, K), followed by the epilogue that `fusion` describes: scales of the
    tensor or of rows, a bias along the columns, an activation, a gate, an addend. Call it as kernel(a, w, *arrays,
    *numbers, out=d) with the arguments that `epilogue_arguments` names.

    Raises ArgumentError if no such kernel can be built.
    """
    config.check(product, fusion)
    names = operands(product, config) | epilogue_arguments(fusion, product.out, operand=result(product, config))

    def free_tile(*handles: Any) -> None:
        given = dict(zip((*names, "D"), handles, strict=True))
        run_roles(Cta.make(given, product, config, fusion))

    return traced(free_tile, names, product, config, FreeTileGrid(config), over="C" if fusion.addend else "")


# -- what the roles share ------------------------------------------------------------------------------------------


@dataclass
class Cta:
    """What the roles share: the arrays, the ring, this CTA's stages of K, and the exchange of partial sums."""

    config: FreeTileConfig
    fusion: Fusion
    given: Mapping[str, Any]
    ring: TmaPipeline
    schedule: TileSchedule
    exchange: NoReduce | DsmemReduce
    staged: SharedAddress

    @staticmethod
    def make(given: Mapping[str, Any], product: Product, config: FreeTileConfig, fusion: Fusion) -> Cta:
        """Allocate shared memory and set up the ring, the schedule and the exchange."""
        A: ArrayHandle = given["A"]
        tile_k = config.k_tiles * product.tile_k
        on_m, on_n = (product.b, product.a) if config.swap_ab else (product.a, product.b)
        grid = ClusterGrid(config.along_weights, config.along_tokens) if config.multicast == "both" else None
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.consumers,
            ctas=config.cluster if config.multicast else 1,
            grid=grid,
            a=smem.wgmma_tile(on_m, (config.tile_m, tile_k), stages=config.stages, name="ring.m"),
            b=smem.wgmma_tile(on_n, (config.tile_n, tile_k), stages=config.stages, name="ring.n"),
        )
        if config.persistent:
            staged = smem.array(product.out, config.staged_bytes // product.out.bytes, name="staged")[0]
        else:
            staged = SharedAddress(A.trace, ring.tiles["a"].buffer.offset)
        exchange: NoReduce | DsmemReduce = NoReduce()
        if config.split_k > 1:
            exchange = DsmemReduce(config.tile_n // 2, config.consumers, config.split_k)
        k = SplitKSchedule(k_tiles(A, tile_k), config.split_k)
        return Cta(config, fusion, given, ring, TileSchedule(config, A, given["W"], k, grid), exchange, staged)

    @property
    def A(self) -> ArrayHandle:  # noqa: N802 - the operands' names
        """The tokens (M, K)."""
        return self.given["A"]

    @property
    def W(self) -> ArrayHandle:  # noqa: N802
        """The weights (N, K)."""
        return self.given["W"]

    @property
    def k(self) -> SplitKSchedule:
        """The stages of K that this CTA multiplies."""
        return self.schedule.k

    @property
    def names(self) -> tuple[str, str]:
        """Names of the ring's tiles: the tokens', then the weights'."""
        return ("b", "a") if self.config.swap_ab else ("a", "b")

    def split_index(self, tile: Register, block: int) -> Register:
        """The index of this CTA's split of a block of 64 rows of a tile, over all tiles, blocks and splits."""
        return (tile * (self.config.tile_m // BLOCK) + block) * self.config.split_k + self.k.split


# -- roles ---------------------------------------------------------------------------------------------------------


def run_roles(cta: Cta, peer_reduce: PeerReduce | None = None) -> None:
    """Run all roles of a CTA. `peer_reduce`: the reduction across GPUs, if each GPU holds a part of K."""
    config, warpgroup = cta.config, warpgroup_index(reduced=cta.config.reduced_index)
    first = ptx.special.tid.x() == 128 * config.consumers
    with ptx.if_(first):
        initialise(cta)
    if config.multicast:
        cluster.meet()
    else:
        ptx.bar.sync(0)
    if config.split_k > 1:
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
    prefetch_descriptors(cta.schedule)
    cta.ring.init_barriers()
    cta.exchange.initialise()
    ptx.fence.mbarrier_init()
    if cta.config.pdl:
        ptx.griddepcontrol.launch_dependents()


def load(cta: Cta) -> None:
    """The producer: the loads that may precede the end of the previous kernel, then stage by stage."""
    config, ring, total = cta.config, cta.ring, cta.k.total
    policy, loads = read_once() if config.evict_first else None, OperandLoads(cta.schedule, ring, cta.names)
    bytes_of_stage, state = loads.stage_bytes(), ring.producer_state()
    ahead, waits = reg.scalar(u32, init=0), reg.scalar(u32, init=1)
    for tile in cta.schedule.tiles():
        coordinates = cta.schedule.coordinates(tile)
        if not config.persistent:
            load_prologue(cta, loads, coordinates, state, ahead, bytes_of_stage, policy)
        else:
            with ptx.if_(waits == 1):
                load_prologue(cta, loads, coordinates, state, ahead, bytes_of_stage, policy)
            waits.set(0)
        for number in ptx.range(ahead, total, unroll=False):
            ptx.mbarrier.wait(ring.empty[state.index], state.phase)
            stage = ring.stage(state)
            ptx.mbarrier.arrive_expect_tx(stage.full, bytes_of_stage)
            loads.weights(coordinates, number, stage, policy)
            loads.tokens(coordinates, number, stage)
            ring.advance(state)
        ahead.set(0)
    if config.multicast:
        ring.producer_tail(state)


def load_prologue(
    cta: Cta,
    loads: OperandLoads,
    coordinates: TileCoordinates,
    state: State,
    ahead: Register,
    bytes_of_stage: Register | int,
    policy: Register | None,
) -> None:
    """Start the first tile before the previous kernel has completed. With constant weights, the weights of all stages
    are loaded before that and the tokens after it (`ahead` stages are then in flight). Otherwise weights go to L2."""
    ring, config = cta.ring, cta.config
    if not config.constant_weights:
        if config.prefetch and config.pdl:
            loads.prefetch_weights(coordinates)
        wait_for_previous_kernel(config)
        return
    ahead.set(least(cta.k.total, config.stages))
    for number in ptx.range(ahead, unroll=False):
        stage = ring.stage(State(number, number))
        ptx.mbarrier.arrive_expect_tx(stage.full, bytes_of_stage)
        loads.weights(coordinates, number, stage, policy)
    wait_for_previous_kernel(config)
    for number in ptx.range(ahead, unroll=False):
        loads.tokens(coordinates, number, ring.stage(State(number, number)))
    around = ahead == config.stages
    state.index.set(ptx.select(around, 0, ahead))
    state.phase.set(ptx.select(around, reg.scalar(u32, init=0), 1))


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
        vectors = load_epilogue_vectors(cta, me, tile)
        for stage, later in loop.stages(cta.k.total):
            mine = stage.a.rows(me * rows, rows)
            wgmma_stage(acc, mine, stage.b, accumulate=True if empty_split else later)
        loop.drain()
        if not config.persistent:
            ptx.bar.sync(ALL_CONSUMERS, 128 * config.consumers)
        cta.exchange.ready()
        store, coordinates = (
            OutputStore(cta, me, vectors if peer_reduce is None else vectors.without_scales()),
            cta.schedule.coordinates(tile),
        )
        for index, block in enumerate(acc):
            for complete in cta.exchange.combine(block, me, Segment(cta.k.tile, cta.k.total)):
                if peer_reduce is not None:
                    vectors.scale(block, complete, index)
                    peer_reduce.combine(block, complete, cta.split_index(tile, me * config.blocks + index), me)
                store.block(block, index, complete, coordinates)
    if peer_reduce is not None:
        peer_reduce.finish(me)


def load_epilogue_vectors(cta: Cta, me: int, tile: Register) -> EpilogueVectors:
    """Load the scales and the bias of this consumer's rows of a tile while it multiplies."""
    config, fusion, D = cta.config, cta.fusion, cta.given["D"]
    on_m, on_n, limit_m, limit_n = tile, tile, D.shape[0], D.shape[1]
    if fusion.scales == "row" or fusion.bias is not None:
        coordinates, first = cta.schedule.coordinates(tile), me * config.blocks * BLOCK
        on_m, on_n = (
            (coordinates.weight, coordinates.token) if config.swap_ab else (coordinates.token, coordinates.weight)
        )
        on_m, (limit_m, limit_n) = on_m + first, (limit_n, limit_m) if config.swap_ab else (limit_m, limit_n)
    return EpilogueVectors(
        cta.given, fusion, config.swap_ab, on_m, on_n, limit_m, limit_n, config.blocks, config.tile_n
    )  # fmt: skip


def zero_fill_rows(cta: Cta) -> None:
    """Zero the rows of a tile past a smaller tensor, once: no TMA box ever writes them."""
    config, ring = cta.config, cta.ring
    tokens, weights = cta.names
    threads = 128 * config.consumers
    thread = ptx.special.tid.x()
    extents = [(tokens, cta.A.shape[0], config.tokens), (weights, cta.W.shape[0], config.weights)]
    # boxes of a shared operand are whole and bring the zeros themselves
    extents = [each for each, sharers in zip(extents, (config.along_weights, config.along_tokens), strict=True)
               if sharers == 1]  # fmt: skip
    if not extents:
        return
    small = extents[0][1] < extents[0][2]
    if len(extents) > 1:
        small = small | (extents[1][1] < extents[1][2])
    with ptx.if_(small):
        for name, extent, rows in extents:
            start = SharedAddress(cta.A.trace, ring.tiles[name].buffer.offset)
            first = inside(extent, rows) * TILE_K_BYTES
            for panel in ptx.range(0, config.stages * config.k_tiles * rows * TILE_K_BYTES, rows * TILE_K_BYTES,
                                   unroll=False):  # fmt: skip
                for at in ptx.range(first + thread * 16, rows * TILE_K_BYTES, threads * 16, unroll=False):
                    zero = [reg.scalar(b32, init=0) for _ in range(4)]
                    ptx.store(start + panel + at, RegisterArray(zero))
        ptx.fence.proxy_async_shared_cta()
        ptx.bar.sync(ALL_CONSUMERS, threads)


class OutputStore:
    """A consumer's stores: where they are staged, and which region of D they cover."""

    def __init__(self, cta: Cta, me: int, vectors: EpilogueVectors) -> None:
        config = cta.config
        self.cta, self.me, self.vectors, self.config = cta, me, vectors, config
        columns = config.pass_columns
        self.staged = StagedStore(
            cta.given["D"], config.swap_ab, staged_pitch(columns, config.swap_ab), config.vector_store
        )
        self.block_bytes = staged_block_bytes(columns, config.swap_ab)

    def block(self, acc: RegisterArray, index: int, complete: range, coordinates: TileCoordinates) -> None:
        """Store the accumulators in the range `complete` of the consumer's block `index`."""
        config, step = self.config, self.config.pass_columns // 2
        block = self.me * config.blocks + index
        on_m, on_n = (
            (coordinates.weight, coordinates.token) if config.swap_ab else (coordinates.token, coordinates.weight)
        )
        own = (
            (coordinates.own_weight, coordinates.own_token)
            if config.swap_ab
            else (coordinates.own_token, coordinates.own_weight)
        )
        epilogue = Epilogue(
            self.cta.given["D"], self.cta.given, self.cta.fusion, self.vectors, index, config.swap_ab,
            on_m + block * BLOCK, on_n, own, config.vector_store,
        )  # fmt: skip
        memory = self.cta.staged + (self.me if config.persistent else block) * self.block_bytes
        for first in range(complete.start, complete.stop, step):
            values = acc[first : min(first + step, complete.stop)]
            if config.persistent:
                if config.swap_ab:
                    ptx.bar.sync(1 + self.me, 128)
                else:
                    ptx.inst.bar.warp.sync(-1)
            region = self.region(block * BLOCK, first * 2, coordinates)
            self.staged.store(epilogue.words(values, first * 2), memory, 1 + self.me, region)

    def region(self, on_m: int, on_n: int, coordinates: TileCoordinates) -> Region:
        """The region of D of the accumulators that begin at row `on_m` and column `on_n` of the tile."""
        token, weight = (on_n, on_m) if self.config.swap_ab else (on_m, on_n)
        return Region(
            coordinates.token + token, coordinates.weight + weight, coordinates.own_token, coordinates.own_weight
        )
