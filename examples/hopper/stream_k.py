"""Whole waves of tiles, and stream-K for the rest: every CTA multiplies the same number of k-tiles.

Idea       A persistent kernel computes tiles in waves, and the last one is rarely full. Here all whole waves but one
           are computed tile by tile. The k-tiles of that wave and of the partial one form a sequence, cut into equal
           parts, one per CTA. Most of these tiles are cut, so two or three CTAs have partial sums of one tile. Each
           writes its own to a workspace in memory and increments a counter. The last to arrive adds them up in the
           order of k, its own from registers where possible. No CTA waits for another.
Ways       stream_k        as above
           split_k         only the partial wave is shared: several CTAs per tile, with equal splits of K
           data_parallel   nothing is shared: one more wave
           Three schedules with one interface: `rest.py` has them, and nothing else in this file depends on the choice.
Roles      producer   warpgroup 0, one thread     TMA loads of the k-tiles of all shares, in order
           consumer   warpgroups 1, 2             64 x 256 each: wgmma; whole tiles are stored, partial sums shared
Barriers   full[s]    1 arrival + bytes           producer -> both consumers
           empty[s]   2 arrivals                  consumers -> producer
           bar 1, 2   128 threads of a consumer: around its counting, and twice for each of its store boxes
Ring       4 stages of A 128 x 64 and B 256 x 64 bf16, 192 KiB; it runs on between two shares
Workspace  sums       f32, two tiles for each CTA: it begins at most one that it does not finish, and finishes at most
                      one that it did not begin
           counters   u32, one for each shared tile and consumer; zero before and after every launch (atom.inc wraps)
Timeline   5 tiles of 12 k-tiles on 4 CTAs

               data_parallel  0 [tile 0      ][tile 4      ]      stream_k  0 [tile 0      ][1 ]
                              1 [tile 1      ]                              1 [tile 1    ][2     ]
                              2 [tile 2      ]                              2 [tile 2  ][3       ]
                              3 [tile 3      ]                              3 [3 ][tile 4        ] add
Limits     any M; N and K multiples of 8; C row-major
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from examples.hopper.rest import WAYS, Rest, RestFixup
from warploom.collective.epilogue.arguments import result_tile
from warploom.collective.epilogue.tma_store import TmaStore
from warploom.collective.mma.wgmma import WGMMA_ROWS, wgmma_accumulators, wgmma_stage
from warploom.collective.pipeline.tma import TmaPipeline
from warploom.collective.reduce.split_k import NoReduce
from warploom.collective.tile.raster import grouped
from warploom.collective.tile.roles import WARPGROUP, each_consumer, producer, warpgroup_index
from warploom.errors import ArgumentError
from warploom.isa.dtypes import bf16, f32, u32
from warploom.isa.instructions.wgmma import FLOAT_N
from warploom.kernels.fallback_hint import other_rungs
from warploom.kernels.fields import check_fields
from warploom.kernels.gemm_mainloop import ConsumerLoop, k_tiles
from warploom.lang import Kernel, Tile, kernel, ptx, smem
from warploom.lang.tile import ArrayHandle

CONSUMERS = 2
TILE_M, TILE_K = CONSUMERS * WGMMA_ROWS, 64
BAND = 8
"""Rows of tiles in a band of the raster."""
PRODUCER_REGISTERS, CONSUMER_REGISTERS, LAUNCH_REGISTERS = 40, 232, 168
MOST_CTAS = 132
"""Most CTAs of a launch: the multiprocessors of an H100 or H200. The workspace has space for as many."""


@dataclass(frozen=True)
class Config:
    """Configuration of a product.

    Attributes:
        way: "stream_k", "split_k" or "data_parallel".
        tile_n: columns of a tile, a multiple of 16 to 256.
        stages: stages of the ring.
        epi_stages: store boxes for each consumer.
    """

    way: str = "stream_k"
    tile_n: int = 256
    stages: int = 4
    epi_stages: int = 1

    def check(self) -> None:
        """Raise ArgumentError if no kernel can be built from this."""
        check_fields(self, {"tile_n": 16, "stages": 2}, {"way": WAYS})
        if self.tile_n not in FLOAT_N or self.tile_n % 16:
            raise ArgumentError("no tile has that many columns", expected="a multiple of 16 to 256", got=self.tile_n)


@dataclass(frozen=True)
class Grid:
    """The grid rule: one CTA per multiprocessor, as far as the workspace allows."""

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        return (min(machine.sms, MOST_CTAS), 1, 1)


@lru_cache(maxsize=64)
def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C (M, N) = A (M, K) @ Bᵀ with B (N, K), all bf16 and row-major; sums in f32.

    Called as kernel(a, b, out=c); the runtime allocates the workspace, one per stream.
    Raises ArgumentError if the configuration does not fit.
    """
    config.check()
    tile_n, stages = config.tile_n, config.stages

    @kernel(
        in_specs={
            "A": Tile.wgmma_a("M", "K", bf16, tile_m=TILE_M, tile_k=TILE_K, ragged=True),
            "B": Tile.wgmma_b("N", "K", bf16, major="K", tile_n=tile_n, tile_k=TILE_K, ragged=True),
            **workspace(config),
        },
        out_specs={"C": result_tile("M", "N", bf16, order="rows")},
        grid=Grid(),
        block=(1 + CONSUMERS) * WARPGROUP,
        arch="sm_90a",
        fallback_hint=other_rungs,
        registers=LAUNCH_REGISTERS,
        pdl=True,
        name=config.way,
    )
    def gemm(A, B, C, **memory):
        ring = TmaPipeline(
            stages=stages,
            consumers=CONSUMERS,
            a=smem.wgmma_tile(bf16, (TILE_M, TILE_K), stages=stages, name="ring.a"),
            b=smem.wgmma_tile(bf16, (tile_n, TILE_K), stages=stages, name="ring.b"),
        )
        out = TmaStore(C, CONSUMERS, epi_stages=config.epi_stages)
        work = Rest(C, (TILE_M, tile_n), k_tiles(A, TILE_K), grouped(BAND), config.way)
        shared = (memory["sums"], memory["counters"], work, CONSUMERS) if memory else ()
        fixup = RestFixup(*shared) if shared else NoReduce()
        ring.initialise()
        warpgroup = warpgroup_index()
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(ring, work, A, B)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(ring, work, fixup, out, me)

    return gemm


def workspace(config: Config) -> dict[str, Tile]:
    """The arrays for shared sums, if any; the runtime allocates them and zeroes them once."""
    if config.way == "data_parallel":
        return {}
    return {
        "sums": Tile(2 * MOST_CTAS, TILE_M * config.tile_n, f32, workspace=True),
        "counters": Tile(2 * MOST_CTAS * CONSUMERS, u32, workspace=True),
    }


def produce(ring: TmaPipeline, work: Rest, A: ArrayHandle, B: ArrayHandle) -> None:
    """The producer: loads the k-tiles of this CTA's shares, in order; the ring runs on between two of them."""
    state = ring.producer_state()
    ptx.griddepcontrol.wait()
    for share in work.shares():
        for number in ptx.range(share.num_k_tiles):
            k = (share.first + number) * TILE_K
            with ring.produce(state) as stage:
                ptx.tma.load(stage.a, A.tma_desc(), (k, share.place.row), stage.full)
                ptx.tma.load(stage.b, B.tma_desc(), (k, share.place.column), stage.full)
    ptx.griddepcontrol.launch_dependents()


def consume(ring: TmaPipeline, work: Rest, fixup: RestFixup | NoReduce, out: TmaStore, me: int) -> None:
    """Consumer `me`: its 64 rows of every share. It stores whole tiles, and a shared tile if it arrives last."""
    first_row, loop = me * WGMMA_ROWS, ConsumerLoop(ring, ring.consumer_state())
    (acc,) = wgmma_accumulators(WGMMA_ROWS, work.tile[1])
    ptx.griddepcontrol.wait()  # the kernel before this one may use the same workspace
    for share in work.shares():
        for stage, accumulate in loop.stages(share.num_k_tiles):
            wgmma_stage([acc], stage.a.rows(first_row, WGMMA_ROWS), stage.b, accumulate=accumulate)
        loop.drain()
        for _ in fixup.combine(acc, me, share):
            out.store([acc], me, share.place.row + first_row, share.place.column)
    out.finish()
