"""Blackwell, second rung: roles, a ring of stages, and two accumulators.

Idea       On Hopper, two consumers alternate so that one multiplies while the other stores (ping-pong). Here the
           accumulators are in tensor memory, which all warps share. One thread multiplies tile after tile, alternating
           between two accumulators, and one warpgroup stores the full one. No thread holds accumulators in registers,
           so no registers have to move.
Roles      load       warp 0, one thread    fills the ring with TMA
           multiply   warp 1, one thread    4 MMAs per stage; commits free the stage, then hand the tile over
           epilogue   warps 4 to 7          tensor memory -> registers -> global memory
Barriers   full[s], empty[s]                            of the ring: UmmaPipeline
           accumulator.full[i], accumulator.empty[i]    of the accumulators: AccumulatorRing
Buffers    4 stages of A 128 x 64 and B 256 x 64, 192 KiB; 2 x 256 columns, all of tensor memory
Timeline   load       [0 1 2 .. n][0 1 2 ..
           multiply     [tile 0 ......][tile 1 ......][tile 2
           epilogue                    [store 0 ]     [store 1 ]
Numbers    assembled and emulated, not run on hardware by the authors
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective.epilogue.tensor_store import store_rows
from ...collective.mma.tcgen05 import AccumulatorRing
from ...collective.pipeline.umma import UmmaPipeline
from ...collective.tile.raster import grouped
from ...collective.tile.scheduler import Persistent
from ...collective.tile.sizes import persistent_grid
from ...collective.tile.warp_roles import LOAD, MULTIPLY, REGISTERS, THREADS, epilogue, one_thread
from ...isa.dtypes import DType, bf16
from ...lang import Kernel, ptx, smem, tmem
from ..fields import builder
from ..gemm_mainloop import k_tiles
from .minimal import tmem_columns
from .operands import blackwell_kernel, operands, result

BAND = 8
"""Tile rows per band of the tile order."""


@dataclass(frozen=True)
class Config:
    """Tile in elements, stages of the ring, accumulators."""

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    stages: int = 4
    buffers: int = 2
    dtype: DType = bf16


@builder()
def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) of 16 or 8 bits and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k, stages = config.tile_m, config.tile_n, config.tile_k, config.stages

    @blackwell_kernel(
        name="blackwell_specialised",
        in_specs=operands(config.dtype, tile_m, tile_n, tile_k),
        out_specs=(result(),),
        grid=persistent_grid((tile_m, tile_n)),
        block=THREADS,
        registers=REGISTERS,
    )
    def gemm(A, B, C):
        a = smem.umma_tile(config.dtype, (tile_m, tile_k), stages=stages, name="ring.a")
        b = smem.umma_tile(config.dtype, (tile_n, tile_k), stages=stages, name="ring.b")
        ring = UmmaPipeline(stages=stages, a=a, b=b)
        accumulators = AccumulatorRing(tile_m, tile_n, buffers=config.buffers)
        ring.initialise(accumulators)
        memory = tmem.alloc(tmem_columns(tile_n * config.buffers))
        accumulators.open(memory)
        work, num_k_tiles = Persistent(C, (tile_m, tile_n), grouped(BAND)), k_tiles(A, tile_k)
        with one_thread("load", LOAD):
            load(ring, work, A, B, num_k_tiles)
        with one_thread("multiply", MULTIPLY):
            multiply(ring, accumulators, work, num_k_tiles)
        with epilogue():
            store(accumulators, work, C)
        memory.dealloc()

    return gemm


def load(ring, work, A, B, num_k_tiles):
    """Load the k-tiles of all tiles, in order; the ring does not stop between tiles."""
    state, tile_k = ring.producer_state(), ring.tiles["a"].layout.k
    for tile in work.tiles():
        for k_tile in ptx.range(num_k_tiles):
            with ring.produce(state) as stage:
                ptx.tma.load(stage.a, A.tma_desc(), (k_tile * tile_k, tile.row), stage.full)
                ptx.tma.load(stage.b, B.tma_desc(), (k_tile * tile_k, tile.column), stage.full)


def multiply(ring, accumulators, work, num_k_tiles):
    """Multiply tile after tile, alternating between the accumulators."""
    state, turn = ring.consumer_state(), accumulators.producer_state()
    for _tile in work.tiles():
        with accumulators.produce(turn) as into:
            for k_tile in ptx.range(num_k_tiles):
                with ring.consume(state) as stage:
                    ptx.tcgen05.multiply(into, stage.a, stage.b, accumulate=k_tile > 0)


def store(accumulators, work, C):
    """Store the full accumulator, which is released when its last columns are in registers."""
    turn = accumulators.consumer_state()
    for tile in work.tiles():
        done = accumulators.consumer_wait(turn)
        store_rows(done, C, tile.row, tile.column, release=lambda: accumulators.consumer_release(turn))
