"""Rung 11: a producer and a consumer; loading and multiplying become two programs.

Idea       On rung 10, the warps that multiply also wait for copies, synchronise, and start new ones, and each of these
           steps delays the next wgmma. Here a dedicated warp only starts copies, as far ahead as the ring allows, and
           the consumer only waits for bytes and multiplies. Two barriers per stage connect them, and the consumer keeps
           the wgmmas of one k-tile in flight while it requests the next.
Roles      producer   warpgroup 0, one thread      fills the ring with TMA
           consumer   warpgroup 1                  128 x 128: wgmma, then store
Barriers   full[s]    1 + 128 arrivals + bytes     producer -> consumer
           empty[s]   128 arrivals                 consumer -> producer
           (every thread arrives, as in a first version in CUDA C++; rung 14 needs only one)
Buffers    a ring of 5 stages of A 128 x 64 and B 128 x 64 bf16, 160 KiB
Timeline   producer   [load t+3][load t+4]   waits for empty[s]     [load t+5]
           consumer   [wgmmas of t][wgmmas of t+1][wgmmas of t+2]
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 498 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import WARPGROUP, TmaPipeline, each_consumer, producer, warpgroup_index
from ...collective.epilogue.direct_store import store_accumulators
from ...collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from ...isa.dtypes import bf16, u32
from ...lang import Kernel, ptx, reg, smem, tiles
from ..gemm_mainloop import k_tiles
from .operands import hopper_kernel, operands, result

CONSUMERS = 1


@dataclass(frozen=True)
class Config:
    """Tile in elements (tile_m a multiple of 64), stages of the ring."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 5


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @hopper_kernel(
        in_specs=operands(tile_m, tile_n, tile_k),
        out_specs=(result(),),
        grid=(tiles("N", tile_n), tiles("M", tile_m)),
        block=(1 + CONSUMERS) * WARPGROUP,
        name="warp_specialised_128",
    )
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, every_thread=True, a=a, b=b)
        ring.initialise()
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup):
            state = ring.producer_state()
            row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
            load(ring, state, A, B, row, column, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS):
            state, acc = ring.consumer_state(), wgmma_accumulators(tile_m, tile_n, zero=True)
            row, column = ptx.special.ctaid.y() * tile_m, ptx.special.ctaid.x() * tile_n
            multiply(ring, state, acc, num_k_tiles)
            store_accumulators(acc, C, row + me * tile_m, column)

    return gemm


def load(ring, state, A, B, row, column, num_k_tiles):
    """The producer, for one tile of C: fill one stage per k-tile, as soon as the consumer has released it."""
    tile_k = ring.tiles["a"].layout.k
    for k_tile in ptx.range(num_k_tiles):
        with ring.produce(state) as stage:
            k = k_tile * tile_k
            ptx.tma.load(stage.a, A.tma_desc(), (k, row), stage.full)
            ptx.tma.load(stage.b, B.tma_desc(), (k, column), stage.full)


def multiply(ring, state, acc, num_k_tiles):
    """The consumer, for one tile of C. It releases a stage one k-tile late: by then its wgmmas are complete."""
    previous = reg.scalar(u32, init=0)
    for k_tile in ptx.range(num_k_tiles):
        stage = ring.consumer_wait(state)
        later = k_tile != 0
        wgmma_stage(acc, stage.a, stage.b)
        ptx.wgmma.wait_group(1)
        ring.consumer_release(previous, only=later)
        previous.set(state.index)
        ring.advance(state)
    ptx.wgmma.wait_group(0)
    ring.consumer_release(previous)
