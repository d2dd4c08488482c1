"""Y = the sum over a token's experts of weight x f(X Wᵀ), tokens and experts on several GPUs: one launch.

Every GPU has tokens X (tokens, K), `topk` experts with weights for each token, and the stacked (N, K) matrices of its
own experts. Rows go to the GPUs of their experts, are multiplied there, and return. This replaces a dispatch, a grouped
product and a combine.

Roles      all        count the tokens of each expert, tell all GPUs, sort them (`collective.tile.routing`)
           loader     warpgroup 0, thread 0: TMA loads of the tiles of this GPU's experts; waits for an expert's rows
           mover      warpgroup 0, warps 1 to 3: rows to their experts, one warp for each; then, token by token, the
                      weighted sum of what came back
           consumer   every other warpgroup: wgmma for its rows of a tile; each row back to where it came from

               all        [count][tell, place][meet]
               loader                         ....[tiles of expert 0, as soon as it is complete][of expert 1 ...
               mover                          [rows out, first experts of all GPUs first ...]...[sums of tokens ......]
               consumer                       ....[multiply][rows back, signal] [multiply][rows back, signal] ...

Order      The result does not depend on the order of arrival: a row's slot does not affect its value, and a token's
           sums are made in the order of its entries. Returned rows are rounded to the type of the result.
Signals    counter r                 GPU r has ended a launch                        1 of GPU r for each launch
           counter ranks + r         GPU r has told its counts                       1 of GPU r for each launch
           counter 2 ranks           a CTA of this GPU has placed its entries        1 of each CTA for each launch
           arrived + expert          rows of one of this GPU's experts               1 for each row, in this launch
           done + expert             tiles of an expert that has rows of this GPU    1 of each consumer for each tile
           The last two start at zero in each launch: CTA 0 clears them before it sends the counts, and no GPU adds to
           them before it has received the counts.
Barriers   full[s], empty[s]         the ring's
           bar 0                     all of the CTA: before the roles part, and when it is done
           bar 1..                   128 threads of a consumer: a tile is on its way back
Memory     see `Memory`. Capacity is for the worst case, in which all tokens go to one GPU
Scales     eight-bit products return unscaled, and are multiplied by the scales of their token and expert together with
           the weight: so there is no activation, and the type is bf16, whose range no sum exceeds
Limits     K, N multiples of 16 bytes; `MOST_EXPERTS` experts, a multiple of the ranks; the whole grid must be resident
           on every GPU, or a wait would not end
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...collective.epilogue.peer_rows import STAGED_BYTES, PeerRows
from ...collective.mma.fragment import pack, thread_of_warpgroup, unpack
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...collective.pipeline.tma import TmaPipeline
from ...collective.tile.groups import Groups
from ...collective.tile.peer_signals import STATE_WORDS, PeerSignals
from ...collective.tile.roles import WARP, WARPGROUP, each_consumer, producer_warpgroup, warpgroup_index
from ...collective.tile.routing import Received, Routing
from ...collective.tile.sizes import MOST_EXPERTS, MOST_GROUPS
from ...errors import ArgumentError
from ...isa.dtypes import b32, bf16, f32, s32, u32, u64
from ...lang import Kernel, Tile, kernel, ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.peers import PeerArrays
from ...lang.tile import ArrayHandle, Scalar
from ...lang.values import Register
from ..fields import builder
from ..gemm_mainloop import ConsumerLoop, k_tiles
from . import gemm
from .description import RING_BARRIER_BYTES, SHARED_BYTES, TILE_K_BYTES, Config, Fusion, Product
from .pushed_rows import copy

__all__ = ["CONFIG", "Memory", "build", "memory"]

CONFIG = Config(tile_m=128, tile_n=256, stages=4, epi_stages=1, ctas=1, pdl=False)
"""A tile of 128 x 256 for two consumers."""
ROLE_REGS = {1: (56, 232), 2: (56, 224)}
"""Registers per thread of the mover's warpgroup and of a consumer's, by the number of consumers."""
MOVERS = 3
"""Warps per CTA that move rows."""
_VECTOR = 8
"""16-bit elements in 16 bytes."""
_COUNT_BYTES = 4 * (5 * (MOST_EXPERTS + 1) + MOST_GROUPS + 1)


@dataclass(frozen=True)
class Memory:
    """The memory of a call on each GPU; peers access the first five. Words are u32. All memory except counts, rows,
    sources and returned rows must be zero before the first launch.

    Attributes:
        counts: words, (ranks, experts).
        rows: capacity for received rows of K elements; sources: words, two per row.
        returned: rows of N elements, one for each entry of this GPU's tokens.
        signals: words. order: words of this GPU, one for each entry. state: words of this GPU.
    """

    counts: tuple[int, int]
    rows: int
    sources: tuple[int, int]
    returned: int
    signals: int
    order: int
    state: int = STATE_WORDS


def memory(tokens: int, topk: int, experts: int, ranks: int, config: Config = CONFIG) -> Memory:
    """Return the memory for at most `tokens` tokens per GPU."""
    entries, local = tokens * topk, experts // ranks
    rows = ranks * entries + local * (config.tile_m - 1)
    return Memory((ranks, experts), rows, (rows, 2), entries, 2 * ranks + 1 + local + experts, entries)


@builder(keep=64)
def build(
    ranks: int,
    topk: int,
    product: Product = Product(),  # noqa: B008 - frozen
    config: Config = CONFIG,
    activation: str | None = None,
) -> Kernel:
    """The kernel for a group of `ranks` GPUs; called as
    kernel(x, ids, weights, w, counts, rows, sources, returned, signals, order, state, record, rank, tokens, out=y).

    x (capacity, K), ids (capacity, topk) s32, weights (capacity, topk) f32: the first `tokens` rows are filled; GPUs
    may differ in `tokens`, and may have none. w (experts / ranks x N, K): this GPU's matrices, stacked. Ids that name
    no expert add nothing. y (capacity, N): rows from `tokens` on are not written.
    The others: `memory(...)` for the most tokens that any GPU may have; record: `timeout_record.words(...)`.
    activation: f, applied to every element of the product; see `Fusion`.
    With eight-bit operands, scale_x (capacity,) and scale_w (experts,) of all GPUs' experts follow `record`, both f32.
    Raises ArgumentError if the configuration does not fit.
    """
    config.check(product)
    Fusion(activation=activation).check(product.out)
    check(product, config, ranks, topk, activation)
    of_rows = Tile.wgmma_a("Rows", "K", product.a, tile_m=config.tile_m, tile_k=product.tile_k, ragged=True)
    tile_k, whole, whole_k = product.tile_k, (1, _VECTOR), (1, 128 // product.a.bits)
    scaled = {"scale_x": Tile("Tokens", f32), "scale_w": Tile("Experts", f32)} if product.a.bits == 8 else {}

    @kernel(
        in_specs={
            "X": Tile("Tokens", "K", product.a, multiple=whole_k),
            "ids": Tile("Tokens", topk, s32),
            "weights": Tile("Tokens", topk, f32),
            "W": Tile.wgmma_b("AllN", "K", product.b, major="K", tile_n=config.tile_n, tile_k=tile_k, ragged=True),
            "counts": Tile(ranks, "Experts", u32, peers=ranks),
            "rows": Tile("Rows", "K", product.a, multiple=whole_k, box=of_rows.box, swizzle=of_rows.swizzle,
                         layout=of_rows.layout, peers=ranks),
            "sources": Tile("Rows", 2, u32, peers=ranks),
            "returned": Tile("Entries", "N", product.out, multiple=whole, peers=ranks),
            "signals": Tile("Signals", u32, peers=ranks),
            "order": Tile("Entries", u32, inout=True),
            "state": Tile(STATE_WORDS, u32, inout=True),
            "record": Tile("Record", u32, inout=True),
            "rank": Scalar(u32),
            "tokens": Scalar(u32),
            **scaled,
        },
        out_specs={"Y": Tile("Tokens", "N", product.out, multiple=whole, inout=True)},
        grid=ExpertGrid(ranks, topk, config),
        block=config.threads,
        arch="sm_90a",
        registers=gemm.launch_registers(config),
        name="expert_parallel",
    )  # fmt: skip
    def expert_parallel(
        X, ids, weights, W, counts, rows, sources, returned, signals, order, state, record, rank, tokens, Y, **scales
    ):
        ring = TmaPipeline(
            stages=config.stages,
            consumers=config.consumers,
            a=gemm.ring_tile(product.a, "K", config.tile_m, product.tile_k, config.stages, "ring.a"),
            b=gemm.ring_tile(product.b, "K", config.tile_n, product.tile_k, config.stages, "ring.b"),
        )
        signals = PeerSignals(signals, rank, state, record)
        route = Routing(
            ids,
            tokens,
            counts,
            order,
            signals,
            told=ranks,
            placed=2 * ranks,
            threads=config.threads,
            tile_m=config.tile_m,
        )
        back = PeerRows(returned, sources, rank, config.consumers, activation)
        work = Groups(Received(route), Rows(rows[0].shape[0], Y.shape[1]), (config.tile_m, config.tile_n))
        flags = Flags(signals, route, config.consumers)
        flags.clear(config.threads)
        route.clear_and_count()
        route.tell()
        route.place()
        route.meet()
        work.initialise()
        ring.initialise()
        num_k_tiles, warpgroup = k_tiles(X, product.tile_k), warpgroup_index()
        producer_regs, consumer_regs = ROLE_REGS[config.consumers]
        with producer_warpgroup(warpgroup, producer_regs):
            with ptx.if_(ptx.special.tid.x() == 0):
                produce, arrived = ring.producer_state(), rows.tma_desc(rank)
                for tile in work.tiles():
                    flags.wait_for_rows(tile.group)
                    ptx.fence.proxy_async()  # the rows were written through the generic proxy
                    column = tile.group * Y.shape[1] + tile.column
                    for k_tile in ptx.range(num_k_tiles):
                        with ring.produce(produce) as stage:
                            k = k_tile * product.tile_k
                            ptx.tma.load(stage.a, arrived, (k, tile.row), stage.full)
                            ptx.tma.load(stage.b, W.tma_desc(), (k, column), stage.full)
            with ptx.if_(ptx.special.tid.x() >= WARP):
                dispatch(X, rows, sources, route, flags)
                combine(Y, weights, returned, tokens, route, flags, work.columns, **scales)
            ptx.bar.sync(0, config.threads)
            with ptx.if_(ptx.special.tid.x() == 0):
                signals.finish()
        for me in each_consumer(warpgroup, config.consumers, consumer_regs):
            state_of_ring, first = ring.consumer_state(), me * config.rows
            acc = wgmma_accumulators(config.rows, config.tile_n, dtype=product.accumulator)
            loop = ConsumerLoop(ring, state_of_ring)
            for tile in work.tiles():
                for stage, accumulate in loop.stages(num_k_tiles):
                    wgmma_stage(acc, stage.a.rows(first, config.rows), stage.b, accumulate=accumulate)
                loop.drain()
                back.rows(acc, me, tile.row + first, tile.column, tile.end)
                ptx.bar.sync(1 + me, WARPGROUP)
                flags.tell_sources(tile.group)
            ptx.bar.sync(0, config.threads)

    return expert_parallel


def check(product: Product, config: Config, ranks: int, topk: int, activation: str | None = None) -> None:
    """Raise ArgumentError if no such kernel can be built."""
    fits = config.kernel_schedule == "cooperative" and (config.ctas, config.pdl, config.split_tail) == (1, False, False)
    sixteen = product.a.bits == product.out.bits == 16 and product.a is product.b
    eight = product.a.bits == product.b.bits == 8 and product.a.is_float and product.out is bf16 and activation is None
    if (
        not fits
        or not (sixteen or eight)
        or "MN" in (product.a_major, product.b_major)
        or config.consumers not in ROLE_REGS
    ):
        raise ArgumentError(
            f"experts on several GPUs cannot be built as {config.name()}",
            expected="a cooperative form of one CTA, up to 2 consumers, 16 bits, or 8, bf16 results and no activation",
            got=f"{product}, {config}, {activation}", code="configuration",
        )  # fmt: skip
    if ranks < 2 or topk < 1:
        raise ArgumentError(
            "experts on several GPUs need some of both", expected="2 ranks, 1 expert of a token, or more",
            got=(ranks, topk),
        )  # fmt: skip
    ring = config.stages * (config.tile_m + config.tile_n) * TILE_K_BYTES + RING_BARRIER_BYTES
    needed = ring + config.consumers * STAGED_BYTES + _COUNT_BYTES
    if needed > SHARED_BYTES:
        raise ArgumentError(
            f"{config.name()} leaves no shared memory to count rows", expected=f"at most {SHARED_BYTES}", got=needed
        )


@dataclass(frozen=True)
class ExpertGrid:
    """A grid of one CTA per SM; refused if memory is too small or sizes do not match."""

    ranks: int
    topk: int
    config: Config

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """Return the CTAs along x, y, z. Raises ArgumentError."""
        experts = dims["Experts"]
        if experts % self.ranks or not 0 < experts <= MOST_EXPERTS or dims["AllN"] != experts // self.ranks * dims["N"]:
            raise ArgumentError(
                "the experts are not divided evenly among the GPUs",
                expected=f"a multiple of {self.ranks}, at most {MOST_EXPERTS}, and N rows of W for each of its own",
                got={name: dims[name] for name in ("Experts", "AllN", "N")},
            )  # fmt: skip
        needed = memory(dims["Tokens"], self.topk, experts, self.ranks, self.config)
        if dims["Rows"] < needed.rows or dims["Entries"] < needed.returned or dims["Signals"] < needed.signals:
            raise ArgumentError(
                "the memory of a product of experts is too small", expected=f"sizes by memory(...): {needed}",
                got={name: dims[name] for name in ("Rows", "Entries", "Signals")},
            )  # fmt: skip
        return (machine.sms, 1, 1)


@dataclass
class Rows:
    """The part of a result that `Groups` uses: its number of rows and columns."""

    height: Register
    width: Register

    @property
    def shape(self) -> tuple[Register, Register]:
        """(rows, columns)."""
        return self.height, self.width


# -- signals of rows and of tiles ----------------------------------------------------------------------------------


class Flags:
    """The counters that start at zero in each launch."""

    def __init__(self, signals: PeerSignals, route: Routing, consumers: int) -> None:
        self.signals, self.route, self.consumers = signals, route, consumers
        self.first = 2 * route.ranks + 1

    def clear(self, threads: int) -> None:
        """Set the counters to zero, in all threads of a CTA, before the counts are sent."""
        with ptx.if_(ptx.special.ctaid.x() == 0):
            counters = self.signals.counters.pointer(self.signals.rank)
            count = self.route.local + self.route.experts
            for number in ptx.range(ptx.special.tid.x(), count, threads, unroll=False):
                place = ptx.addr(counters + (number + self.first).to(u64) * u32.bytes)
                ptx.store(place, reg.scalar(u32, init=0))

    def row_arrived(self, owner: Register, expert: Register) -> None:
        """Signal, in one thread, that a row of an expert has arrived on its GPU."""
        self.signals.add(owner, expert % self.route.local + self.first)

    def wait_for_rows(self, group: Register) -> None:
        """Wait, in one thread, until all rows of one of this GPU's experts have arrived."""
        expert = self.signals.rank * self.route.local + group
        self.signals.wait_until(group + self.first, self.route.rows(expert))

    def tell_sources(self, group: Register) -> None:
        """Signal all GPUs that have rows of the expert, in a consumer's threads, after its rows of a tile."""
        route, source = self.route, thread_of_warpgroup()
        expert = self.signals.rank * route.local + group
        with ptx.if_(source < route.ranks):
            with ptx.if_(route.has_rows(source, expert)):
                self.signals.add(source, route.local + expert + self.first)

    def wait_for_tiles(self, expert: Register, columns: Register) -> None:
        """Wait, in one thread, until all tiles of an expert have sent their rows back."""
        target = self.route.rows_of_tiles(expert) * columns * self.consumers
        self.signals.wait_until(self.route.local + expert + self.first, target)


# -- the mover -----------------------------------------------------------------------------------------------------


def _movers() -> tuple[Register, Register, Register]:
    """Return this warp's index among all moving warps, their number, and this lane."""
    thread = ptx.special.tid.x()
    warp = ptx.special.ctaid.x() * MOVERS + (thread // WARP - 1)
    return warp, ptx.special.nctaid.x() * MOVERS, thread & (WARP - 1)


def dispatch(X: ArrayHandle, rows: PeerArrays, sources: PeerArrays, route: Routing, flags: Flags) -> None:
    """Send the rows of this GPU's tokens to their experts, each by one warp."""
    warp, warps, lane = _movers()
    row_bytes, room = X.shape[1] * X.dtype.bytes, rows.shape[0]
    for turn in ptx.range(warp, route.sent(), warps, unroll=False):
        entry = ptx.load(u32, ptx.addr(route.order.pointer() + turn.to(u64) * u32.bytes))
        expert = route.expert(entry)
        owner, row = expert // route.local, route.target(turn, expert)
        with ptx.if_(row < room):
            with ptx.if_(lane == 0):
                said = sources.pointer(owner) + row.to(u64) * (2 * u32.bytes)
                ptx.store(ptx.addr(said), RegisterArray([route.rank, entry]))
            source = X.pointer() + (entry // route.topk).to(u64) * row_bytes
            target = rows.pointer(owner) + row.to(u64) * row_bytes
            copy(source, target, lane, row_bytes // 16, WARP)
        ptx.warp.sync()
        with ptx.if_(lane == 0):
            flags.row_arrived(owner, expert)


def combine(
    Y: ArrayHandle, weights: ArrayHandle, returned: PeerArrays, tokens: Register, route: Routing, flags: Flags,
    columns: Register, scale_x: ArrayHandle | None = None, scale_w: ArrayHandle | None = None,
) -> None:  # fmt: skip
    """Compute the sums of this GPU's tokens, each by one warp, as soon as its experts are done."""

    def number(of: ArrayHandle, at: Register) -> Register:
        return ptx.load(f32, ptx.addr(of.pointer() + at.to(u64) * f32.bytes))

    warp, warps, lane = _movers()
    pieces, topk, here = Y.shape[1] // _VECTOR, route.topk, returned.pointer(route.rank)
    row_bytes = Y.shape[1] * Y.dtype.bytes
    for token in ptx.range(warp, tokens, warps, unroll=False):
        first = token * topk
        with ptx.if_(lane == 0):
            for turn in ptx.range(topk, unroll=False):
                expert = route.expert(first + turn)
                with ptx.if_(expert < route.experts):
                    flags.wait_for_tiles(expert, columns)
        ptx.warp.sync()
        for piece in ptx.range(lane, pieces, WARP, unroll=False):
            sums = [reg.scalar(f32, init=0.0) for _ in range(_VECTOR)]
            for turn in ptx.range(topk, unroll=False):
                entry = first + turn
                expert = route.expert(entry)
                with ptx.if_(expert < route.experts):
                    weight = number(weights, entry)
                    if scale_x is not None and scale_w is not None:
                        weight = weight * (number(scale_x, token) * number(scale_w, expert))
                    words = ptx.load(b32, ptx.addr(here + entry.to(u64) * row_bytes + piece * 16), vector=4)
                    for at, word in enumerate(words):
                        for odd, value in enumerate(unpack(word, Y.dtype)):
                            total = sums[2 * at + odd]
                            total.set(ptx.math.fma(value, weight, total))
            packed = [pack(sums[at : at + 2], Y.dtype) for at in range(0, _VECTOR, 2)]
            ptx.store(ptx.addr(Y.pointer() + token.to(u64) * row_bytes + piece * 16), RegisterArray(packed))
