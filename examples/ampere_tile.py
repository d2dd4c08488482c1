"""An Ampere tile: C = A @ B^T with mma.sync, cp.async and ldmatrix; runs on every GPU from sm_80 on.

Idea       cp.async loads the next k-tile while the tensor cores work on this one: two stages, one group in flight.
           Rows of the shared tiles are padded by 16 bytes, so the eight rows that an ldmatrix reads start in eight
           different groups of four banks.
Roles      four warps, 2 x 2; each computes 32 x 32 of the CTA's 64 x 64 as 2 x 4 tiles of m16n8k16
Buffers    two stages of A 64 x 32 and B 64 x 32, bf16, rows of 80 bytes
Order      wait for this stage, barrier, start the copies of the next one, multiply. After the barrier, all warps have
           read the stage that is about to be overwritten.

    python examples/ampere_tile.py
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from warploom import Tile, kernel, ptx, reg, smem, tiles
from warploom.types import bf16, f32, u32

BM, BN, BK = 64, 64, 32
STAGES = 2
THREADS = 128
CHUNK = 16 // bf16.bytes
"""Elements of one cp.async."""
PITCH = BK + CHUNK
WARP_M, WARP_N = BM // 2, BN // 2


@kernel(
    in_specs=(Tile("M", "K", bf16, multiple=(BM, BK)), Tile("N", "K", bf16, multiple=(BN, BK))),
    out_specs=(Tile("M", "N", f32),),
    grid=(tiles("N", BN), tiles("M", BM)),
    block=THREADS,
    arch="sm_80",
)
def ampere_gemm(A, B, C):
    shared_a = smem.array(bf16, (STAGES, BM, PITCH))
    shared_b = smem.array(bf16, (STAGES, BN, PITCH))
    _, k = A.shape
    _, n = C.shape
    pa, pb, pc = ptx.global_ptrs(A, B, C)
    thread = ptx.special.tid.x()
    top, left = ptx.special.ctaid.y() * BM, ptx.special.ctaid.x() * BN

    def start_copies(stage, k_tile):
        """This thread's share of one k-tile: two chunks of 16 bytes of each operand."""
        for shared, pointer, first_row, rows in ((shared_a, pa, top, BM), (shared_b, pb, left, BN)):
            for first in range(0, rows * BK // CHUNK, THREADS):
                chunk = thread + first
                row, column = chunk // (BK // CHUNK), chunk % (BK // CHUNK) * CHUNK
                source = ((first_row + row) * k + k_tile * BK + column) * bf16.bytes
                ptx.cp.async_.cg(shared[stage, row, column], ptx.addr(pointer + source))
        ptx.cp.async_.commit_group()

    warp, lane = thread // 32, thread % 32
    warp_row, warp_column = warp // 2 * WARP_M, warp % 2 * WARP_N
    acc = [[reg.array(f32, 4, init=0.0) for _ in range(WARP_N // 8)] for _ in range(WARP_M // 16)]

    k_tiles = k // BK
    start_copies(0, reg.scalar(u32, init=0))
    for k_tile in ptx.range(k_tiles):
        stage = k_tile & 1
        ptx.cp.async_.wait_group(0)
        ptx.bar.sync(0)
        with ptx.if_(k_tile + 1 < k_tiles):
            start_copies(stage ^ 1, k_tile + 1)
        for inner in range(0, BK, 16):
            # Lane l points at row l % 16 of a 16 x 16 block of A, at its left or right half; of B, whose rows are
            # columns of the product, the four matrices are two groups of 8 rows by two halves of k.
            a = [
                ptx.ldmatrix(shared_a[stage, warp_row + block * 16 + lane % 16, lane // 16 * 8 + inner])
                for block in range(WARP_M // 16)
            ]
            b = [
                ptx.ldmatrix(
                    shared_b[stage, warp_column + pair * 16 + lane // 16 * 8 + lane % 8, lane // 8 % 2 * 8 + inner]
                )
                for pair in range(WARP_N // 16)
            ]
            for i, row in enumerate(acc):
                for j, tile in enumerate(row):
                    ptx.mma_sync(
                        shape=(16, 8, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16,
                        d=tile, a=a[i], b=b[j // 2][j % 2 * 2 : j % 2 * 2 + 2],
                    )  # fmt: skip

    for i, row in enumerate(acc):
        for j, tile in enumerate(row):
            for half in range(2):
                r = top + warp_row + lane // 4 + i * 16 + half * 8
                c = left + warp_column + lane % 4 * 2 + j * 8
                ptx.store(ptx.addr(pc + (r * n + c) * f32.bytes), [tile[2 * half], tile[2 * half + 1]])


def example() -> Iterator[tuple]:
    """One k-tile, and several k-tiles in several CTAs."""
    rng = np.random.default_rng(0)
    for m, n, k in ((64, 64, 32), (64, 128, 160)):
        a = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
        b = rng.standard_normal((n, k)).astype(ml_dtypes.bfloat16)

        def check(c, a=a, b=b):
            reference = a.astype(np.float64) @ b.astype(np.float64).T
            assert np.linalg.norm(c - reference) / np.linalg.norm(reference) < 2e-6

        yield ampere_gemm, (a, b), check


def main() -> None:
    for kernel_, (a, b), check in example():
        check(kernel_(a, b))
        print(f"{kernel_.name} {a.shape[0]} x {b.shape[0]} x {a.shape[1]}: relative error below 2e-6")


if __name__ == "__main__":
    main()
