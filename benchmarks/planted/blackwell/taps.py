"""Two taps along the rows: A goes to tensor memory by tcgen05.cp, is multiplied, shifted by a row, multiplied again."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from warploom import Tile, kernel, ptx, smem, tmem
from warploom.types import bf16, f32, u64

from .bug import bug

K, M, N = 64, 128, 64
KT = K // 16


def build():
    @kernel(
        in_specs=(
            Tile("M", "K", bf16, box=(8, 128)),
            Tile.umma_b("N", "K", bf16, major="K", tile_n=N, tile_k=64),
            Tile.umma_b("N", "K", bf16, major="K", tile_n=N, tile_k=64),
        ),
        out_specs=(Tile("M", "N", f32),),
        grid=(1, 1, 1),
        block=128,
        arch="sm_100a",
        name="taps",
    )
    def taps(A, B0, B1, C):
        a = smem.umma_tile(bf16, (128, 16), swizzle="NONE", stages=2)
        b0, b1 = smem.umma_tile(bf16, (N, 64)), smem.umma_tile(bf16, (N, 64))
        full, free, weights, done = smem.mbarrier(2), smem.mbarrier(2), smem.mbarrier(1), smem.mbarrier(1)
        tid = ptx.special.tid.x()
        with ptx.if_(tid == 0):
            for i in range(2):
                ptx.mbarrier.init(full[i], 1)
                ptx.mbarrier.init(free[i], 1)
            ptx.mbarrier.init(weights[0], 1)
            ptx.mbarrier.init(done[0], 1)
            ptx.fence.mbarrier_init()
        memory = tmem.alloc(128)
        acc = memory.accumulator(128, N)
        ta = memory.matrix_a(16, bf16, buffers=KT)
        with ptx.if_(tid == 32):
            ptx.mbarrier.arrive_expect_tx(weights[0], b0.bytes if bug("bytes of one tap's weights") else 2 * b0.bytes)
            ptx.tma.load(b0[0], B0.tma_desc(), (0, 0), weights[0])
            ptx.tma.load(b1[0], B1.tma_desc(), (0, 0), weights[0])
            for k in range(KT):
                if k >= 2 and not bug("A refilled without a wait"):
                    ptx.mbarrier.wait(free[k % 2], (k // 2 + 1 + bug("A refilled on the wrong phase")) % 2)
                ptx.mbarrier.arrive_expect_tx(full[k % 2], a.bytes)
                for half in range(1 if bug("half of A loaded") else 2):
                    ptx.cp.async_.bulk.tensor_2d(
                        a[k % 2] + half * 128 * 16, A.tma_desc(), (k * 16 + 8 * half, 0), full[k % 2]
                    )
        with ptx.if_(tid == 0):
            if not bug("weights not waited for"):
                ptx.mbarrier.wait(weights[0], 0)
            for k in range(KT):
                if not bug("A not waited for"):
                    ptx.mbarrier.wait(full[k % 2], k // 2 % 2)
                src = a[k % 2]
                shape = "128x128b" if bug("copied by 128x128b") else "128x256b"
                to = ta[0] if bug("one buffer of A for all") else ta[k]
                if not bug("A not copied again") or k == 0:
                    ptx.tcgen05.cp(to, src, shape=shape)
                if bug("stage given back by arrive"):
                    ptx.mbarrier.arrive(free[k % 2])
                elif not bug("stage given back before the copy is committed") and k + 2 < KT:
                    ptx.tcgen05.commit(free[k % 2])
                ptx.tcgen05.mma(acc[0], to, b0[0].k(k), accumulate=k > 0 or bug("first product adds"))
                if not bug("not shifted"):
                    ptx.tcgen05.shift(ta[(k + 1) % KT] if bug("the other buffer shifted") else to)
                ptx.tcgen05.mma(acc[0], to, (b0 if bug("second tap with the first weights") else b1)[0].k(k))
            if not bug("done not committed"):
                ptx.tcgen05.commit(done[0])
        if not bug("epilogue does not wait"):
            ptx.mbarrier.wait(done[0], 1 if bug("epilogue waits for the wrong phase") else 0)
        ptx.tcgen05.fence_after_thread_sync()
        for start in (0, 32):
            part = acc[0].load(start, 32)
            ptx.tcgen05.wait_ld()
            to = C.pointer() + (part.row.to(u64) * N + start) * 4
            for i in range(0, 32, 4):
                ptx.store(ptx.addr(to, i * 4), part[i : i + 4])
        memory.dealloc()

    return taps


def arguments():
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((M, K), (N, K), (N, K)))


def expected(a, b0, b1):
    a = a.astype(float)
    r = np.arange(M)
    return a @ b0.astype(float).T + a[np.where(r % 32 < 31, r + 1, r)] @ b1.astype(float).T


SMS = 1
