"""Rung 20: ping-pong; two tiles at a time, one multiplied while the other is stored.

Idea       On the rungs before both consumers reach the end of a tile together, and while they convert and store, the
           tensor core has little to do. Now each consumer has a tile of its own, 128 x 192, and they take turns:

               consumer 0   [multiply tile 0][store tile 0  ]    [multiply tile 2][store tile 2
               consumer 1                    [multiply tile 1][store tile 1  ]   [multiply tile 3]

           A turn is passed on when the last wgmmas are issued, so the tensor core goes from one tile to the next
           without a gap. The price is a smaller tile: more bytes loaded for each product. Short products (small K),
           where storing takes a large part of the time, win; long ones may not.
Roles      producer   warpgroup 0, one thread, 40 registers: the k-tiles of all tiles, in order
           consumer   warpgroups 1, 2, 232 registers: every other tile; each steps over the other's k-tiles
Barriers   full[s]    1 arrival + bytes of the whole stage       both CTAs' producers -> the stage's consumer
           empty[s]   2 arrivals: 1 consumer of 2 CTAs           -> both producers (remote, relaxed)
           bar 1, 2   128 threads of a consumer, twice for each box of its store
           bar 3, 4   the turns: 128 wait, 128 arrive
           cluster    before the first remote access, and at the end
Ring       5 stages of A 128 x 64 and B 192 x 64 bf16, 200 KiB
Buffers    the ring; 2 boxes of 64 x 64 bf16, one for each consumer, 16 KiB: nobody waits for a store that is hidden
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16
Seed       no figure in TFLOP/s; *Evolving Ampere to Hopper* and *CUTLASS Ping-Pong* describe the schedule
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import (
    Persistent,
    TmaPipeline,
    TmaStore,
    Turns,
    each_consumer,
    persistent_grid,
    producer,
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
from . import r17_tma_store
from .operands import operands, result_in_boxes

PLAYERS = 2
TURN_BARRIERS = 3
"""First of the two named barriers of the turns; those below are the stores'."""


@dataclass(frozen=True)
class Config(r17_tma_store.Config):
    """As on rung 17; the tile is one consumer's, and there are two of them."""

    tile_n: int = 192
    stages: int = 5
    slots: int = 1


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @kernel(
        in_specs=operands(tile_m, tile_n, tile_k, slices=config.ctas, shared=config.shared),
        out_specs=(result_in_boxes(),),
        grid=persistent_grid((tile_m, tile_n), config.ctas, config.shared),
        block=config.threads,
        cluster=(config.ctas, 1, 1),
        arch="sm_90a",
        elsewhere=other_rungs,
        pdl=config.pdl,
        name="ping_pong",
    )
    def gemm(A, B, C):
        ring = TmaPipeline(
            stages=stages,
            consumers=1,
            ctas=config.ctas,
            a=smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a"),
            b=smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b"),
        )
        out = TmaStore(C, PLAYERS, slots=config.slots)
        turns = Turns(TURN_BARRIERS)
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(config.group), config.ctas, config.shared)
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
        for me in each_consumer(warpgroup, PLAYERS, config.consumer_registers):
            out.begin()
            state = ring.consumer_state()
            loop = ConsumerLoop(ring, state)
            acc = wgmma_accumulators(tile_m, tile_n)
            turns.begin(me)
            if me:
                ring.skip(state, count)
            for here in work.tiles(first=me, every=PLAYERS):
                turns.wait(me)
                for stage, accumulate in loop.stages(count):
                    wgmma_stage(acc, stage.a, stage.b, accumulate=accumulate)
                turns.pass_on(me)
                loop.drain()
                ring.skip(state, count)
                out.store(acc, me, here.row, here.column)
            out.finish()
        cluster.leave()

    return gemm
