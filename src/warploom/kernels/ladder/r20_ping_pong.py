"""Rung 20: ping-pong; two tiles at a time, one multiplied while the other is stored.

Idea       On the rungs before, both consumers reach the end of a tile together, and while they convert and store, the
           tensor core is nearly idle. Now each consumer has its own tile, 128 x 192, and they alternate. A consumer
           hands over when its last wgmmas are issued, so the tensor core goes from one tile to the next without a gap.
           The price is a smaller tile: more bytes loaded per product. Short products (small K), which spend much of
           their time storing, win; long ones may not.
Reuses     CONSUMERS of rung 12, BAND, CTAS and produce of rung 15, the registers of rung 16, declare of rung 17
Roles      producer   warpgroup 0, one thread, 40 registers: the k-tiles of all tiles, in order
           consumer   warpgroups 1, 2, 232 registers: every other tile; each skips the k-tiles of the other
Barriers   full[s]    1 arrival + bytes of the whole stage       both CTAs' producers -> the stage's consumer
           empty[s]   2 arrivals: 1 consumer of 2 CTAs           -> both producers (remote, relaxed)
           bar 1, 2   128 threads of a consumer, twice per box of its store
           bar 3, 4   the turns: 128 wait, 128 arrive
           cluster    before the first remote access, and at the end
Buffers    a ring of 5 stages of A 128 x 64 and B 192 x 64 bf16, 200 KiB; 2 boxes of 64 x 64 bf16, one per consumer,
           16 KiB: one is enough, because a store has the other consumer's whole turn to finish
Timeline   consumer 0   [multiply tile 0][store tile 0  ]    [multiply tile 2][store tile 2
           consumer 1                    [multiply tile 1][store tile 1  ]   [multiply tile 3]
Measured   benchmarks/results/nvidia-h200/ladder.json; no seed; *CUTLASS Ping-Pong* has the schedule
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import OrderedBarrier, Persistent, TmaPipeline, TmaStore, each_consumer, producer, warpgroup_index
from ...collective.mma.wgmma import WGMMA_ROWS, wgmma_accumulators, wgmma_stage
from ...collective.tile import cluster
from ...collective.tile.raster import grouped
from ...isa.dtypes import bf16, u32
from ...lang import Kernel, ptx, reg, smem
from ..gemm_mainloop import k_tiles
from .r12_two_consumers import CONSUMERS
from .r15_multicast import BAND, CTAS, produce
from .r16_registers import CONSUMER_REGISTERS, PRODUCER_REGISTERS
from .r17_tma_store import declare

TURN_BARRIERS = 1 + CONSUMERS
"""The first of the two named barriers of the turns. 0 belongs to the CTA, 1 and 2 to the stores."""


@dataclass(frozen=True)
class Config:
    """As on rung 17; the tile is one consumer's."""

    tile_m: int = 128
    tile_n: int = 192
    tile_k: int = 64
    stages: int = 5
    epi_stages: int = 1


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("ping_pong", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=1, ctas=CTAS, a=a, b=b)  # one of the two reads a stage
        out = TmaStore(C, CONSUMERS, epi_stages=config.epi_stages)
        turns = OrderedBarrier(TURN_BARRIERS)
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(BAND), CTAS)
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(ring, work, A, B, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(ring, work, me, out, turns, num_k_tiles)
        cluster.leave()

    return gemm


def consume(ring, work, me, out, turns, num_k_tiles):
    """Consumer `me`: multiply and store every other tile. The k-tiles between belong to the other consumer."""
    state, acc = ring.consumer_state(), wgmma_accumulators(*work.tile)
    turns.begin(me)
    if me:
        ring.skip(state, num_k_tiles)
    for tile in work.tiles(first=me, every=CONSUMERS):
        turns.wait(me)
        multiply(ring, state, acc, me, turns, num_k_tiles)
        ring.skip(state, num_k_tiles)
        out.store(acc, me, tile.row, tile.column)
    out.finish()


def multiply(ring, state, acc, me, turns, num_k_tiles):
    """Multiply one tile as on rung 16; the other consumer's turn begins when the last wgmmas are issued."""
    previous = reg.scalar(u32, init=0)
    for k_tile in ptx.range(num_k_tiles):
        stage = ring.consumer_wait(state)
        later = k_tile != 0
        wgmma_stage(acc, stage.a.rows(0, len(acc) * WGMMA_ROWS), stage.b, accumulate=later)
        ptx.wgmma.wait_group(1)
        ring.consumer_release(previous, only=later)
        previous.set(state.index)
        ring.advance(state)
    turns.pass_on(me)
    ptx.wgmma.wait_group(0)
    ring.consumer_release(previous)
