"""D = A Wᵀ for few rows of A: the weights are read once, at the bandwidth of memory.

Idea       With few tokens (rows of A), only the bytes of W count. Operands are swapped: the 64 rows of a wgmma are rows
           of W and its n the tokens, so 8 tokens cost no more than 8 columns. All shared memory of an SM holds stages
           in flight. If the caller promises that no kernel is writing the weights, those of the first stages are loaded
           while the previous kernel in the stream still runs.
Roles      producer   the last warp, one thread: TMA loads, weights first
           consumer   one warpgroup per 64 rows of weights: wgmma, exchange of partial sums, epilogue, store

               producer   [init][weights of all stages] wait [activations of all stages][stage 0 again][stage 1 ...
               consumer   wait [scales, bias] . . . . . . . . . . . . . [multiply stage 0][stage 1] ... [sums][store]

           wait: griddepcontrol.wait, until the previous kernel has completed and its writes are visible.
Barriers   full[s]    1 arrival + bytes of the stage         producer -> consumers
           empty[s]   1 arrival per consumer                 consumers -> producer
           bar 0      all threads: the barriers are initialised; the producer arrives with its first weights in flight
           cluster    split by a cluster: arrive after bar 0, wait before the first partial sums are sent
           received   split by a cluster: 1 arrival + bytes, per consumer: partial sums of the other splits of K
           bar 1, 2   128 threads of a consumer: around its counting (last arriver, streamed), before it transposes
Buffers    the ring: W rows x k_tiles x 128 bytes and A tokens x k_tiles x 128 bytes, per stage
           sums (cluster): what the other splits send; arrived (last arriver): the value read from the counter
           transposed (vector_store): two buffers of 16 tokens x 16 columns per warp; in the ring's first stage or,
           if streamed, in memory of their own
Grid       x: tiles of W times the splits of K, which are adjacent; or, if streamed, as many CTAs as fit at a time
           y: tiles of tokens
Limits     any M and N; K a multiple of 16 bytes' worth; W is (N, K), K-major
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...collective.epilogue.apply import Epilogue
from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.epilogue.transposed_store import TransposedStore
from ...collective.mma.wgmma import WGMMA_ROWS, wgmma_accumulators, wgmma_stage
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
from ..fields import builder
from ..gemm_mainloop import ConsumerLoop, k_tiles
from .description import Fusion, Product
from .small_m_config import SmallMConfig, SmallMGrid, choose
from .small_m_epilogue import SmallMEpilogue

__all__ = ["SmallMConfig", "arguments", "build", "choose"]


@builder(keep=256)
def build(
    product: Product = Product(),  # noqa: B008 - frozen
    config: SmallMConfig = SmallMConfig(),  # noqa: B008
    fusion: Fusion = Fusion(),  # noqa: B008
) -> Kernel:
    """Build D (M, N) = A (M, K) Wᵀ, with W (N, K), followed by the epilogue that `fusion` describes.

    Call it as kernel(a, w, *arrays, *numbers, out=d) with the arguments that `arguments` names, in that order. A split
    by "last" takes `workspace` and `counters` (`SmallMConfig.workspace`), which overlapping calls must not share.
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
        out_specs={"D": Tile("M", "N", product.out, multiple=(1, 8) if config.vector_store else ())},
        grid=SmallMGrid(product, config),
        block=config.threads,
        cluster=(config.split_k if config.clustered else 1, 1, 1),
        arch="sm_90a",
        pdl=config.pdl,
        name="decode",
    )
    def decode(A, W, D, **args):
        cta = Cta.make(A, W, D, args, product, config)
        warpgroup = warpgroup_index()
        first = ptx.special.tid.x() == 128 * config.consumers
        with ptx.if_(first):
            begin(cta)
        ptx.bar.sync(0)
        if config.clustered:
            ptx.cluster.arrive(relaxed=True)
        with producer_warp(warpgroup, config.consumers):
            with ptx.if_(first):
                load(cta)
            cta.exchange.ready()
        for me in each_consumer(warpgroup, config.consumers, first=0):
            multiply(cta, Epilogue(fusion, D, args), me)

    return decode


# -- arguments -----------------------------------------------------------------------------------------------------


def arguments(product: Product, config: SmallMConfig, fusion: Fusion) -> Mapping[str, Tile | Scalar]:
    """The arguments of a call without D: arrays, then numbers."""
    tile_k = config.k_tiles * product.tile_k
    names: dict[str, Tile | Scalar] = {
        "A": Tile.wgmma_b("M", "K", product.a, major="K", tile_n=config.tokens, tile_k=tile_k, ragged=True),
        "W": Tile.wgmma_a("N", "K", product.b, tile_m=config.rows, tile_k=tile_k, ragged=True),
    }
    fused = epilogue_arguments(fusion, product.out, operand=Tile("M", "N", product.out))
    names |= {name: spec for name, spec in fused.items() if isinstance(spec, Tile)}
    if config.shared_workspace:
        names["workspace"] = Tile("blocks", WGMMA_ROWS * config.tokens, f32)
        names["counters"] = Tile("places", u32)
    return names | {name: spec for name, spec in fused.items() if isinstance(spec, Scalar)}


# -- what the roles share ------------------------------------------------------------------------------------------


@dataclass
class Cta:
    """What the roles share: the arrays, the ring, this CTA's stages, and the exchange of partial sums."""

    config: SmallMConfig
    A: ArrayHandle
    W: ArrayHandle
    ring: TmaPipeline
    schedule: SplitKSchedule | StreamKSchedule
    exchange: NoReduce | DsmemReduce | SemaphoreReduce | StreamKFixup
    transposed: TransposedStore | None

    @staticmethod
    def make(
        A: ArrayHandle, W: ArrayHandle, D: ArrayHandle, args: Mapping[str, Any], product: Product, config: SmallMConfig
    ) -> Cta:
        """Allocate shared memory and choose the schedule and the exchange."""
        tile_k = config.k_tiles * product.tile_k
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.consumers,
            a=smem.wgmma_tile(product.b, (config.rows, tile_k), stages=config.stages, name="ring.w"),
            b=smem.wgmma_tile(product.a, (config.tokens, tile_k), stages=config.stages, name="ring.a"),
        )
        transposed = None
        if config.vector_store:
            reused = None if config.streamed else ring.tiles["a"][0]
            transposed = TransposedStore(D, config.consumers, reused)
        stages = k_tiles(A, tile_k)
        if config.streamed:
            stream = StreamKSchedule(stages, (W.shape[0] + (config.rows - 1)) // config.rows)
            streamed = StreamKFixup(args["workspace"], args["counters"], stream, config.consumers)
            return Cta(config, A, W, ring, stream, streamed, transposed)
        work = SplitKSchedule(stages, config.split_k)
        exchange: NoReduce | DsmemReduce | SemaphoreReduce = NoReduce()
        if config.clustered:
            exchange = DsmemReduce(config.tokens // 2, config.consumers, config.split_k)
        elif config.by_last:
            exchange = SemaphoreReduce(args["workspace"], args["counters"], work, config.consumers)
        return Cta(config, A, W, ring, work, exchange, transposed)

    def load_weights(self, number: Register, stage: Stage, policy: Register) -> None:
        """Load the weights of this CTA's n-th stage."""
        tile, k = self.schedule.coordinates(number)
        place = (k * stage.a.layout.k, tile * self.config.rows)
        ptx.tma.load(stage.a, self.W.tma_desc(), place, stage.full, cache_hint=policy)

    def load_activations(self, number: Register, stage: Stage) -> None:
        """Load the activations of this CTA's n-th stage."""
        _, k = self.schedule.coordinates(number)
        ptx.tma.load(stage.b, self.A.tma_desc(), (k * stage.b.layout.k, self.token()), stage.full)

    def token(self) -> Register:
        """This CTA's first token."""
        return ptx.special.ctaid.y() * self.config.tokens

    def in_flight(self) -> Register:
        """The number of stages that can be loaded before the first must be released."""
        return ptx.select(self.schedule.total < self.config.stages, self.schedule.total, self.config.stages)

    @property
    def early(self) -> bool:
        """True if weights are loaded before the previous kernel has completed."""
        return self.config.pdl and self.config.constant_weights


# -- roles ---------------------------------------------------------------------------------------------------------


def begin(cta: Cta) -> None:
    """Run by the producer's thread before any thread waits: barriers, and if allowed the weights of all stages."""
    for array in (cta.W, cta.A):
        ptx.tma.prefetch_descriptor(array.tma_desc())
    cta.ring.init_barriers()
    cta.exchange.init_barriers()
    ptx.fence.mbarrier_init()
    if cta.config.pdl:
        ptx.griddepcontrol.launch_dependents()
    if cta.early:
        load_weights_ahead(cta)
    elif cta.config.pdl and cta.config.prefetch:
        prefetch_weights(cta)


def load_weights_ahead(cta: Cta) -> None:
    """Load the weights of the first stages. Their barriers expect the bytes of the activations too."""
    ring, policy = cta.ring, read_once()
    for number in ptx.range(cta.in_flight(), unroll=False):
        stage = ring.stage(State(number, number))
        ptx.mbarrier.arrive_expect_tx(stage.full, ring.stage_bytes)
        cta.load_weights(number, stage, policy)


def prefetch_weights(cta: Cta) -> None:
    """Prefetch into L2 weights that may still be written: a later write updates them there."""
    most = cta.config.prefetch
    for number in ptx.range(ptx.select(cta.schedule.total < most, cta.schedule.total, most), unroll=False):
        tile, k = cta.schedule.coordinates(number)
        stage = cta.ring.tiles["a"][0]
        ptx.tma.prefetch(stage, cta.W.tma_desc(), (k * stage.layout.k, tile * cta.config.rows))


def load(cta: Cta) -> None:
    """The producer: after the previous kernel has completed, the missing activations, then stage by stage."""
    ring, policy, start = cta.ring, read_once(), reg.scalar(u32, init=0)
    state = ring.producer_state()
    if cta.config.pdl:
        ptx.griddepcontrol.wait()
    if cta.early:
        start = cta.in_flight()
        for number in ptx.range(start, unroll=False):
            cta.load_activations(number, ring.stage(State(number, number)))
        state.phase.set(0)
    for number in ptx.range(start, cta.schedule.total, unroll=False):
        with ring.produce(state) as stage:
            cta.load_weights(number, stage, policy)
            cta.load_activations(number, stage)


def multiply(cta: Cta, epilogue: Epilogue, me: int) -> None:
    """A consumer: multiply its 64 rows of weights with all tokens, tile by tile, and store each tile's sums."""
    config = cta.config
    if config.pdl:
        ptx.griddepcontrol.wait()
    (acc,) = wgmma_accumulators(WGMMA_ROWS, config.tokens, zero=True)
    loop = ConsumerLoop(cta.ring, cta.ring.consumer_state())
    for segment in cta.schedule.segments():
        column = segment.tile * config.rows + me * WGMMA_ROWS
        end = SmallMEpilogue(epilogue, cta.token(), column, config.tokens, cta.transposed, me)
        for stage, later in loop.stages(segment.num_k_tiles):
            weights = stage.a.rows(me * WGMMA_ROWS, WGMMA_ROWS)
            wgmma_stage([acc], weights, stage.b, accumulate=later if config.streamed else True)
        whole = config.split_k == 1 and not config.streamed
        if whole and cta.transposed is None and epilogue.fusion == Fusion():
            # Nobody waits for the only tile's last stage. ptxas 13.0 takes plain stores after its release for reads of
            # accumulators in flight, and serialises the wgmmas (C7514).
            ptx.wgmma.wait_group(0)
        else:
            loop.drain()
        cta.exchange.ready()
        for complete in cta.exchange.combine(acc, me, segment):
            end.store(acc, complete)
