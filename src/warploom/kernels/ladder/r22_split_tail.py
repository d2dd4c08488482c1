"""Rung 22: the tail is split; the tiles after the last full wave take half a wave instead of a whole one.

Idea       8192 x 8192 in tiles of 256 x 192 has 688 pairs of tiles for the 66 clusters of an H200: ten full waves, and
           28 pairs that need an eleventh, with more than half of the GPU idle. Now each of these 56 tiles gets its own
           cluster. The two CTAs multiply half of K each and exchange half of their accumulators through distributed
           shared memory: every consumer either sends its own, or adds those it receives and stores the result. Large
           tiles cost least per product and waste most in the last wave; the split tail recovers most of this.

           The kernel also uses dependent launch: it sets itself up while the previous kernel ends.
Reuses     CONSUMERS of rung 12, CTAS and load of rung 15, the registers and multiply of rung 16, BAND and Config of
           rung 21
Roles      as on rung 21, with the registers of rung 16; the CTAs of a cluster are adjacent along M again and share B,
           so that the tail of 8192 x 8192 has few tiles
Barriers   as on rung 17, and
           drained    2 arrivals, the other CTA's consumers: their ring may be written to
           received   128 arrivals of the other CTA's sender: its accumulators are here
Buffers    as on rung 21; accumulators are sent into the ring, which is empty by then
Timeline   whole wave      66 clusters, 2 tiles each                      time 1
           tail before     28 clusters, 2 tiles each, 38 idle             time 1
           tail now        56 clusters, 1 tile each, half of K per CTA    time 1/2 + the exchange
Measured   benchmarks/results/nvidia-h200/ladder.json; no seed. `kernels.hopper.gemm` produces the same PTX from a
           description; there C is called D
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...collective import WARPGROUP, Persistent, TmaPipeline, TmaStore, each_consumer, persistent_grid, producer
from ...collective.mma.wgmma import wgmma_accumulators
from ...collective.reduce.pair_exchange import PairExchange
from ...collective.tile import cluster
from ...collective.tile.raster import grouped
from ...collective.tile.roles import warpgroup_index
from ...isa.dtypes import bf16
from ...lang import Kernel, ptx, smem
from ..gemm_mainloop import k_tiles
from .operands import hopper_kernel, operands, result_in_boxes
from .r12_two_consumers import CONSUMERS
from .r15_multicast import CTAS, load
from .r16_registers import CONSUMER_REGISTERS, PRODUCER_REGISTERS, multiply
from .r21_large_tiles import BAND, Config


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """D = A @ Bᵀ with A (M, K), B (N, K) and D (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("cooperative", config)
    def gemm(A, B, D):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, ctas=CTAS, a=a, b=b)
        out = TmaStore(D, CONSUMERS, epi_stages=config.epi_stages)
        exchange = PairExchange(ring, tile_m // CONSUMERS * tile_n // WARPGROUP)
        ring.initialise(exchange)
        plan, warpgroup = Plan(A, D, config), warpgroup_index()
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(ring, plan, A, B)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(ring, plan, me, out, exchange)
        cluster.leave()

    return gemm


def declare(name, config):
    """As on rung 17, but the launch may overlap the end of the previous kernel (pdl)."""
    return hopper_kernel(
        name=name,
        in_specs=operands(config.tile_m, config.tile_n // CTAS, config.tile_k),
        out_specs=(result_in_boxes(),),
        grid=persistent_grid((config.tile_m, config.tile_n), CTAS),
        block=(1 + CONSUMERS) * WARPGROUP,
        cluster=(CTAS, 1, 1),
        pdl=True,
    )


@dataclass
class Plan:
    """The tiles of a CTA and their k-tiles. Every role recomputes them, for the tail too: registers are scarce."""

    A: Any
    D: Any
    config: Config

    def work(self):
        """The whole tiles of this cluster; its `tail()` is the tile that its CTAs share, if there is one."""
        return Persistent(self.D, (self.config.tile_m, self.config.tile_n), grouped(BAND), CTAS, split_tail=True)

    def num_k_tiles(self):
        """The number of k-tiles of a tile."""
        return k_tiles(self.A, self.config.tile_k)

    def half(self):
        """k-tiles per CTA in the tail; those beyond K are zeros."""
        return (self.num_k_tiles() + 1) // CTAS

    def accumulators(self):
        """One consumer's accumulators."""
        return wgmma_accumulators(self.config.tile_m // CONSUMERS, self.config.tile_n)

    def first_row(self, me):
        """The first row of consumer `me` in a tile."""
        return me * (self.config.tile_m // CONSUMERS)


def produce(ring, plan, A, B):
    """The producer: load the k-tiles of all whole tiles, then its half of the tail's."""
    work, num_k_tiles, state = plan.work(), plan.num_k_tiles(), ring.producer_state()
    ptx.griddepcontrol.wait()
    for tile in work.tiles():
        load(ring, state, A, B, tile.row, tile.column, num_k_tiles)
    with plan.work().tail() as tile:
        half = plan.half()
        load_alone(ring, state, A, B, tile.row, tile.column, ptx.special.cluster_ctarank() * half, half)
    ptx.griddepcontrol.launch_dependents()


def load_alone(ring, state, A, B, row, column, first, num_k_tiles):
    """As `load`, from k-tile `first` and for this CTA alone: the peer CTA needs other k-tiles."""
    tile_k = ring.tiles["a"].layout.k
    start = first * tile_k
    for k_tile in ptx.range(num_k_tiles):
        with ring.produce(state) as stage:
            k = k_tile * tile_k + start
            ptx.tma.load(stage.a, A.tma_desc(), (k, row), stage.full)
            cluster.load_slices(CTAS, stage.b, B, (k, column), stage.full)


def consume(ring, plan, me, out, exchange):
    """Consumer `me`: multiply and store its rows of every tile, then of the tail."""
    state, acc, first_row, num_k_tiles = (
        ring.consumer_state(),
        plan.accumulators(),
        plan.first_row(me),
        plan.num_k_tiles(),
    )
    for tile in plan.work().tiles():
        multiply(ring, state, acc, first_row, num_k_tiles)
        out.store(acc, me, tile.row + first_row, tile.column)
    with tail(ring, state, plan, acc, me, exchange) as tile:
        out.store(acc, me, tile.row + first_row, tile.column)
    out.finish()


@contextmanager
def tail(ring, state, plan, acc, me, exchange):
    """Multiply half of the tail's k-tiles and exchange accumulators. The block runs if this consumer has the total."""
    with plan.work().tail() as tile:
        multiply(ring, state, acc, plan.first_row(me), plan.half())
        with ptx.if_(exchange.combine(acc, me)):
            yield tile
