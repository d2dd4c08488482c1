"""One tf32 wgmma tile: C (64 x 48, f32) = A (64 x 64, f32) @ B^T (48 x 64, f32), A from registers.

Idea       tf32 is f32 of which the tensor core ignores the low 13 bits. The A operand may come from registers: each
           thread loads its own fragment (four values per wgmma) from global memory, and only B goes through shared
           memory. k = 64 floats are two panels of the 128B swizzle, so B is two TMA boxes.
Roles      one warpgroup; thread 0 starts the copies
Barriers   full       1 arrival + bytes of B

    python examples/tf32_tile.py
"""

from collections.abc import Iterator

import numpy as np

from warploom import Tile, kernel, ptx, reg, smem
from warploom.types import f32, tf32

M, N, K = 64, 48, 64
K_PER_WGMMA = 8


@kernel(
    in_specs=(Tile(M, K, f32), Tile.wgmma_b(N, K, f32, major="K", tile_n=N, tile_k=K)),
    out_specs=(Tile(M, N, f32),),
    grid=(1,),
    block=128,
    arch="sm_90a",
)
def tf32_tile(A, B, C):
    b = smem.wgmma_tile(tf32, (N, K))
    full = smem.mbarrier(1)
    acc = reg.array(f32, N // 2)

    thread = ptx.special.tid.x()
    with ptx.if_(thread == 0):
        ptx.mbarrier.init(full[0], 1)
        ptx.fence.proxy_async_shared_cta()
        ptx.mbarrier.arrive_expect_tx(full[0], b.bytes)
        ptx.tma.load(b[0], B.tma_desc(), (0, 0), full[0])

    # The A fragment of thread t: rows g and g + 8 of its warp's 16, k = q and q + 4 (PTX ISA 9.7.15.5.1.1).
    warp, lane = thread // 32, thread % 32
    g, q = lane // 4, lane % 4
    row = warp * 16 + g
    pa, pc = ptx.global_ptrs(A, C)
    fragments = []
    for i in range(K // K_PER_WGMMA):
        fragment = reg.array(tf32, 4)
        for j in range(4):
            offset = ((row + j % 2 * 8) * K + q + i * K_PER_WGMMA + j // 2 * 4) * f32.bytes
            ptx.inst.ld.global_.b32(fragment[j], ptx.addr(pa + offset))
        fragments.append(fragment)

    ptx.bar.sync(0)
    ptx.mbarrier.wait(full[0], 0)
    ptx.wgmma.fence()
    for i, fragment in enumerate(fragments):
        ptx.wgmma.mma_async(
            shape=(M, N, K_PER_WGMMA), dtype_d=f32, dtype_a=tf32, dtype_b=tf32,
            d=acc, a=fragment, b=b[0].k(i), scale_d=i > 0,
        )  # fmt: skip
    ptx.wgmma.commit_group()
    ptx.wgmma.wait_group(0)

    for i in range(0, N // 2, 2):
        offset = ((row + i // 2 % 2 * 8) * N + q * 2 + i // 4 * 8) * f32.bytes
        ptx.store(ptx.addr(pc + offset), [acc[i], acc[i + 1]])


def cut(x: np.ndarray) -> np.ndarray:
    """f32 values as the tensor core reads them, without the low 13 bits."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def example() -> Iterator[tuple]:
    """Random normal operands; the reference multiplies what the tensor core reads."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K), dtype=np.float32)
    b = rng.standard_normal((N, K), dtype=np.float32)

    def check(c):
        reference = cut(a).astype(np.float64) @ cut(b).astype(np.float64).T
        assert np.linalg.norm(c - reference) / np.linalg.norm(reference) < 2e-6

    yield tf32_tile, (a, b), check


def main() -> None:
    for kernel_, arguments, check in example():
        check(kernel_(*arguments))
        print(f"{kernel_.name} {M} x {N} x {K}: relative error below 2e-6 against the product of the cut operands")


if __name__ == "__main__":
    main()
