"""D = A Wᵀ for few rows of A: the weights are read once, as fast as memory gives them.

Idea       With few tokens (rows of A) nothing counts but the bytes of W. Operands are swapped: the 64 rows of a wgmma
           are rows of W, its n the tokens, so 8 tokens cost no more than 8 columns. All shared memory of a
           multiprocessor is stages on their way. And while the kernel before this one in the stream still runs, the
           first stages' weights are loaded already, if the caller promises that no kernel is writing them.
Roles      producer   the last warp, one thread: TMA loads, weights first
           consumer   one warpgroup for each 64 rows of weights: wgmma, exchange of sums, epilogue, store

               producer   [init][weights of all stages] wait [activations of all stages][stage 0 again][stage 1 ...
               consumer   wait [scales, bias] . . . . . . . . . . . . . [multiply stage 0][stage 1] ... [sums][store]

           wait: griddepcontrol.wait, until the kernel before has ended and what it wrote can be read.
Barriers   full[s]    1 arrival + bytes of the stage         producer -> consumers
           empty[s]   1 arrival for each consumer            consumers -> producer
           bar 0      all threads: the barriers are there; the producer comes when its first weights are under way
           cluster    split by a cluster: arrival after bar 0, wait before the first sums are sent
           received   split by a cluster, 1 arrival + bytes, for each consumer: sums of the other parts of K
           bar 1, 2   128 threads of a consumer: around its counting (last arriver, streamed), before it turns its sums
Buffers    the ring: W rows x k_tiles x 128 bytes and A tokens x k_tiles x 128 bytes, for each stage
           sums (cluster): what the other parts send; arrived (last arriver): what the counter said
           transposed (wide): two places of 16 tokens x 16 columns for each warp; in the ring's first stage, or,
           streamed, in memory of its own
Grid       x: tiles of W, times the parts of K, which are neighbours; or, streamed, as many as fit the machine at once
           y: tiles of tokens
Limits     any M and N; K a multiple of 16 bytes' worth; W is (N, K), K-major
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...collective.epilogue.apply import Epilogue
from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.epilogue.transposed_store import TransposedStore
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.cache_policy import read_once
from ...collective.pipeline.tma import Stage, State, TmaPipeline
from ...collective.reduce.split_k import DsmemReduce, NoReduce, SemaphoreReduce, StreamKFixup
from ...collective.tile.roles import each_consumer, producer_warp, warpgroup_index
from ...collective.tile.stream_k import SplitKSchedule, StreamKSchedule
from ...errors import ArgumentError
from ...isa.dtypes import f32, u32
from ...lang import Kernel, Scalar, Tile, kernel, ptx, reg, smem
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..gemm_mainloop import ConsumerLoop, k_tiles
from .description import Fusion, Product
from .small_m_config import GROUP_ROWS, SmallMConfig, SmallMGrid, choose
from .small_m_epilogue import SmallMEpilogue

__all__ = ["SmallMConfig", "arguments", "build", "choose"]


@lru_cache(maxsize=256)
def build(
    product: Product = Product(),  # noqa: B008 - frozen
    config: SmallMConfig = SmallMConfig(),  # noqa: B008
    fusion: Fusion = Fusion(),  # noqa: B008
) -> Kernel:
    """D (M, N) = A (M, K) Wᵀ with W (N, K), then what `fusion` says.

    Called as kernel(a, w, *arrays, *numbers, out=d) with those `arguments` names, in that order. A split "last" takes
    `workspace` and `counters` (`SmallMConfig.workspace`), which calls that may overlap must not share.
    Raises ArgumentError if no such kernel can be built.
    """
    config.check(product)
    fusion.check(product.out)
    if fusion.scale_out or fusion.amax:
        raise ArgumentError(
            "the small-M kernels have no eight-bit output", expected="no scale_out, no amax", got=fusion
        )

    @kernel(
        in_specs=arguments(product, config, fusion),
        out_specs={"D": Tile("M", "N", product.out, multiple=(1, 8) if config.wide else ())},
        grid=SmallMGrid(product, config),
        block=config.threads,
        cluster=(config.split if config.clustered else 1, 1, 1),
        arch="sm_90a",
        pdl=config.pdl,
        name="decode",
    )
    def decode(A, W, D, **args):
        cta = Cta.make(A, W, D, args, product, config)
        warpgroup = warpgroup_index()
        first = ptx.special.tid.x() == 128 * config.groups
        with ptx.if_(first):
            begin(cta)
        ptx.bar.sync(0)
        if config.clustered:
            ptx.cluster.arrive(relaxed=True)
        with producer_warp(warpgroup, config.groups):
            with ptx.if_(first):
                load(cta)
            cta.exchange.ready()
        for me in each_consumer(warpgroup, config.groups, first=0):
            multiply(cta, Epilogue(fusion, D, args), me)

    return decode


# -- arguments -----------------------------------------------------------------------------------------------------


def arguments(product: Product, config: SmallMConfig, fusion: Fusion) -> Mapping[str, Tile | Scalar]:
    """What a call takes, without D: arrays, then numbers."""
    tile_k = config.k_tiles * product.tile_k
    names: dict[str, Tile | Scalar] = {
        "A": Tile.wgmma_b("M", "K", product.a, major="K", tile_n=config.tokens, tile_k=tile_k, ragged=True),
        "W": Tile.wgmma_a("N", "K", product.b, tile_m=config.rows, tile_k=tile_k, ragged=True),
    }
    fused = epilogue_arguments(fusion, product.out, operand=Tile("M", "N", product.out))
    names |= {name: spec for name, spec in fused.items() if isinstance(spec, Tile)}
    if config.shared_workspace:
        names["workspace"] = Tile("blocks", GROUP_ROWS * config.tokens, f32)
        names["counters"] = Tile("places", u32)
    return names | {name: spec for name, spec in fused.items() if isinstance(spec, Scalar)}


# -- what the roles share ------------------------------------------------------------------------------------------


@dataclass
class Cta:
    """What the roles share: the arrays, the ring, which stages are this CTA's, and how sums are exchanged."""

    config: SmallMConfig
    A: ArrayHandle
    W: ArrayHandle
    ring: TmaPipeline
    work: SplitKSchedule | StreamKSchedule
    exchange: NoReduce | DsmemReduce | SemaphoreReduce | StreamKFixup
    transposed: TransposedStore | None

    @staticmethod
    def make(
        A: ArrayHandle, W: ArrayHandle, D: ArrayHandle, args: Mapping[str, Any], product: Product, config: SmallMConfig
    ) -> Cta:
        """Allocate and compute."""
        tile_k = config.k_tiles * product.tile_k
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.groups,
            a=smem.wgmma_tile(product.b, (config.rows, tile_k), stages=config.stages, name="ring.w"),
            b=smem.wgmma_tile(product.a, (config.tokens, tile_k), stages=config.stages, name="ring.a"),
        )
        transposed = None
        if config.wide:
            over = None if config.streamed else ring.tiles["a"][0]
            transposed = TransposedStore(D, config.groups, over)
        stages = k_tiles(A, tile_k)
        if config.streamed:
            stream = StreamKSchedule(stages, (W.shape[0] + (config.rows - 1)) // config.rows)
            streamed = StreamKFixup(args["workspace"], args["counters"], stream, config.groups)
            return Cta(config, A, W, ring, stream, streamed, transposed)
        work = SplitKSchedule(stages, config.split)
        exchange: NoReduce | DsmemReduce | SemaphoreReduce = NoReduce()
        if config.clustered:
            exchange = DsmemReduce(config.tokens // 2, config.groups, config.split)
        elif config.by_last:
            exchange = SemaphoreReduce(args["workspace"], args["counters"], work, config.groups)
        return Cta(config, A, W, ring, work, exchange, transposed)

    def load_weights(self, number: Register, stage: Stage, policy: Register) -> None:
        """The weights of this CTA's n-th stage."""
        tile, k = self.work.place(number)
        place = (k * stage.a.layout.k, tile * self.config.rows)
        ptx.tma.load(stage.a, self.W.tma_desc(), place, stage.full, cache_hint=policy)

    def load_activations(self, number: Register, stage: Stage) -> None:
        """The activations of this CTA's n-th stage."""
        _, k = self.work.place(number)
        ptx.tma.load(stage.b, self.A.tma_desc(), (k * stage.b.layout.k, self.token()), stage.full)

    def token(self) -> Register:
        """The first of this CTA's tokens."""
        return ptx.special.ctaid.y() * self.config.tokens

    def in_flight(self) -> Register:
        """How many stages can be loaded before the first of them is used up."""
        return ptx.select(self.work.total < self.config.stages, self.work.total, self.config.stages)

    @property
    def early(self) -> bool:
        """Weights are loaded before the kernel before this one has ended."""
        return self.config.pdl and self.config.constant_weights


# -- roles ---------------------------------------------------------------------------------------------------------


def begin(cta: Cta) -> None:
    """The producer's thread, before anybody waits: barriers, and the weights of all stages if that is allowed."""
    for array in (cta.W, cta.A):
        ptx.tma.prefetch_descriptor(array.tma_desc())
    cta.ring.init_barriers()
    cta.exchange.initialise()
    ptx.fence.mbarrier_init()
    if cta.config.trigger == "start":
        ptx.griddepcontrol.launch_dependents()
    if cta.early:
        load_weights_ahead(cta)
    elif cta.config.pdl and cta.config.prefetch:
        prefetch_weights(cta)


def load_weights_ahead(cta: Cta) -> None:
    """Weights of the first stages; their barriers expect the activations too."""
    ring, policy = cta.ring, read_once()
    for number in ptx.range(cta.in_flight(), unroll=False):
        stage = ring.stage(State(number, number))
        ptx.mbarrier.arrive_expect_tx(stage.full, ring.stage_bytes)
        cta.load_weights(number, stage, policy)


def prefetch_weights(cta: Cta) -> None:
    """Weights that may still be written are only brought into L2: what is written there later replaces them there."""
    most = cta.config.prefetch
    for number in ptx.range(ptx.select(cta.work.total < most, cta.work.total, most), unroll=False):
        tile, k = cta.work.place(number)
        stage = cta.ring.tiles["a"][0]
        ptx.tma.prefetch(stage, cta.W.tma_desc(), (k * stage.layout.k, tile * cta.config.rows))


def load(cta: Cta) -> None:
    """The producer: when the kernel before this one has ended, the missing activations, then stage by stage."""
    ring, policy, start = cta.ring, read_once(), reg.scalar(u32, init=0)
    state = ring.producer_state()
    if cta.config.pdl:
        ptx.griddepcontrol.wait()
    if cta.early:
        start = cta.in_flight()
        for number in ptx.range(start, unroll=False):
            cta.load_activations(number, ring.stage(State(number, number)))
        state.phase.set(0)
    for number in ptx.range(start, cta.work.total, unroll=False):
        with ring.produce(state) as stage:
            cta.load_weights(number, stage, policy)
            cta.load_activations(number, stage)
    if cta.config.trigger == "loads":
        ptx.griddepcontrol.launch_dependents()


def multiply(cta: Cta, epilogue: Epilogue, me: int) -> None:
    """A consumer: its 64 rows of weights with all tokens, tile by tile; then the tile's sums are stored."""
    config = cta.config
    if config.pdl:
        ptx.griddepcontrol.wait()
    (acc,) = wgmma_accumulators(GROUP_ROWS, config.tokens, zero=True)
    loop = ConsumerLoop(cta.ring, cta.ring.consumer_state())
    for segment in cta.work.segments():
        column = segment.tile * config.rows + me * GROUP_ROWS
        end = SmallMEpilogue(epilogue, cta.token(), column, config.tokens, cta.transposed, me)
        for stage, later in loop.stages(segment.num_k_tiles):
            weights = stage.a.rows(me * GROUP_ROWS, GROUP_ROWS)
            wgmma_stage([acc], weights, stage.b, accumulate=later if config.streamed else True)
        loop.drain()
        cta.exchange.ready()
        for complete in cta.exchange.combine(acc, me, segment):
            end.store(acc, complete)
