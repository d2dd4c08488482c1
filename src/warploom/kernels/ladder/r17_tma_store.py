"""Rung 17: asynchronous stores; C goes through shared memory, and TMA stores it while the next tile begins.

Idea       A thread's own stores are 4 bytes at each of 64 addresses, eight rows at a time, and the consumer waits until
           the last is issued. Now a consumer writes a box of 64 x 64 into shared memory, where a row of the box is 128
           bytes, and one thread starts a TMA store of it: whole lines to memory, no addresses to compute, edges
           clipped. The consumer continues with the next box, and with the next tile, while the store is in flight.
           Each consumer has two boxes: it writes one while TMA reads the other.
Reuses     CONSUMERS of rung 12, BAND, CTAS and produce of rung 15, the registers and multiply of rung 16
Roles      as on rung 16; one thread of each consumer starts its stores
Barriers   as on rung 16, and
           bar 1, 2   128 threads of a consumer, twice per box: the box is free; the box is written
Buffers    the ring, 192 KiB; 2 x 2 boxes of 64 x 64 bf16, 32 KiB
Timeline   consumer   [box 0][box 1][box 2][box 3][wgmmas of the next tile ...
           TMA               [store 0][store 1][store 2][store 3]
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 758 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import WARPGROUP, Persistent, TmaPipeline, TmaStore, each_consumer, persistent_grid, producer
from ...collective.mma.wgmma import wgmma_accumulators
from ...collective.tile import cluster
from ...collective.tile.raster import grouped
from ...collective.tile.roles import warpgroup_index
from ...isa.dtypes import bf16
from ...lang import Kernel, smem
from ..gemm_mainloop import k_tiles
from .operands import hopper_kernel, operands, result_in_boxes
from .r12_two_consumers import CONSUMERS
from .r15_multicast import BAND, CTAS, produce
from .r16_registers import CONSUMER_REGISTERS, PRODUCER_REGISTERS, multiply


@dataclass(frozen=True)
class Config:
    """Tile in elements (tile_m a multiple of 128), stages of the ring, store boxes (epi_stages) per consumer."""

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    stages: int = 4
    epi_stages: int = 2


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("tma_store", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, ctas=CTAS, a=a, b=b)
        out = TmaStore(C, CONSUMERS, epi_stages=config.epi_stages, matrices=False)
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(BAND), CTAS)
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(ring, work, A, B, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(ring, work, me, out, num_k_tiles)
        cluster.leave()

    return gemm


def declare(name, config):
    """As on rung 15, but C is stored in boxes."""
    return hopper_kernel(
        name=name,
        in_specs=operands(config.tile_m, config.tile_n // CTAS, config.tile_k),
        out_specs=(result_in_boxes(),),
        grid=persistent_grid((config.tile_m, config.tile_n), CTAS),
        block=(1 + CONSUMERS) * WARPGROUP,
        cluster=(CTAS, 1, 1),
    )


def consume(ring, work, me, out, num_k_tiles):
    """Consumer `me`: multiply its rows of every tile and store them by TMA, box by box."""
    rows, columns = work.tile[0] // CONSUMERS, work.tile[1]
    state, acc = ring.consumer_state(), wgmma_accumulators(rows, columns)
    for tile in work.tiles():
        multiply(ring, state, acc, me * rows, num_k_tiles)
        out.store(acc, me, tile.row + me * rows, tile.column)
    out.finish()
