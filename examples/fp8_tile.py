"""One fp8 wgmma tile: C (64 x 96, f32) = A (64 x 128, e4m3) @ B^T (96 x 128, e5m2).

Idea       Both fp8 operands are K-major: B is stored N x K. A k-tile of 128 bytes is one row of the 128B swizzle and
           takes four wgmmas (32 elements each); `tile[0].k(i)` moves the descriptor by 32 bytes inside the row.
Roles      one warpgroup; thread 0 starts the two copies
Barriers   full       1 arrival + bytes of both tiles

    python examples/fp8_tile.py
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from warploom import Tile, kernel, ptx, reg, smem
from warploom.types import e4m3, e5m2, f32

M, N, K = 64, 96, 128
K_PER_WGMMA = 32


@kernel(
    in_specs=(
        Tile.wgmma_a(M, K, e4m3, tile_m=M, tile_k=K),
        Tile.wgmma_b(N, K, e5m2, major="K", tile_n=N, tile_k=K),
    ),
    out_specs=(Tile(M, N, f32),),
    grid=(1,),
    block=128,
    arch="sm_90a",
)
def fp8_tile(A, B, C):
    a = smem.wgmma_tile(e4m3, (M, K))
    b = smem.wgmma_tile(e5m2, (N, K))
    full = smem.mbarrier(1)
    acc = reg.array(f32, N // 2)

    thread = ptx.special.tid.x()
    with ptx.if_(thread == 0):
        ptx.mbarrier.init(full[0], 1)
        ptx.fence.proxy_async_shared_cta()
        ptx.mbarrier.arrive_expect_tx(full[0], a.bytes + b.bytes)
        ptx.tma.load(a[0], A.tma_desc(), (0, 0), full[0])
        ptx.tma.load(b[0], B.tma_desc(), (0, 0), full[0])
    ptx.bar.sync(0)
    ptx.mbarrier.wait(full[0], 0)

    ptx.wgmma.fence()
    for i in range(K // K_PER_WGMMA):
        ptx.wgmma.mma_async(
            shape=(M, N, K_PER_WGMMA), dtype_d=f32, dtype_a=e4m3, dtype_b=e5m2,
            d=acc, a=a[0].k(i), b=b[0].k(i), scale_d=i > 0,
        )  # fmt: skip
    ptx.wgmma.commit_group()
    ptx.wgmma.wait_group(0)

    # Two neighbouring columns of a fragment go out in one 8-byte store.
    warp, lane = thread // 32, thread % 32
    row, column = warp * 16 + lane // 4, lane % 4 * 2
    (c,) = ptx.global_ptrs(C)
    for i in range(0, N // 2, 2):
        offset = ((row + i // 2 % 2 * 8) * N + column + i // 4 * 8) * f32.bytes
        ptx.store(ptx.addr(c + offset), [acc[i], acc[i + 1]])


def example() -> Iterator[tuple]:
    """Random normal operands; the products are exact in f32, only their sum is rounded."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((N, K)).astype(ml_dtypes.float8_e5m2)

    def check(c):
        reference = a.astype(np.float64) @ b.astype(np.float64).T
        # The tensor core keeps 13 bits behind the point of the largest product (docs/emulator.md).
        assert np.linalg.norm(c - reference) / np.linalg.norm(reference) < 1e-3

    yield fp8_tile, (a, b), check


def main() -> None:
    for kernel_, arguments, check in example():
        check(kernel_(*arguments))
        print(f"{kernel_.name} {M} x {N} x {K}: agrees with the float64 product of the rounded operands")


if __name__ == "__main__":
    main()
