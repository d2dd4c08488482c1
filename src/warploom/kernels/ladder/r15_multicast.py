"""Rung 15: clusters of two; what both CTAs need is fetched once.

Idea       Two CTAs whose tiles stand one above the other need the same B. As a cluster they share the work: each loads
           half of B's tile and TMA multicasts it into both, at the same place. A cluster fetches 2 x A and 1 x B where
           two CTAs fetched 2 x A and 2 x B: a third of the bytes less from L2.

               CTA 0   A0 128 x 64      B rows 0-127    -> both
               CTA 1   A1 128 x 64      B rows 128-255  -> both

           A stage may be filled again only when the consumers of both CTAs have read it, since both halves of B go to
           both. So each consumer tells both producers, and no CTA ends while another may still tell it something.
Roles      as on rung 13, in each of two CTAs; each multicasts its half of B
Barriers   full[s]    1 arrival + bytes of the whole stage       both CTAs' producers -> consumers
           empty[s]   4 arrivals: 2 consumers of 2 CTAs          consumers -> both producers (remote, relaxed)
           cluster    before the first remote access, and at the end
Ring       4 stages of A 128 x 64 and B 256 x 64 bf16, 192 KiB
Buffers    the ring
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       734 TFLOP/s, from 704 (*Inside NVIDIA GPUs*, H100)
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
from ...collective.tile import cluster
from ...collective.tile.raster import grouped
from ...isa.dtypes import bf16
from ...lang import Kernel, kernel, ptx, smem
from ..gemm_mainloop import ConsumerLoop, k_tiles, operand_loads
from ..other_gpus import other_rungs
from . import r13_persistent
from .operands import operands, result


@dataclass(frozen=True)
class Config(r13_persistent.Config):
    """As on rung 13; bands count cluster rows.

    `ctas` of a cluster stand one above the other and share B, or with `shared` "a" side by side and share A.
    """

    group: int = 4
    ctas: int = 2
    shared: str = "b"


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
        name="multicast",
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
        with producer(warpgroup):
            state = ring.producer_state()
            for here in work.tiles():
                load_a, load_b = operand_loads(config.ctas, config.shared)
                for k_tile in ptx.range(count):
                    with ring.produce(state) as stage:
                        k = k_tile * tile_k
                        load_a(stage.a, A, (k, here.row), stage.full)
                        load_b(stage.b, B, (k, here.column), stage.full)
        for me in each_consumer(warpgroup, config.consumers):
            loop = ConsumerLoop(ring, ring.consumer_state())
            acc = wgmma_accumulators(rows, tile_n)
            for here in work.tiles():
                set_zero(acc)
                for stage, _ in loop.stages(count):
                    wgmma_stage(acc, stage.a.rows(me * rows, rows), stage.b)
                loop.drain()
                store_accumulators(acc, C, here.row + me * rows, here.column)
        cluster.leave()

    return gemm
