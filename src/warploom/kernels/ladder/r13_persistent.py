"""Rung 13: persistent CTAs; the producer loads the next tile while the consumers store this one.

Idea       One CTA on each SM for the whole product, walking over tiles of C. The barriers, the maps and the roles are
           set up once, and the ring does not stop at a tile's end: its stages hold the first k-tiles of the next tile
           while the consumers are still storing. Without it an SM's tensor core idles from the last wgmma of a CTA
           until the next CTA's first bytes have come.

               producer    tile 0 [0 1 2 ... n] tile 1 [0 1 2 3] waits      [4 ...
               consumers      tile 0 [wgmmas .......][store] tile 1 [wgmmas ....
Roles      as on rung 12
Barriers   as on rung 12; the phases run on from tile to tile
Buffers    as on rung 12
Order      bands of 8 tile rows, column by column: the tiles computed at one time share their rows of A and of B
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       660 TFLOP/s, from 610 (*Inside NVIDIA GPUs*, H100)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import (
    Persistent,
    TmaPipeline,
    each_consumer,
    persistent_grid,
    producer,
    set_zero,
    store_accumulators,
    warpgroup_index,
    wgmma_accumulators,
    wgmma_stage,
)
from ...collective.tile.raster import grouped
from ...isa.dtypes import bf16
from ...lang import Kernel, kernel, ptx, smem
from ..gemm_mainloop import ConsumerLoop, k_tiles
from ..other_gpus import other_rungs
from . import r12_two_consumers
from .operands import operands, result


@dataclass(frozen=True)
class Config(r12_two_consumers.Config):
    """As on rung 12, and how many tile rows a band of the order has."""

    group: int = 8


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16 or f32, all row-major."""
    return persistent("persistent", config, every_thread=True)


def persistent(name: str, config: Config, *, every_thread: bool) -> Kernel:
    """The kernel of rungs 13 and 14."""
    tile_m, tile_n, tile_k, stages, rows = config.tile_m, config.tile_n, config.tile_k, config.stages, config.rows

    @kernel(
        in_specs=operands(tile_m, tile_n, tile_k),
        out_specs=(result(config.out),),
        grid=persistent_grid((tile_m, tile_n)),
        block=config.threads,
        arch="sm_90a",
        elsewhere=other_rungs,
        name=name,
    )
    def gemm(A, B, C):
        ring = TmaPipeline(
            stages=stages,
            consumers=config.consumers,
            every_thread=every_thread,
            a=smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a"),
            b=smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b"),
        )
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(config.group))
        count, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup):
            state = ring.producer_state()
            for here in work.tiles():
                for k_tile in ptx.range(count):
                    with ring.produce(state) as stage:
                        k = k_tile * tile_k
                        ptx.tma.load(stage.a, A.tma_desc(), (k, here.row), stage.full)
                        ptx.tma.load(stage.b, B.tma_desc(), (k, here.column), stage.full)
        for me in each_consumer(warpgroup, config.consumers):
            loop = ConsumerLoop(ring, ring.consumer_state())
            acc = wgmma_accumulators(rows, tile_n)
            for here in work.tiles():
                set_zero(acc)
                for stage, _ in loop.stages(count):
                    wgmma_stage(acc, stage.a.rows(me * rows, rows), stage.b)
                loop.drain()
                store_accumulators(acc, C, here.row + me * rows, here.column)

    return gemm
