"""Blackwell, first rung: one CTA multiplies one tile; the accumulator is in tensor memory.

Idea       tcgen05.mma is issued by one thread, reads A and B from shared memory and adds to 128 x 128 accumulators in
           tensor memory: no warpgroup, no registers. A commit arrives on an mbarrier when all previous MMAs are
           complete. That one arrival means both that the stage may be refilled and that the accumulator may be read.
Roles      thread 0 loads and multiplies; all four warps wait with it and store, each its quarter of the lanes
Barriers   full    1 arrival + the bytes of A and B           TMA -> thread 0
           done    1 arrival, by the commit                   MMAs -> all threads
           bar 0   all threads, once per k-tile: no thread falls two phases of `done` behind
Buffers    one stage of A 128 x 64 and B 128 x 64, 32 KiB; 128 columns of tensor memory
Numbers    assembled and emulated, not run on hardware by the authors
"""

from __future__ import annotations

from dataclasses import dataclass

from ...collective.epilogue.tensor_store import store_rows
from ...collective.pipeline.tma import State
from ...isa.dtypes import DType, bf16, u32
from ...lang import Kernel, ptx, reg, smem, tmem
from ..fields import builder
from ..gemm_mainloop import k_tiles
from .operands import blackwell_kernel, operands, result, tiles_of

THREADS = 128


@dataclass(frozen=True)
class Config:
    """Tile in elements; tile_k is 128 bytes of a row."""

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    dtype: DType = bf16


@builder()
def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K), B (N, K) of 16 or 8 bits and C (M, N) bf16, all row-major."""
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k

    @blackwell_kernel(
        name="blackwell_minimal",
        in_specs=operands(config.dtype, tile_m, tile_n, tile_k),
        out_specs=(result(),),
        grid=tiles_of(tile_m, tile_n),
        block=THREADS,
    )
    def gemm(A, B, C):
        a = smem.umma_tile(config.dtype, (tile_m, tile_k), name="a")
        b = smem.umma_tile(config.dtype, (tile_n, tile_k), name="b")
        full, done = smem.mbarrier(1, name="full"), smem.mbarrier(1, name="done")
        first = ptx.special.tid.x() == 0
        with ptx.if_(first):
            ptx.mbarrier.init(full[0], 1)
            ptx.mbarrier.init(done[0], 1)
            ptx.fence.mbarrier_init()
        memory = tmem.alloc(tmem_columns(tile_n))
        acc = memory.accumulator(tile_m, tile_n)
        row, column = ptx.special.ctaid.x() * tile_m, ptx.special.ctaid.y() * tile_n
        at = State(reg.scalar(u32, init=0), reg.scalar(u32, init=0))
        for k_tile in ptx.range(k_tiles(A, tile_k)):
            with ptx.if_(first):
                ptx.mbarrier.arrive_expect_tx(full[0], a.bytes + b.bytes)
                ptx.tma.load(a[0], A.tma_desc(), (k_tile * tile_k, row), full[0])
                ptx.tma.load(b[0], B.tma_desc(), (k_tile * tile_k, column), full[0])
                ptx.mbarrier.wait(full[0], at.phase)
                ptx.tcgen05.multiply(acc[0], a[0], b[0], accumulate=k_tile > 0)
                ptx.tcgen05.commit(done[0])
            ptx.mbarrier.wait(done[0], at.phase)
            ptx.bar.sync(0)  # a warp two phases behind would wait forever: a parity only tells odd from even
            at.phase ^= 1
        ptx.tcgen05.fence_after_thread_sync()
        store_rows(acc[0], C, row, column)
        memory.dealloc()

    return gemm


def tmem_columns(columns: int) -> int:
    """Columns to allocate: at least `columns`, a power of two, at least 32."""
    return max(32, 1 << (columns - 1).bit_length())
