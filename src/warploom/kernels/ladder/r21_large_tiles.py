"""Rung 21: tiles of 256 x 192; the fewest bytes into shared memory per product.

Idea       A large product on an H200 is limited by power, and after the multiplications, the transfer from L2 to shared
           memory takes the most. A tile of 128 x 256 fills 384 rows of k for 32768 products, one of 256 x 192 fills 448
           for 49152: 22 % fewer per product. Each consumer holds 128 x 192 as two blocks of 64 x 192: 192 accumulators
           of its 240 registers, the most that fits next to its other values.

                            B 192 x 64
               A 128 x 64   [ consumer 0: 2 x 64 x 192 ]
                 128 x 64   [ consumer 1: 2 x 64 x 192 ]

           The CTAs of a cluster are now adjacent along N and share A, whose tile is the larger one. Bands replace the
           Hilbert curve: both use L2 equally well here, and bands fit grids of any shape.
Reuses     CONSUMERS of rung 12, CTAS and load_half of rung 15, consume of rung 17
Roles      producer   warpgroup 0, one thread, 24 registers; each multicasts its half of A
           consumer   warpgroups 1, 2, 240 registers: 128 x 192 each
Barriers   as on rung 17
Buffers    a ring of 3 stages of A 256 x 64 and B 192 x 64 bf16, 168 KiB; 2 x 3 boxes of 64 x 64 bf16, 48 KiB
Timeline   as on rung 17, with fewer and longer tiles: six boxes to store at the end of each
Measured   benchmarks/results/nvidia-h200/ladder.json; no seed: here the ladder leaves its sources
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective import WARPGROUP, Persistent, TmaPipeline, TmaStore, each_consumer, persistent_grid, producer
from ...collective.tile import cluster
from ...collective.tile.raster import grouped
from ...collective.tile.roles import warpgroup_index
from ...isa.dtypes import bf16
from ...lang import Kernel, ptx, smem
from ..gemm_mainloop import k_tiles
from .operands import hopper_kernel, operands, result_in_boxes
from .r12_two_consumers import CONSUMERS
from .r15_multicast import CTAS, load_half
from .r17_tma_store import consume

BAND = 8
"""Tile rows per band of the tile order."""
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 24, 240
"""Registers per thread: again at most 3 x 168 in total."""


@dataclass(frozen=True)
class Config:
    """As on rung 17."""

    tile_m: int = 256
    tile_n: int = 192
    tile_k: int = 64
    stages: int = 3
    epi_stages: int = 3


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @hopper_kernel(
        in_specs=operands(tile_m // CTAS, tile_n, tile_k),
        out_specs=(result_in_boxes(),),
        grid=persistent_grid((tile_m, tile_n), CTAS, "a"),
        block=(1 + CONSUMERS) * WARPGROUP,
        cluster=(CTAS, 1, 1),
        name="large_tiles",
    )
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, ctas=CTAS, a=a, b=b)
        out = TmaStore(C, CONSUMERS, epi_stages=config.epi_stages)
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(BAND), CTAS, "a")
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup, PRODUCER_REGISTERS):
            produce(ring, work, A, B, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS, CONSUMER_REGISTERS):
            consume(ring, work, me, out, num_k_tiles)
        cluster.leave()

    return gemm


def produce(ring, work, A, B, num_k_tiles):
    """The producer: per k-tile of each tile, load its half of A for both CTAs, and its own B."""
    state, tile_k = ring.producer_state(), ring.tiles["a"].layout.k
    for tile in work.tiles():
        rank = ptx.special.cluster_ctarank()
        for k_tile in ptx.range(num_k_tiles):
            with ring.produce(state) as stage:
                k = k_tile * tile_k
                load_half(stage.a, A, k, tile.row, rank, stage.full)
                ptx.tma.load(stage.b, B.tma_desc(), (k, tile.column), stage.full)
