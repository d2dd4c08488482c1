"""Rung 15: clusters of two; an operand that both CTAs need is fetched once.

Idea       Two CTAs whose tiles are adjacent along M need the same B. As a cluster they share the work: each loads half
           of B's tile, and TMA multicasts it into both, at the same offset. A cluster fetches 2 x A and 1 x B where two
           CTAs fetched 2 x A and 2 x B: a third fewer bytes from L2.

               CTA 0   A0 128 x 64      B rows 0-127    -> both
               CTA 1   A1 128 x 64      B rows 128-255  -> both

           A stage may be refilled only when the consumers of both CTAs have read it, since both halves of B are written
           to both. So each consumer signals both producers, and no CTA exits while the other may still signal it.
Reuses     CONSUMERS and Config of rung 12, consume of rung 13
Roles      as on rung 13, in each of two CTAs; each producer multicasts its half of B
Barriers   full[s]    1 arrival + bytes of the whole stage       both CTAs' producers -> consumers
           empty[s]   4 arrivals: 2 consumers of 2 CTAs          consumers -> both producers (remote, relaxed)
           cluster    before the first remote access, and at the end
Buffers    in each CTA a ring of 4 stages of A 128 x 64 and B 256 x 64 bf16, 192 KiB
Timeline   as on rung 13, the two CTAs in step: a stage of either is refilled when all four consumers have read it
Order      bands of 4 cluster rows, 8 tile rows
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 734 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from ...collective import WARPGROUP, Persistent, TmaPipeline, each_consumer, persistent_grid, producer, warpgroup_index
from ...collective.tile import cluster
from ...collective.tile.raster import grouped
from ...isa.dtypes import bf16
from ...lang import Kernel, ptx, smem
from ..gemm_mainloop import k_tiles
from .operands import hopper_kernel, operands, result
from .r12_two_consumers import CONSUMERS, Config
from .r13_persistent import consume

CTAS, EVERYONE = 2, 0b11
"""CTAs per cluster, adjacent along M, and the multicast mask of both."""
BAND = 4
"""Cluster rows per band of the tile order: 8 tile rows."""


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @declare("multicast", config)
    def gemm(A, B, C):
        a = smem.wgmma_tile(bf16, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.wgmma_tile(bf16, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = TmaPipeline(stages=stages, consumers=CONSUMERS, ctas=CTAS, a=a, b=b)
        ring.initialise()
        work = Persistent(C, (tile_m, tile_n), grouped(BAND), CTAS)
        num_k_tiles, warpgroup = k_tiles(A, tile_k), warpgroup_index()
        with producer(warpgroup):
            produce(ring, work, A, B, num_k_tiles)
        for me in each_consumer(warpgroup, CONSUMERS):
            consume(ring, work, me, C, num_k_tiles)
        cluster.leave()

    return gemm


def declare(name, config):
    """Clusters on all SMs; a box of B is the half that one CTA loads."""
    return hopper_kernel(
        name=name,
        in_specs=operands(config.tile_m, config.tile_n // CTAS, config.tile_k),
        out_specs=(result(),),
        grid=persistent_grid((config.tile_m, config.tile_n), CTAS),
        block=(1 + CONSUMERS) * WARPGROUP,
        cluster=(CTAS, 1, 1),
    )


def produce(ring, work, A, B, num_k_tiles):
    """The producer: load the k-tiles of all tiles of this CTA, in order."""
    state = ring.producer_state()
    for tile in work.tiles():
        load(ring, state, A, B, tile.row, tile.column, num_k_tiles)


def load(ring, state, A, B, row, column, num_k_tiles):
    """The producer, for one tile of C: per k-tile, load its own A, and its half of B for both CTAs."""
    tile_k, rank = ring.tiles["a"].layout.k, ptx.special.cluster_ctarank()
    for k_tile in ptx.range(num_k_tiles):
        with ring.produce(state) as stage:
            k = k_tile * tile_k
            ptx.tma.load(stage.a, A.tma_desc(), (k, row), stage.full)
            load_half(stage.b, B, k, column, rank, stage.full)


def load_half(tile, array, k, row, rank, full):
    """Load half `rank` of a tile and multicast it to both CTAs of the cluster, at the same offset."""
    rows = tile.rows_count // CTAS
    first = rank * rows
    ptx.cp.async_.bulk.tensor_2d(tile.rows(first, rows), array.tma_desc(), (k, row + first), full, multicast=EVERYONE)
