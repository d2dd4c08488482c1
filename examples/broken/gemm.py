"""A Hopper GEMM whose author miscounted the bytes of its copies, to show what the emulator reports.

Idea       C (64 x 32, f32) = A (64 x 128, bf16) @ B (128 x 32, bf16) by one warpgroup: TMA loads 64 of k at a time,
           wgmma multiplies them.
Barriers   full       1 arrival + bytes of both tiles; used once for each 64 of k
Broken     B's tile is half as large as A's, but the barrier expects twice the bytes of A's. The 4096 bytes that it
           waits for never arrive. `sA.bytes + sB.bytes` fixes it.

    warploom check examples/broken/gemm.py
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from warploom import Tile, kernel, ptx, reg, smem
from warploom.types import bf16, f32, u32

M, N, K, TILE_K = 64, 32, 128, 64
K_PER_WGMMA = 16


@kernel(
    in_specs=(Tile.wgmma_a(M, K, bf16, tile_m=M, tile_k=TILE_K), Tile.wgmma_b(K, N, bf16, tile_k=TILE_K, tile_n=N)),
    out_specs=(Tile(M, N, f32),),
    grid=(1,),
    block=128,
    arch="sm_90a",
)
def gemm(A, B, C):
    sA = smem.wgmma_tile(bf16, (M, TILE_K), major="K")
    sB = smem.wgmma_tile(bf16, (TILE_K, N), major="MN")
    full = smem.mbarrier(1)
    acc = reg.array(f32, N // 2)

    thread = ptx.special.tid.x()
    with ptx.if_(thread == 0):
        ptx.mbarrier.init(full[0], 1)
    ptx.bar.sync()

    phase = reg.scalar(u32, init=0)
    for step in range(K // TILE_K):
        k = step * TILE_K
        with ptx.if_(thread == 0):
            ptx.mbarrier.arrive_expect_tx(full[0], 2 * sA.bytes)
            ptx.tma.load(sA[0], A.tma_desc(), (k, 0), full[0])
            ptx.tma.load(sB[0], B.tma_desc(), (0, k), full[0])
        ptx.mbarrier.wait(full[0], phase)
        phase ^= 1

        ptx.wgmma.fence()
        for i in range(TILE_K // K_PER_WGMMA):
            ptx.wgmma.mma_async(
                shape=(M, N, K_PER_WGMMA), dtype_d=f32, dtype_a=bf16, dtype_b=bf16,
                d=acc, a=sA[0].k(i), b=sB[0].k(i), scale_d=step + i > 0, trans_b=1,
            )  # fmt: skip
        ptx.wgmma.commit_group()
        ptx.wgmma.wait_group(0)
        ptx.bar.sync()  # all warps have read the tiles before they are overwritten

    # Two neighbouring columns of a fragment go out in one 8-byte store.
    warp, lane = thread // 32, thread % 32
    row, column = warp * 16 + lane // 4, lane % 4 * 2
    (c,) = ptx.global_ptrs(C)
    for i in range(0, N // 2, 2):
        offset = ((row + i // 2 % 2 * 8) * N + column + i // 4 * 8) * f32.bytes
        ptx.store(ptx.addr(c + offset), [acc[i], acc[i + 1]])


def example() -> Iterator[tuple]:
    """Random normal operands; the products are exact in f32, only their sum is rounded."""
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((M, K), (K, N)))

    def check(c):
        reference = a.astype(np.float64) @ b.astype(np.float64)
        assert np.linalg.norm(c - reference) / np.linalg.norm(reference) < 2e-6

    yield gemm, (a, b), check


def main() -> None:
    print("this kernel is wrong on purpose and would hang a GPU; to see what is said of it:")
    print("    warploom check examples/broken/gemm.py")


if __name__ == "__main__":
    main()
