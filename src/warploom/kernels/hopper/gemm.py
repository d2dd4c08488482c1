"""The finished Hopper GEMM: persistent, warp-specialised, any tile, any layout, what follows fused into its end.

Roles      producer   warpgroup 0, one thread: TMA loads of the k-tiles of all the CTA's tiles, in order; with constant
                      weights two threads, one for each operand, of which that of B waits for no kernel
           consumer   every other warpgroup: wgmma, then conversion and TMA store of its rows
Forms      cooperative   the consumers share a tile, each with its rows; stores go on under the next tile's wgmmas

               consumer 0   [multiply rows 0.. ][write][multiply ...
               consumer 1   [multiply rows n/2..][write][multiply ...

           ping_pong     each has a tile of its own, and the tensor core is passed on when the last wgmma is issued

               consumer 0   [multiply tile 0][write tile 0    ][multiply tile 2]
               consumer 1                    [multiply tile 1][write tile 1    ]

           staggered     as cooperative, each consumer with two blocks of 64 rows, whose ends are apart: one is written
                         while the other is multiplied (`hopper.staggered`)
Barriers   full[s]    1 arrival of each producer + bytes     producers of the cluster -> consumers
           empty[s]   1 arrival for each consumer that reads the stage, of each CTA    -> producers (remote, relaxed)
           bar 1..    128 threads of a consumer, twice for each of its store boxes
           beside     where a gate or an addend is fused: 1 arrival + bytes of its boxes   TMA -> one consumer
           turns      ping-pong: two named barriers behind these, 128 wait and 128 arrive
           drained, received   the split tail's (`collective.reduce.pair_exchange`)
           cluster    before the first remote access, and at the end
Ring       `stages` stages of A tile_m x 128 bytes and B tile_n x 128 bytes
Limits     any M, N, K that TMA can address: rows of A, B and D start at multiples of 16 bytes, those of D are whole
           16-byte pieces (`overhang`: or what lies behind them is nobody else's)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from ...collective import (
    WGMMA_ROWS,
    Persistent,
    Place,
    State,
    TmaPipeline,
    TmaStore,
    Turns,
    each_consumer,
    each_producer,
    persistent_grid,
    warpgroup_index,
    wgmma_accumulators,
)
from ...collective.epilogue.apply import FusedEnd
from ...collective.epilogue.smem_tile import result_tile
from ...collective.epilogue.spec import fused_arguments
from ...collective.reduce.pair_exchange import TailExchange
from ...collective.tile import cluster as clusters
from ...collective.tile.raster import grouped
from ...isa.dtypes import DType
from ...lang import Kernel, Tile, kernel, ptx, smem
from ...lang.arrays import RegisterArray
from ...lang.values import Register
from ..gemm_mainloop import k_tiles, load_tiles, multiply_tiles
from ..other_gpus import other_rungs
from .description import Config, Fusion, Product
from .staggered import LEAST, Staggered

REGISTERS = {1: (40, 232), 2: (40, 232), 3: (32, 160)}
"""Registers of a producer's and a consumer's thread, by the number of consumers."""
REGISTERS_LARGE = (24, 240)
"""The same for two consumers with more than this many accumulators each, or, where something is fused into the end:"""
LARGE = 192
LARGE_FUSED = 144
AT_LAUNCH = {1: 232, 2: 168, 3: 128}
"""Registers of every thread at launch: as many as fit a CTA's threads, and no more than a consumer asks for."""
WIDE = {1: 208, 2: 112, 3: 80}
"""Columns of a tile from which ptxas finds that number by itself, for two CTAs with such a wgmma do not fit a
multiprocessor. With fewer it ignores setmaxnreg (note C7508) unless the text says the number, and then what is the same
in a whole role goes through ordinary registers: 40 times `R2UR` instead of 16 in `cooperative_128x96x6_g8`."""
PRODUCED: dict[int, tuple[str | None, ...]] = {1: (None,), 2: ("a", "b")}
"""What each of so many producers brings."""
KEPT = 40
"""Registers of a consumer that are neither accumulators nor free for what its end loads: addresses, counters."""


@lru_cache(maxsize=256)
def build(
    product: Product = Product(),  # noqa: B008 - frozen
    config: Config = Config(),  # noqa: B008
    fusion: Fusion = Fusion(),  # noqa: B008
    overhang: bool = False,
) -> Kernel:
    """D = A B, then what `fusion` says; see `description`.

    Called as kernel(a, b, ..., out=d) with a (M, K) or, MN-major, (K, M); b (N, K) or (K, N); d (M, N); between them
    what `fused_arguments` names: arrays, then numbers.
    `overhang`: the caller sees to it that nobody else uses what lies behind a row of d, up to whole 16 bytes, which is
    written too; N may then be any. The text is the same.
    Raises ArgumentError where the configuration does not fit.
    """
    config.check(product, fusion)
    more = fused_arguments(fusion, product.out)
    names = ("A", "B", *more, "D")

    def gemm(*handles):
        given = dict(zip(names, handles, strict=True))
        parts = Parts.make(given, product, config, fusion)
        warpgroup = warpgroup_index()
        few, many = registers(config, not fusion.empty)
        for me in each_producer(warpgroup, parts.ring.producers, few):
            produce(parts, PRODUCED[parts.ring.producers][me])
        for me in each_consumer(warpgroup, config.consumers, many):
            parts.out.begin()
            CONSUME[config.form](parts, me)
            parts.out.finish()
        clusters.leave()

    gemm.__signature__ = signature(names)  # type: ignore[attr-defined]
    return kernel(
        in_specs=(operand_a(product, config), operand_b(product, config), *more.values()),
        out_specs=(result(product, overhang=overhang, over="C" if fusion.addend else ""),),
        grid=persistent_grid((config.tile_m, config.tile_n), config.ctas, config.shared),
        block=config.threads,
        cluster=(config.ctas, 1, 1),
        arch="sm_90a",
        registers=at_launch(config),
        elsewhere=other_rungs,
        pdl=config.pdl,
        name=config.form,
    )(gemm)


def signature(names: Sequence[str]) -> inspect.Signature:
    """Of a kernel's function whose arguments depend on what is fused into it."""
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])


def registers(config: Config, fused: bool = False) -> tuple[int, int]:
    """Registers of a producer's and of a consumer's thread."""
    if config.consumers == 2 and config.accumulators > (LARGE_FUSED if fused else LARGE):
        return REGISTERS_LARGE
    return REGISTERS[config.consumers]


def at_launch(config: Config) -> int | None:
    """What the text says of the registers at launch (.maxnreg); None where ptxas finds it by itself."""
    return AT_LAUNCH[config.consumers] if config.tile_n < WIDE[config.consumers] else None


# -- arguments -----------------------------------------------------------------------------------------------------


def operand_a(product: Product, config: Config) -> Tile:
    """A (M, K), or (K, M) where it is MN-major; the tile that is multicast comes in slices."""
    rows = config.tile_m
    if product.a_major == "MN":
        return Tile.wgmma_a("K", "M", product.a, major="MN", tile_m=rows, tile_k=product.tile_k, ragged=True)
    if config.shared == "a":
        rows //= config.ctas
    return Tile.wgmma_a("M", "K", product.a, tile_m=rows, tile_k=product.tile_k, ragged=True)


def operand_b(product: Product, config: Config) -> Tile:
    """B (N, K), or (K, N) where it is MN-major."""
    rows = config.tile_n
    if product.b_major == "MN":
        return Tile.wgmma_b("K", "N", product.b, major="MN", tile_n=rows, tile_k=product.tile_k, ragged=True)
    if config.shared == "b":
        rows //= config.ctas
    return Tile.wgmma_b("N", "K", product.b, major="K", tile_n=rows, tile_k=product.tile_k, ragged=True)


def result(product: Product, rows: str = "M", overhang: bool = False, over: str = "") -> Tile:
    """D (M, N), stored by TMA in whole 16-byte pieces of its rows, which begin at multiples of 16 bytes."""
    return result_tile(rows, "N", product.out, order="rows", overhang=overhang, over=over)


def ring_tile(dtype: DType, major: str, rows: int, tile_k: int, stages: int, name: str) -> smem.WgmmaTile:
    """One operand's stages."""
    shape = (rows, tile_k) if major == "K" else (tile_k, rows)
    return smem.wgmma_tile(dtype, shape, major=major, stages=stages, name=name)


# -- roles ---------------------------------------------------------------------------------------------------------


@dataclass
class Parts:
    """What the roles share."""

    config: Config
    product: Product
    ring: TmaPipeline
    out: TmaStore
    exchange: TailExchange | None
    given: Mapping[str, Any]
    """The kernel's arguments by name."""

    @classmethod
    def make(cls, given: Mapping[str, Any], product: Product, config: Config, fusion: Fusion) -> Parts:
        """Allocate shared memory, initialise the barriers, and meet."""
        tile_k, stages = product.tile_k, config.stages
        ring = TmaPipeline(
            stages=stages,
            consumers=1 if config.form == "ping_pong" else config.consumers,
            ctas=config.ctas,
            shared=config.shared,
            producers=2 if config.constant_weights else 1,
            a=ring_tile(product.a, product.a_major, config.tile_m, tile_k, stages, "ring.a"),
            b=ring_tile(product.b, product.b_major, config.tile_n, tile_k, stages, "ring.b"),
        )
        end = None
        if not fusion.empty:
            spare = max(registers(config, True)[1] - config.accumulators - KEPT, 0)
            end = FusedEnd(fusion, given["D"], given, spare=spare, pdl=config.pdl)
        out = TmaStore(given["D"], config.consumers, slots=config.slots, transform=end)
        exchange = TailExchange(ring, config.accumulators) if config.split_tail else None
        ring.initialise(exchange.initialise if exchange is not None else None)
        return cls(config, product, ring, out, exchange, given)

    def work(self) -> Persistent:
        """The CTA's tiles. Each role calculates them for itself, and the tail again: registers are scarce."""
        config = self.config
        return Persistent(
            self.given["D"], (config.tile_m, config.tile_n), grouped(config.group), config.ctas, config.shared,
            split_tail=config.split_tail,
        )  # fmt: skip

    def count(self) -> Register:
        """k-tiles of a tile."""
        count = k_tiles(self.given["A"], self.product.tile_k, self.product.a_major)
        return ptx.select(count < LEAST, LEAST, count) if self.config.form == "staggered" else count

    def half(self) -> Register:
        """k-tiles of each CTA in the split tail; those behind the end are zeros."""
        return (self.count() + 1) // 2


def produce(parts: Parts, only: str | None = None) -> None:
    """One thread: the k-tiles of all tiles, in order. `only`: those of one operand; B does not wait for the kernel
    before this one, which has promised not to write it."""
    A, B = parts.given["A"], parts.given["B"]
    ring, work, count = parts.ring, parts.work(), parts.count()
    state = ring.producer_state()
    if parts.config.pdl and only != "b":
        ptx.griddepcontrol.wait()
    for here in work.tiles():
        load_tiles(ring, state, A, B, here, count, only=only)
    if parts.exchange is not None:
        with parts.work().tail() as here:
            half = parts.half()
            load_tiles(ring, state, A, B, here, half, ptx.special.cluster_ctarank() * half, together=False)
    if parts.config.pdl and only != "b":
        ptx.griddepcontrol.launch_dependents()


def cooperative(parts: Parts, me: int) -> None:
    """A consumer's rows of every tile."""
    ring, out, config = parts.ring, parts.out, parts.config
    state, acc, first = ring.consumer_state(), accumulators(parts), me * config.rows
    count = parts.count()

    def store(here: Place, *, ahead: bool = False) -> None:
        out.store(acc, me, here.row + first, here.column, ahead=ahead)

    for here in parts.work().tiles():
        multiply_tiles(ring, state, acc, first, count, overwrite=True, issued=beside(parts, acc, me, here, first))
        store(here, ahead=True)
    tail(parts, me, state, acc, store)


def staggered(parts: Parts, me: int) -> None:
    """As `cooperative`, with the ends of its two blocks of rows apart."""
    out, config = parts.out, parts.config
    state, acc, first = parts.ring.consumer_state(), accumulators(parts), me * config.rows

    def store(block: RegisterArray, here: Place, row: int) -> None:
        out.store([block], me, here.row + (first + row), here.column)

    def store_both(here: Place) -> None:
        store(acc[0], here, 0)
        store(acc[1], here, WGMMA_ROWS)

    Staggered(parts.ring, state, parts.work(), acc[0], acc[1], first, parts.count(), store).run()
    tail(parts, me, state, acc, store_both)


def tail(parts: Parts, me: int, state: State, acc: list[RegisterArray], store: Callable[[Place], None]) -> None:
    """The tile that two CTAs multiply together, if the schedule has one; stored as the role stores all of them."""
    if parts.exchange is None:
        return
    with parts.work().tail() as here:
        multiply_tiles(parts.ring, state, acc, me * parts.config.rows, parts.half(), overwrite=True)
        with ptx.if_(parts.exchange.combine(acc, me)):
            store(here)


def ping_pong(parts: Parts, me: int) -> None:
    """Every other tile, whole; the other consumer's k-tiles are stepped over."""
    ring, out = parts.ring, parts.out
    turns = Turns(1 + parts.config.consumers)
    state, acc, count = ring.consumer_state(), accumulators(parts), parts.count()
    turns.begin(me)
    if me:
        ring.skip(state, count)
    for here in parts.work().tiles(first=me, every=parts.config.consumers):
        turns.wait(me)
        then = beside(parts, acc, me, here, 0)
        multiply_tiles(ring, state, acc, 0, count, overwrite=True, issued=partial(pass_on, turns, me, then))
        ring.skip(state, count)
        out.store(acc, me, here.row, here.column, ahead=True)


def pass_on(turns: Turns, me: int, then: Callable[[], None] | None) -> None:
    """The other consumer's turn begins; what comes then is this one's own."""
    turns.pass_on(me)
    if then is not None:
        then()


def beside(parts: Parts, acc: list[RegisterArray], me: int, here: Place, first: int) -> Callable[[], None] | None:
    """What is done when a tile's last wgmmas are issued: boxes of a gate and an addend begin to come, if there are."""
    if parts.out.beside is None:
        return None
    return lambda: parts.out.prefetch(acc, me, here.row + first, here.column)


def accumulators(parts: Parts) -> list[RegisterArray]:
    """One array for each 64 of a consumer's rows."""
    return wgmma_accumulators(parts.config.rows, parts.config.tile_n, dtype=parts.product.accumulator)


CONSUME: dict[str, Callable[[Parts, int], None]] = {
    "cooperative": cooperative,
    "ping_pong": ping_pong,
    "staggered": staggered,
}
"""What a consumer does, by form."""
