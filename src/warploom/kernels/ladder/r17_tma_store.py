"""Rung 17: asynchronous stores; C leaves through shared memory, and TMA carries it while the next tile begins.

Idea       A thread's own stores are 4 bytes in each of 64 places, eight rows at a time, and the consumer waits until
           the last of them is issued. Now a consumer writes a box of 64 x 64 into shared memory, where a row of the
           box is 128 bytes, and one thread hands it to TMA: whole lines to memory, no addresses to calculate, edges
           clipped, and the consumer goes on with the next box, and with the next tile, while it travels.

               consumer   [box 0][box 1][box 2][box 3][wgmmas of the next tile ...
               TMA               [store 0][store 1][store 2][store 3]

           Two boxes for each consumer: one is written while the other is read.
Roles      as on rung 16; one thread of each consumer starts its stores
Barriers   as on rung 16, and
           bar 1, 2   128 threads of a consumer, twice for each box: the slot is free; the box is written
Buffers    the ring, 192 KiB; 2 x 2 boxes of 64 x 64 bf16, 32 KiB
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16
Seed       758 TFLOP/s, from 747 (*Inside NVIDIA GPUs*, H100)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import (
    Persistent,
    TmaPipeline,
    TmaStore,
    each_consumer,
    persistent_grid,
    producer,
    warpgroup_index,
    wgmma_accumulators,
    wgmma_stage,
)
from ...collective.tile import cluster
from ...collective.tile.raster import Order, grouped
from ...isa.dtypes import bf16
from ...lang import Kernel, kernel, ptx, smem
from ..gemm_mainloop import ConsumerLoop, k_tiles, operand_loads
from ..other_gpus import other_rungs
from . import r16_registers
from .operands import operands, result_in_boxes


@dataclass(frozen=True)
class Config(r16_registers.Config):
    """As on rung 16, and how many boxes of each consumer may be on their way.

    `pdl`: the kernel may start while the one before it in the stream ends (programmatic dependent launch): it sets
    itself up, waits before its first load, and lets the next one start after its last.
    """

    slots: int = 2
    pdl: bool = False


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16, all row-major."""
    return cooperative("tma_store", config, grouped(config.group), matrices=False)


def cooperative(name: str, config: Config, order: Order, *, matrices: bool) -> Kernel:
    """The kernel of rungs 17 to 19: the order of the tiles, and how a box is written, are theirs."""
    tile_m, tile_n, tile_k, stages, rows = config.tile_m, config.tile_n, config.tile_k, config.stages, config.rows

    @kernel(
        in_specs=operands(tile_m, tile_n, tile_k, slices=config.ctas, shared=config.shared),
        out_specs=(result_in_boxes(),),
        grid=persistent_grid((tile_m, tile_n), config.ctas, config.shared),
        block=config.threads,
        cluster=(config.ctas, 1, 1),
        arch="sm_90a",
        elsewhere=other_rungs,
        pdl=config.pdl,
        name=name,
    )
    def gemm(A, B, C):
        ring = TmaPipeline(
            stages=stages,
            consumers=config.consumers,
            ctas=config.ctas,
            a=smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a"),
            b=smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b"),
        )
        out = TmaStore(C, config.consumers, slots=config.slots, matrices=matrices)
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), order, config.ctas, config.shared)
        count, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup, config.producer_registers):
            state = ring.producer_state()
            if config.pdl:
                ptx.griddepcontrol.wait()
            for here in work.tiles():
                load_a, load_b = operand_loads(config.ctas, config.shared)
                for k_tile in ptx.range(count):
                    with ring.produce(state) as stage:
                        k = k_tile * tile_k
                        load_a(stage.a, A, (k, here.row), stage.full)
                        load_b(stage.b, B, (k, here.column), stage.full)
            if config.pdl:
                ptx.griddepcontrol.launch_dependents()
        for me in each_consumer(warpgroup, config.consumers, config.consumer_registers):
            out.begin()
            loop = ConsumerLoop(ring, ring.consumer_state())
            acc = wgmma_accumulators(rows, tile_n)
            for here in work.tiles():
                for stage, accumulate in loop.stages(count):
                    wgmma_stage(acc, stage.a.rows(me * rows, rows), stage.b, accumulate=accumulate)
                loop.drain()
                out.store(acc, me, here.row + me * rows, here.column)
            out.finish()
        cluster.leave()

    return gemm
