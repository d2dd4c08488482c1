"""Rung 16: registers go where they are needed, zeros are not written, stores stay out of the way.

Idea       Three small things that cost nothing.
           1. The producer's 128 threads hold 168 registers each and use a handful. They give them back
              (setmaxnreg.dec), and the consumers take them: room for deeper overlap, and larger tiles to come.
           2. 128 moves set the accumulators to zero for each tile. The first wgmma of a tile can overwrite them
              instead: its scale-d is a predicate, false for the first k-tile.
           3. C is written once and not read again. Stores marked for streaming (st.global.cs) are the first to leave
              the L2 cache, in which A and B are to stay.
Roles      producer   warpgroup 0, one thread, 40 registers
           consumer   warpgroups 1, 2, 232 registers: 64 x 256 each
Barriers   as on rung 15
Buffers    as on rung 15
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       747 TFLOP/s, from 734 (*Inside NVIDIA GPUs*, H100)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import (
    Persistent,
    TmaPipeline,
    each_consumer,
    persistent_grid,
    producer,
    store_accumulators,
    warpgroup_index,
    wgmma_accumulators,
    wgmma_stage,
)
from ...collective.tile import cluster
from ...collective.tile.raster import grouped
from ...isa.dtypes import bf16
from ...lang import Kernel, kernel, ptx, smem
from ..gemm_mainloop import ConsumerLoop, k_tiles, operand_loads
from ..other_gpus import other_rungs
from . import r15_multicast
from .operands import operands, result


@dataclass(frozen=True)
class Config(r15_multicast.Config):
    """As on rung 15, and the registers of each role; their sum over the warpgroups is at most 512."""

    producer_registers: int = 40
    consumer_registers: int = 232


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16 or f32, all row-major."""
    tile_m, tile_n, tile_k, stages, rows = config.tile_m, config.tile_n, config.tile_k, config.stages, config.rows

    @kernel(
        in_specs=operands(tile_m, tile_n, tile_k, slices=config.ctas, shared=config.shared),
        out_specs=(result(config.out),),
        grid=persistent_grid((tile_m, tile_n), config.ctas, config.shared),
        block=config.threads,
        cluster=(config.ctas, 1, 1),
        arch="sm_90a",
        elsewhere=other_rungs,
        name="registers",
    )
    def gemm(A, B, C):
        ring = TmaPipeline(
            stages=stages,
            consumers=config.consumers,
            ctas=config.ctas,
            a=smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a"),
            b=smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b"),
        )
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(config.group), config.ctas, config.shared)
        count, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup, config.producer_registers):
            state = ring.producer_state()
            for here in work.tiles():
                load_a, load_b = operand_loads(config.ctas, config.shared)
                for k_tile in ptx.range(count):
                    with ring.produce(state) as stage:
                        k = k_tile * tile_k
                        load_a(stage.a, A, (k, here.row), stage.full)
                        load_b(stage.b, B, (k, here.column), stage.full)
        for me in each_consumer(warpgroup, config.consumers, config.consumer_registers):
            loop = ConsumerLoop(ring, ring.consumer_state())
            acc = wgmma_accumulators(rows, tile_n)
            for here in work.tiles():
                for stage, accumulate in loop.stages(count):
                    wgmma_stage(acc, stage.a.rows(me * rows, rows), stage.b, accumulate=accumulate)
                loop.drain()
                store_accumulators(acc, C, here.row + me * rows, here.column, cache="cs")
        cluster.leave()

    return gemm
