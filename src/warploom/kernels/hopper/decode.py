"""D = A Wᵀ for few rows of A: the weights are read once, as fast as memory gives them.

Idea       With few tokens (rows of A) nothing counts but the bytes of W. Operands are swapped: the 64 rows of a wgmma
           are rows of W, its n the tokens, so 8 tokens cost no more than 8 columns. All shared memory of a
           multiprocessor is stages on their way. And while the kernel before this one in the stream still runs, the
           first stages' weights are loaded already, if the caller promises that nobody is writing them.
Roles      producer   the last warp, one thread: TMA loads, weights first
           consumer   one warpgroup for each 64 rows of weights: wgmma, exchange of sums, epilogue, store

               producer   [init][weights of all stages] wait [activations of all stages][stage 0 again][stage 1 ...
               consumer   wait [scales, bias] . . . . . . . . . . . . . [multiply stage 0][stage 1] ... [sums][store]

           wait: griddepcontrol.wait, until the kernel before has ended and what it wrote can be read.
Barriers   full[s]    1 arrival + bytes of the stage         producer -> consumers
           empty[s]   1 arrival for each consumer            consumers -> producer
           bar 0      all threads: the barriers are there; the producer comes when its first weights are under way
           cluster    split by a cluster: arrived at behind bar 0, waited for before the first sums are sent
           received   split by a cluster, 1 arrival + bytes, for each consumer: sums of the other parts of K
           bar 1, 2   128 threads of a consumer: around its counting (last arriver, streamed), before it turns its sums
Buffers    the ring: W rows x k_tiles x 128 bytes and A tokens x k_tiles x 128 bytes, for each stage
           sums (cluster): what the other parts send; arrived (last arriver): what the counter said
           turned (wide): two places of 16 tokens x 16 columns for each warp; in the ring's first stage, or, streamed,
           of its own
Grid       x: tiles of W, times the parts of K, which are neighbours; or, streamed, as many as fit the machine at once
           y: tiles of tokens
Limits     any M and N; K a multiple of 16 bytes' worth; W is (N, K), K-major
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...collective.epilogue.transposed_store import TransposedStore
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.tma import Stage, State, TmaPipeline
from ...collective.reduce.split_k import LastArriver, PushedSums, StreamedSums, WholeSums
from ...collective.tile.roles import each_consumer, producer_warp, warpgroup_index
from ...collective.tile.stream_k import PartOfTile, StreamK
from ...errors import ArgumentError
from ...isa.dtypes import b64, f32, u32
from ...lang import Kernel, Scalar, Tile, kernel, ptx, reg, smem
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..gemm_mainloop import ConsumerLoop, k_tiles
from .decode_config import GROUP_ROWS, DecodeConfig, DecodeGrid, choose
from .decode_epilogue import DecodeEpilogue
from .description import ACTIVATIONS, SCALES, Fusion, Product

__all__ = ["DecodeConfig", "arguments", "build", "choose"]


@lru_cache(maxsize=256)
def build(
    product: Product = Product(),  # noqa: B008 - frozen
    config: DecodeConfig = DecodeConfig(),  # noqa: B008
    fusion: Fusion = Fusion(),  # noqa: B008
) -> Kernel:
    """D (M, N) = A (M, K) Wᵀ with W (N, K), then what `fusion` says.

    Called as kernel(a, w, *arrays, *numbers, out=d) with those `arguments` names, in that order. A split "last" takes
    `workspace` and `counters` (`DecodeConfig.workspace`), which calls that may overlap must not share.
    Raises ArgumentError where there is no such kernel.
    """
    config.check(product)
    check_fusion(fusion)
    names = arguments(product, config, fusion)

    def decode(*handles: Any) -> None:
        given = dict(zip((*names, "D"), handles, strict=True))
        parts = Parts.make(given, product, config)
        warpgroup = warpgroup_index()
        first = ptx.special.tid.x() == 128 * config.groups
        with ptx.if_(first):
            begin(parts)
        ptx.bar.sync(0)
        if config.clustered:
            ptx.cluster.arrive(relaxed=True)
        with producer_warp(warpgroup, config.groups):
            with ptx.if_(first):
                load(parts)
            parts.exchange.ready()
        for me in each_consumer(warpgroup, config.groups, first=0):
            multiply(parts, given, fusion, me)

    positional = inspect.Parameter.POSITIONAL_ONLY
    decode.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, positional) for name in (*names, "D")]
    )
    return kernel(
        in_specs=tuple(names.values()),
        out_specs=(Tile("M", "N", product.out, multiple=(1, 8) if config.wide else ()),),
        grid=DecodeGrid(product, config),
        block=config.threads,
        cluster=(config.split if config.clustered else 1, 1, 1),
        arch="sm_90a",
        pdl=config.pdl,
        name="decode",
    )(decode)


# -- arguments -----------------------------------------------------------------------------------------------------


def check_fusion(fusion: Fusion) -> None:
    """Raise ArgumentError for what the epilogue of these kernels does not do."""
    if fusion.scale_out or fusion.amax:
        raise ArgumentError("the small-M kernels have no eight-bit output", expected="no scale_out, no amax")
    if fusion.scales not in (None, *SCALES):
        raise ArgumentError("there are no such scales", expected=", ".join(SCALES), got=fusion.scales)
    if fusion.activation not in (None, *ACTIVATIONS):
        raise ArgumentError("there is no such activation", expected=", ".join(ACTIVATIONS), got=fusion.activation)
    if fusion.bias not in (None, "column", "row"):
        raise ArgumentError("there is no such bias", expected="column, row", got=fusion.bias)


def arguments(product: Product, config: DecodeConfig, fusion: Fusion) -> Mapping[str, Tile | Scalar]:
    """What a call takes, without D: arrays, then numbers."""
    tile_k = config.k_tiles * product.tile_k
    names: dict[str, Tile | Scalar] = {
        "A": Tile.wgmma_b("M", "K", product.a, major="K", tile_n=config.tokens, tile_k=tile_k, ragged=True),
        "W": Tile.wgmma_a("N", "K", product.b, tile_m=config.rows, tile_k=tile_k, ragged=True),
    }
    if fusion.scales is not None:
        row = fusion.scales == "row"
        names["scale_a"] = Tile("M" if row else 1, f32)
        names["scale_b"] = Tile("N" if row else 1, f32)
    if fusion.bias is not None:
        names["bias"] = Tile("N" if fusion.bias == "column" else "M", fusion.bias_dtype or product.out)
    if fusion.gate:
        names["gate"] = Tile("M", "N", product.out)
    if fusion.addend:
        names["C"] = Tile("M", "N", product.out)
    if config.shared_workspace:
        names["workspace"] = Tile("blocks", GROUP_ROWS * config.tokens, f32)
        names["counters"] = Tile("places", u32)
    if fusion.alpha:
        names["alpha"] = Scalar(f32)
    if fusion.addend:
        names["beta"] = Scalar(f32)
    return names


# -- what the roles share ------------------------------------------------------------------------------------------


@dataclass
class Parts:
    """What the roles share: the arrays, the ring, which stages are this CTA's, and how sums are exchanged."""

    config: DecodeConfig
    A: ArrayHandle
    W: ArrayHandle
    ring: TmaPipeline
    work: PartOfTile | StreamK
    exchange: WholeSums | PushedSums | LastArriver | StreamedSums
    turned: TransposedStore | None

    @staticmethod
    def make(given: Mapping[str, Any], product: Product, config: DecodeConfig) -> Parts:
        """Allocate and calculate."""
        A, W = given["A"], given["W"]
        tile_k = config.k_tiles * product.tile_k
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.groups,
            a=smem.wgmma_tile(product.b, (config.rows, tile_k), stages=config.stages, name="ring.w"),
            b=smem.wgmma_tile(product.a, (config.tokens, tile_k), stages=config.stages, name="ring.a"),
        )
        turned = None
        if config.wide:
            over = None if config.streamed else ring.tiles["a"][0]
            turned = TransposedStore(given["D"], config.groups, over)
        stages = k_tiles(A, tile_k)
        if config.streamed:
            stream = StreamK(stages, (W.shape[0] + (config.rows - 1)) // config.rows)
            streamed = StreamedSums(given["workspace"], given["counters"], stream, config.groups)
            return Parts(config, A, W, ring, stream, streamed, turned)
        work = PartOfTile(stages, config.split)
        exchange: WholeSums | PushedSums | LastArriver = WholeSums()
        if config.clustered:
            exchange = PushedSums(config.tokens // 2, config.groups, config.split)
        elif config.by_last:
            exchange = LastArriver(given["workspace"], given["counters"], work, config.groups)
        return Parts(config, A, W, ring, work, exchange, turned)

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


def begin(parts: Parts) -> None:
    """The producer's thread, before anybody waits: barriers, and the weights of all stages if that is allowed."""
    ring = parts.ring
    for array in (parts.W, parts.A):
        ptx.tma.prefetch_descriptor(array.tma_desc())
    for stage in range(ring.stages):
        ptx.mbarrier.init(ring.full[stage], ring.full_arrivals)
        ptx.mbarrier.init(ring.empty[stage], ring.empty_arrivals)
    parts.exchange.initialise()
    ptx.fence.mbarrier_init()
    if parts.config.trigger == "start":
        ptx.griddepcontrol.launch_dependents()
    if parts.early:
        load_weights_ahead(parts)
    elif parts.config.pdl and parts.config.prefetch:
        prefetch_weights(parts)


def load_weights_ahead(parts: Parts) -> None:
    """Weights of the first stages; their barriers expect the activations too."""
    ring, policy = parts.ring, read_once()
    for number in ptx.range(parts.in_flight(), unroll=False):
        stage = ring.stage(State(number, number))
        ptx.mbarrier.arrive_expect_tx(stage.full, ring.stage_bytes)
        parts.load_weights(number, stage, policy)


def prefetch_weights(parts: Parts) -> None:
    """Weights that may still be written are only brought into L2: what is written there later replaces them there."""
    most = parts.config.prefetch
    for number in ptx.range(ptx.select(parts.work.total < most, parts.work.total, most), unroll=False):
        tile, k = parts.work.place(number)
        stage = parts.ring.tiles["a"][0]
        ptx.tma.prefetch(stage, parts.W.tma_desc(), (k * stage.layout.k, tile * parts.config.rows))


def load(parts: Parts) -> None:
    """The producer: behind the kernel before this one, the activations that are missing, then stage by stage."""
    ring, policy, start = parts.ring, read_once(), reg.scalar(u32, init=0)
    state = ring.producer_state()
    if parts.config.pdl:
        ptx.griddepcontrol.wait()
    if parts.early:
        start = parts.in_flight()
        for number in ptx.range(start, unroll=False):
            parts.load_activations(number, ring.stage(State(number, number)))
        state.phase.set(0)
    for number in ptx.range(start, parts.work.total, unroll=False):
        with ring.produce(state) as stage:
            parts.load_weights(number, stage, policy)
            parts.load_activations(number, stage)
    if parts.config.trigger == "loads":
        ptx.griddepcontrol.launch_dependents()


def multiply(parts: Parts, given: Mapping[str, Any], fusion: Fusion, me: int) -> None:
    """A consumer: its 64 rows of weights with all tokens, tile by tile; then the tile's sums are stored."""
    config = parts.config
    if config.pdl:
        ptx.griddepcontrol.wait()
    (acc,) = wgmma_accumulators(GROUP_ROWS, config.tokens, zero=True)
    loop = ConsumerLoop(parts.ring, parts.ring.consumer_state())
    for segment in parts.work.segments():
        column = segment.tile * config.rows + me * GROUP_ROWS
        epilogue = DecodeEpilogue(given["D"], given, fusion, parts.token(), column, config.tokens, parts.turned, me)
        for stage, later in loop.stages(segment.count):
            weights = stage.a.rows(me * GROUP_ROWS, GROUP_ROWS)
            wgmma_stage([acc], weights, stage.b, accumulate=later if config.streamed else True)
        loop.drain()
        parts.exchange.ready()
        for complete in parts.exchange.combine(acc, me, segment):
            epilogue.store(acc, complete)


def read_once() -> Register:
    """The L2 policy of weights: first to be evicted, for they do not come again before all of L2 has been passed."""
    policy = reg.scalar(b64)
    ptx.inst.createpolicy.fractional.L2__evict_first.b64(policy, 1.0)
    return policy
