"""Rung 23: staggered epilogues; a consumer stores one half of its rows while it multiplies the other.

Idea       Ping-pong hides the stores but needs tiles small enough that two fit. Here the tile stays large: a consumer's
           128 rows are two blocks of 64, and the upper block's last wgmmas are committed before the lower block's. The
           upper block is then complete and is stored under the lower one's wgmmas; the lower one is stored under the
           first wgmmas of the next tile. From a CTA's first k-tile to its last, some wgmma is always in flight.
Reuses     CONSUMERS of rung 12, CTAS of rung 15, the registers of rung 16, Config of rung 21, Plan, declare, produce
           and tail of rung 22; the loop over k is `kernels.hopper.staggered`, as in the library
Roles, Barriers as on rung 22
Buffers    as on rung 21; the three boxes of a consumer are one block
Timeline   upper   ... k-2 | k-1 |  store  | 0' (next tile) ...        | 1' ...
           lower   ... k-2 |       k-1     |   store                0' | 1' ...
Measured   benchmarks/results/nvidia-h200/ladder.json; no seed. `kernels.hopper.gemm` produces the same PTX from a
           description; there C is called D
"""

from __future__ import annotations

from ...collective import WARPGROUP, TmaPipeline, TmaStore, each_consumer, producer, warpgroup_index
from ...collective.mma.wgmma import WGMMA_ROWS
from ...collective.reduce.pair_exchange import PairExchange
from ...collective.tile import cluster
from ...isa.dtypes import bf16
from ...lang import Kernel, ptx, smem
from ..hopper.staggered import MIN_K_TILES, Staggered
from .r12_two_consumers import CONSUMERS
from .r15_multicast import CTAS
from .r16_registers import CONSUMER_REGISTERS, PRODUCER_REGISTERS
from .r21_large_tiles import Config
from .r22_split_tail import Plan, declare, produce, tail


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """D = A @ Bᵀ with A (M, K), B (N, K) and D (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("staggered", config)
    def gemm(A, B, D):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, ctas=CTAS, a=a, b=b)
        out = TmaStore(D, CONSUMERS, epi_stages=config.epi_stages)
        exchange = PairExchange(ring, tile_m // CONSUMERS * tile_n // WARPGROUP)
        ring.initialise(exchange)
        plan, warpgroup = MinimumKTiles(A, D, config), warpgroup_index()  # rung 22: Plan
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(ring, plan, A, B)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(ring, plan, me, out, exchange)
        cluster.leave()

    return gemm


class MinimumKTiles(Plan):
    """As on rung 22, with at least three k-tiles per tile: one to begin, one in the loop, one to end."""

    def num_k_tiles(self):
        """The number of k-tiles of a tile; those beyond K are zeros."""
        count = super().num_k_tiles()
        return ptx.select(count < MIN_K_TILES, MIN_K_TILES, count)


def consume(ring, plan, me, out, exchange):
    """Consumer `me`: `store` runs between wgmmas in flight, for one block of 64 rows at a time."""
    state, acc, first_row = ring.consumer_state(), plan.accumulators(), plan.first_row(me)
    upper, lower = acc

    def store(block, tile, row):
        out.store([block], me, tile.row + (first_row + row), tile.column)

    Staggered(ring, state, plan.work(), upper, lower, first_row, plan.num_k_tiles(), store).run()
    with tail(ring, state, plan, acc, me, exchange) as tile:
        store(upper, tile, 0)
        store(lower, tile, WGMMA_ROWS)
    out.finish()
