"""The walkthrough kernel: one 64 x 64 tile of C per CTA, one wgmma per 16 of k, nothing overlapped.

Idea       The shortest kernel that has all of Hopper's parts: TMA fills a tile of A and one of B, an mbarrier counts
           their bytes, the warpgroup multiplies them, and each thread scatters its fragment of the result.
Roles      one warpgroup of 128 threads; thread 0 also starts the copies
Barriers   bars[i]    1 arrival + bytes of both tiles     TMA -> all threads; one barrier per k-tile, each used once
Buffers    sA 64 x tile_k K-major, sB tile_k x 64 MN-major; one stage, refilled after wgmma.wait_group(0)
Timeline   TMA          [load 0]            [load 1]            ...
           tensor core          [wgmmas of 0]       [wgmmas of 1]   ... | threads store
Measured   benchmarks/results/nvidia-h200/first-light.json
Sizes      M and N multiples of 64, K of tile_k: constants of the PTX, in which the loop over k is unrolled

Read it from top to bottom; it is the first kernel that runs on both machines. The ladder begins with simpler kernels
and ends with much faster ones.
"""

from __future__ import annotations

from ..errors import ArgumentError
from ..isa.dtypes import b32, bf16, f32, u32
from ..lang import Kernel, Tile, kernel, ptx, reg, smem
from .fields import builder

BM = BN = 64
"""Rows and columns of a CTA's tile: one wgmma."""
TILE_SHIFT = 6
"""2^6 is 64."""
WARPGROUP = 128
"""Threads that issue a wgmma together: four warps of 16 rows each."""
WGMMA_K = 16
"""Elements of k that one wgmma multiplies."""
COLUMNS = 8
"""Columns over which a wgmma spreads a row of its result at a time: two in each of four lanes."""


@builder()
def build_gemm_m64n64(M: int, N: int, K: int, *, tile_k: int = 16) -> Kernel:
    """Build C = A @ B with A (M, K) bf16, B (K, N) bf16, C (M, N) f32, all row-major.

    Args:
        M, N: multiples of 64.
        K: a positive multiple of tile_k.
        tile_k: 16, 32 or 64: the depth of one stage, split into wgmmas 16 deep.

    Raises ArgumentError for sizes that the tile does not divide.
    """
    if tile_k not in (16, 32, 64):
        raise ArgumentError(
            f"the walkthrough kernel does not support tile_k = {tile_k}",
            expected="16, 32 or 64: the width of a TMA box",
            got=tile_k,
        )
    for name, size, divisor in (("M", M, BM), ("N", N, BN), ("K", K, tile_k)):
        if size <= 0 or size % divisor:
            raise ArgumentError(
                f"the walkthrough kernel does not support {name} = {size}",
                expected=f"a positive multiple of {divisor}",
                got=size,
            )
    n_iters = K // tile_k

    @kernel(
        in_specs=(
            Tile.wgmma_a(M, K, bf16, tile_m=BM, tile_k=tile_k),
            Tile.wgmma_b(K, N, bf16, tile_k=tile_k, tile_n=BN),
        ),
        out_specs=(Tile(M, N, f32),),
        grid=(N // BN, M // BM, 1),
        block=(WARPGROUP, 1, 1),
        arch="sm_90a",
        pdl=True,
    )
    def gemm(A, B, C):
        # The launch may overlap the end of the previous kernel, which saves time on the host. Nothing is read or
        # written until that kernel has completed.
        ptx.griddepcontrol.wait()
        sA = smem.wgmma_tile(bf16, (BM, tile_k), major="K")
        sB = smem.wgmma_tile(bf16, (tile_k, BN), major="MN")
        bars = [smem.mbarrier(1) for _ in range(n_iters)]
        phases = [reg.scalar(b32, init=0) for _ in range(n_iters)]
        acc = reg.array(f32, BM * BN // WARPGROUP)

        # The tile of C that this CTA owns.
        row_off = reg.scalar(u32)
        ptx.inst.mov.u32(row_off, ptx.special.ctaid.y())
        ptx.inst.shl.b32(row_off, row_off, TILE_SHIFT)
        col_off = reg.scalar(u32)
        ptx.inst.mov.u32(col_off, ptx.special.ctaid.x())
        ptx.inst.shl.b32(col_off, col_off, TILE_SHIFT)

        # The branch around the copies is uniform in a warp, and one lane is chosen inside it: ptxas takes ten times as
        # long for a hundred branches that split a warp while the accumulators are live.
        tid = ptx.special.tid.x()
        warp = reg.scalar(u32)
        ptx.inst.shfl.sync.idx.b32(warp, tid >> 5, 0, 31, -1)
        leader = tid == 0
        with ptx.if_(leader):
            for bar in bars:
                ptx.mbarrier.init(bar[0], 1)
            ptx.fence.proxy_async_shared_cta()

        for i in range(n_iters):
            k_off = reg.scalar(u32, init=i * tile_k)
            full = bars[i][0]
            with ptx.if_(warp == 0):
                ptx.mbarrier.arrive_expect_tx(full, sA.bytes + sB.bytes, pred=leader)
                ptx.cp.async_.bulk.tensor_2d(sA[0], A.tma_desc(), (k_off, row_off), full, pred=leader)
                ptx.cp.async_.bulk.tensor_2d(sB[0], B.tma_desc(), (col_off, k_off), full, pred=leader)
            # The CTA barrier orders the initialisation of the mbarriers before the first wait on them.
            ptx.bar.sync(0)
            ptx.mbarrier.wait(full, phases[i])

            ptx.wgmma.fence()
            for step in range(sA[0].k_slices):
                ptx.wgmma.mma_async(
                    shape=(BM, BN, WGMMA_K), dtype_d=f32, dtype_a=bf16, dtype_b=bf16,
                    d=acc, a=sA[0].k(step), b=sB[0].k(step),
                    scale_d=(i + step != 0), trans_a=0, trans_b=1,
                )  # fmt: skip
            ptx.wgmma.commit_group()
            ptx.wgmma.wait_group(0)

        # The fragment of a wgmma: of each group of 8 columns, a lane holds two adjacent ones in its row and the same
        # two 8 rows below. Four lanes share a row, a warp has 16 rows (PTX ISA 9.7.15.5.1.1).
        lane = tid & 31
        row = (warp << 4) + (lane >> 2) + row_off
        column = ((lane & 3) << 1) + col_off
        (pointer,) = ptx.global_ptrs(C)
        registers = iter(acc)
        for group in range(BN // COLUMNS):
            for below in (False, True):
                for odd in range(2):
                    offset = ((row + 8 if below else row) * N + (column + group * COLUMNS + odd)) * f32.bytes
                    ptx.inst.st.global_.f32(ptx.addr(pointer + offset), next(registers))

    return gemm
