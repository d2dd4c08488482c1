"""Blackwell, third rung: tiles by cluster launch control, and pairs of CTAs that multiply together.

Idea       Two CTAs on neighbouring multiprocessors multiply one tile of 256 rows (tcgen05.mma with cta_group::2): each
           loads its 128 rows of A and half the columns of B, so that shared memory is read 64 bytes a clock instead of
           96, and one thread in the leader (the even CTA) issues for both. The grid has a cluster for each tile;
           running clusters take over the ones that have not started, so that the next tile's loads begin at once and no
           wave has to end before the next.
Roles      load       warp 0 of each CTA, one thread     its own halves of A and B
           multiply   warp 1 of the leader, one thread   256 x 256 x 16 for both; commits reach both CTAs
           schedule   warp 2 of each CTA, one thread     asks for the next cluster (the leader), reads the answers
           epilogue   warps 4 to 7 of each CTA           its 128 rows of the tile
Barriers   as in the rung before; a stage's bytes, of both CTAs, count in the leader; accumulators are given back to the
           leader by the epilogue warps of both; queue.full[i], queue.empty[i] of the answers: LaunchQueue
Buffers    6 stages of A 128 x 64 and B 128 x 64, 192 KiB; 2 x 256 columns, all of tensor memory
Numbers    assembled and emulated, not run on hardware by the authors
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective.epilogue.tensor_store import store_rows
from ...collective.mma.tcgen05 import EPILOGUE_WARPS, AccumulatorRing
from ...collective.pipeline.launch_queue import ClusterPerTile, LaunchQueue
from ...collective.pipeline.umma import UmmaPipeline
from ...collective.tile.raster import grouped
from ...collective.tile.warp_roles import LOAD, MULTIPLY, REGISTERS, SCHEDULE, THREADS, epilogue, one_thread
from ...isa.dtypes import DType, bf16
from ...lang import Kernel, ptx, smem, tmem
from ..gemm_mainloop import k_tiles
from .minimal import tmem_columns
from .operands import blackwell_kernel, operands, result

BAND = 8
"""Tile rows of a band of the order."""
ROWS = 128
"""Rows of a CTA."""


@dataclass(frozen=True)
class Config:
    """Tile in elements; tile_m is 128, or 256 for pairs of CTAs."""

    tile_m: int = 256
    tile_n: int = 256
    tile_k: int = 64
    stages: int = 6
    buffers: int = 2
    dtype: DType = bf16

    @property
    def group(self) -> int:
        """CTAs that multiply together."""
        return self.tile_m // ROWS

    @property
    def readers(self) -> int:
        """Of each answer of the launch queue: load, schedule and epilogue in every CTA, multiply in the leader."""
        return self.group * (2 + EPILOGUE_WARPS) + 1


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) of 16 or 8 bits and C (M, N) bf16, all row-major."""
    tile, group, tile_k, stages = (config.tile_m, config.tile_n), config.group, config.tile_k, config.stages
    columns = config.tile_n // group

    @blackwell_kernel(
        name="blackwell_gemm",
        in_specs=operands(config.dtype, ROWS, columns, tile_k),
        out_specs=(result(),),
        grid=ClusterPerTile(tile, group),
        block=THREADS,
        registers=REGISTERS,
        cluster=(group, 1, 1),
    )
    def gemm(A, B, C):
        a = smem.umma_tile(config.dtype, (ROWS, tile_k), stages=stages, name="ring.a")
        b = smem.umma_tile(config.dtype, (columns, tile_k), stages=stages, name="ring.b")
        ring = UmmaPipeline(stages=stages, group=group, a=a, b=b)
        accumulators = AccumulatorRing(*tile, buffers=config.buffers, group=group)
        queue = LaunchQueue(C, tile, grouped(BAND), readers=config.readers, ctas=group)
        ring.initialise(accumulators, queue)
        memory = tmem.alloc(tmem_columns(config.tile_n * config.buffers), group=group)
        accumulators.open(memory)
        num_k_tiles = k_tiles(A, tile_k)
        with one_thread("load", LOAD):
            load(ring, queue, A, B, num_k_tiles)
        with one_thread("multiply", MULTIPLY), leader(group):
            multiply(ring, accumulators, queue, num_k_tiles)
        with one_thread("schedule", SCHEDULE):
            queue.schedule()
        with epilogue():
            store(accumulators, queue, C)
        memory.dealloc()

    return gemm


def leader(group):
    """The even CTA of a pair."""
    rank = ptx.special.cluster_ctarank() if group > 1 else ptx.special.ctaid.y()  # 0 in a grid along x
    return ptx.if_(rank == 0)


def load(ring, queue, A, B, num_k_tiles):
    """This CTA's rows of A and columns of B, the k-tiles of all tiles in order."""
    state, (rows, tile_k) = ring.producer_state(), ring.tiles["a"].layout.shape
    columns = ring.tiles["b"].layout.rows
    for tile in queue.tiles():
        row, column = tile.row, tile.column
        if ring.group > 1:
            rank = ptx.special.cluster_ctarank()
            row, column = row + rank * rows, column + rank * columns
        for k_tile in ptx.range(num_k_tiles):
            with ring.produce(state) as stage:
                ptx.tma.load(stage.a, A.tma_desc(), (k_tile * tile_k, row), stage.full, group=ring.loads)
                ptx.tma.load(stage.b, B.tma_desc(), (k_tile * tile_k, column), stage.full, group=ring.loads)


def multiply(ring, accumulators, queue, num_k_tiles):
    """Tile after tile into the accumulators by turns."""
    state, turn = ring.consumer_state(), accumulators.producer_state()
    for _tile in queue.tiles():
        with accumulators.produce(turn) as into:
            for k_tile in ptx.range(num_k_tiles):
                with ring.consume(state) as stage:
                    ptx.tcgen05.multiply(into, stage.a, stage.b, accumulate=k_tile > 0)


def store(accumulators, queue, C):
    """This CTA's rows of the accumulator that is full."""
    turn = accumulators.consumer_state()
    for tile in queue.tiles(whole_warp=True):
        done = accumulators.consumer_wait(turn)
        store_rows(done, C, tile.row, tile.column, release=lambda: accumulators.consumer_release(turn))
