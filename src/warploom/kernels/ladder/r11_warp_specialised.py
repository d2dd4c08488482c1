"""Rung 11: a producer and a consumer; loading and multiplying become two programs.

Idea       On rung 10 the warps that multiply also wait for copies, meet, and start new ones, and every one of these
           steps delays the next wgmma. Here a warp of its own does nothing but start copies, as far ahead as the ring
           allows, and the consumer does nothing but wait for bytes and multiply. Two barriers for each stage connect
           them, and the consumer keeps the wgmmas of one k-tile in flight while it asks for the next.

               producer   [t+3][t+4]   waits for empty[s]     [t+5]
               consumer   [wgmmas of t][wgmmas of t+1][wgmmas of t+2]
Roles      producer   warpgroup 0, one thread      fills the ring with TMA
           consumer   warpgroup 1                  128 x 128: wgmma, then store
Barriers   full[s]    1 + 128 arrivals + bytes     producer -> consumer
           empty[s]   128 arrivals                 consumer -> producer
           (as in a first version in CUDA C++, where every thread arrives; rung 14 does with one)
Ring       5 stages of A 128 x 64 and B 128 x 64 bf16, 160 KiB
Buffers    the ring
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       498 TFLOP/s, from 423 (*Inside NVIDIA GPUs*, H100)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import (
    WARPGROUP,
    OneTile,
    TmaPipeline,
    each_consumer,
    producer,
    store_accumulators,
    warpgroup_index,
    wgmma_accumulators,
    wgmma_stage,
)
from ...isa.dtypes import DType, bf16
from ...lang import Kernel, kernel, ptx, smem, tiles
from ..gemm_mainloop import ConsumerLoop, k_tiles
from ..other_gpus import other_rungs
from .operands import operands, result


@dataclass(frozen=True)
class Config:
    """Tile in elements, stages of the ring, consumer warpgroups (each tile_m / consumers rows), type of C."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 5
    consumers: int = 1
    out: DType = bf16

    @property
    def threads(self) -> int:
        """The producer's warpgroup and the consumers'."""
        return (1 + self.consumers) * WARPGROUP

    @property
    def rows(self) -> int:
        """Of the tile, that one consumer computes."""
        return self.tile_m // self.consumers


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16 or f32, all row-major."""
    return specialised("warp_specialised_128", config)


def specialised(name: str, config: Config) -> Kernel:
    """The kernel of rungs 11 and 12."""
    tile_m, tile_n, tile_k, stages, rows = config.tile_m, config.tile_n, config.tile_k, config.stages, config.rows

    @kernel(
        in_specs=operands(tile_m, tile_n, tile_k),
        out_specs=(result(config.out),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=config.threads,
        arch="sm_90a",
        elsewhere=other_rungs,
        name=name,
    )
    def gemm(A, B, C):
        ring = TmaPipeline(
            stages=stages,
            consumers=config.consumers,
            every_thread=True,
            a=smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a"),
            b=smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b"),
        )
        ring.initialise()
        work, count, warpgroup = OneTile((tile_m, tile_n)), k_tiles(A, tile_k), warpgroup_index()
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
            acc = wgmma_accumulators(rows, tile_n, zero=True)
            for here in work.tiles():
                for stage, _ in loop.stages(count):
                    wgmma_stage(acc, stage.a.rows(me * rows, rows), stage.b)
                loop.drain()
                store_accumulators(acc, C, here.row + me * rows, here.column)

    return gemm
