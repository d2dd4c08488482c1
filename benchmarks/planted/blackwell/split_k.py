"""Split-K: partial products added to C by TMA; left halves by 32x32b, right halves by 16x256b."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from warploom import Tile, kernel, ptx, smem, tmem
from warploom.types import bf16, f32

from .bug import bug

K, M, N, SPLITS, KT = 512, 128, 128, 2, 4


def build():
    @kernel(
        in_specs=(
            Tile.umma_a("M", "K", bf16, tile_m=128, tile_k=64),
            Tile.umma_b("N", "K", bf16, major="K", tile_n=N, tile_k=64),
        ),
        out_specs=(Tile("M", "N", f32, box=(32, 128)),),
        grid=(1, SPLITS, 1),
        block=128,
        arch="sm_100a",
        name="splitk",
    )
    def splitk(A, B, C):
        a, b = smem.umma_tile(bf16, (128, 64), stages=2), smem.umma_tile(bf16, (N, 64), stages=2)
        left, right = smem.array(f32, (128, 32), align=128), smem.array(f32, (128, 32), align=128)
        full, empty, done = smem.mbarrier(2), smem.mbarrier(2), smem.mbarrier(1)
        tid = ptx.special.tid.x()
        warp, lane = tid >> 5, tid & 31
        k0 = ptx.special.ctaid.y() * (KT * 64)
        with ptx.if_(tid == 0):
            for i in range(2):
                ptx.mbarrier.init(full[i], 1)
                ptx.mbarrier.init(empty[i], 1)
            ptx.mbarrier.init(done[0], 1)
            ptx.fence.mbarrier_init()
        memory = tmem.alloc(128)
        acc = memory.accumulator(128, N)

        def load(k):
            st = k % 2
            if k >= 2 and not bug("refill without a wait for the products"):
                ptx.mbarrier.wait(empty[st], (k // 2 + 1 + bug("refill waits for the wrong phase")) % 2)
            n = 2 if bug("expects both stages' bytes") else 1
            ptx.mbarrier.arrive_expect_tx(full[st], n * (a.bytes + b.bytes))
            ptx.tma.load(a[st], A.tma_desc(), (k0 + k * 64, 0), full[st])
            ptx.tma.load(
                b[1 - st if bug("B loaded into the other stage") else st], B.tma_desc(), (k0 + k * 64, 0), full[st]
            )

        with ptx.if_(tid == 0):
            load(0)
            for k in range(KT):
                if k + 1 < KT:
                    load(k + 1)
                if not bug("no wait for the stage"):
                    ptx.mbarrier.wait(full[k % 2], k // 2 % 2)
                if bug("commit before the products"):
                    ptx.tcgen05.commit(empty[k % 2])
                if bug("descriptor with another stride"):
                    for i in range(4):
                        d = a[k % 2].k(i).descriptor() ^ (0x60 << 32)
                        ptx.tcgen05.mma(
                            acc[0], d, b[k % 2].k(i), kind="f16", idesc=0x8200490, accumulate=(k > 0) or i > 0
                        )
                elif bug("descriptor without swizzle"):
                    for i in range(4):
                        d = a[k % 2].k(i).descriptor() ^ (2 << 61)
                        ptx.tcgen05.mma(
                            acc[0], d, b[k % 2].k(i), kind="f16", idesc=0x8200490, accumulate=(k > 0) or i > 0
                        )
                elif bug("descriptor without its version bit"):
                    for i in range(4):
                        d = a[k % 2].k(i).descriptor() ^ (1 << 46)
                        ptx.tcgen05.mma(
                            acc[0], d, b[k % 2].k(i), kind="f16", idesc=0x8200490, accumulate=(k > 0) or i > 0
                        )
                else:
                    ptx.tcgen05.multiply(
                        acc[0], a[k % 2], b[k % 2], accumulate=False if bug("never accumulates") else k > 0
                    )
                if k + 2 < KT and not bug("commit before the products"):
                    ptx.tcgen05.commit(empty[k % 2])
            ptx.tcgen05.commit(full[0] if bug("commit to the wrong barrier") else done[0])
        if not bug("no wait for the products"):
            ptx.mbarrier.wait(done[0], 1 if bug("wait for the wrong phase") else 0)
        if not bug("no fence::after"):
            ptx.tcgen05.fence_after_thread_sync()
        for half in range(2):
            if half and not bug("buffers reused without a wait for the store"):
                with ptx.if_(tid == 0):
                    if bug("wait leaves one group in flight"):
                        ptx.cp.async_.bulk.wait_group_read(1)
                    else:
                        ptx.cp.async_.bulk.wait_group_read(0)
                if not bug("no barrier behind the wait for the store"):
                    ptx.bar.sync(1)
            col = half * 64
            base = acc[0]
            part = ptx.tcgen05.ld(
                base + col if bug("left half of the first quarter for all warps") else (base + col).mine(),
                32,
                dtype=f32,
            )
            if not bug("no wait::ld behind the first load"):
                ptx.tcgen05.wait_ld()
            for i in range(0, 32, 4):
                ptx.store(left[0, 0] + tid * 128 + i * 4, part[i : i + 4])
            for top in range(2):
                src = (base + (col + 32)).mine().register() + (
                    (8 if bug("upper half of the fragment 8 lanes further") else 16) * top << 16
                )
                r = ptx.tcgen05.ld(src, 16, shape="16x256b", dtype=f32)
                if bug("stores before wait::ld"):
                    pass
                else:
                    ptx.tcgen05.wait_ld()
                row = warp * 32 + top * 16 + (lane >> 2)
                for j in range(4):
                    for up in range(2):
                        place = right[0, 0] + (row + 8 * up) * 128 + ((lane & 3) * 8 + j * 32)
                        pair = r[4 * j + 2 * up : 4 * j + 2 * up + 2]
                        ptx.store(place, pair)
                if bug("stores before wait::ld"):
                    ptx.tcgen05.wait_ld()
            if not bug("no proxy fence before the TMA reduce"):
                ptx.fence.proxy_async_shared_cta()
            if not bug("no barrier before the TMA reduce"):
                ptx.bar.sync(1)
            with ptx.if_(tid == 0):
                for which, buf in enumerate((left, right)):
                    op = "min" if bug("reduces by min") else "add"
                    x = col + 32 * which
                    if bug("stores instead of adding"):
                        ptx.cp.async_.bulk.tensor_store(C.tma_desc(), buf[0, 0], (x, 0))
                    else:
                        ptx.cp.async_.bulk.tensor_reduce(op, C.tma_desc(), buf[0, 0], (x, 0))
                if not bug("no commit_group"):
                    ptx.cp.async_.bulk.commit_group()
        with ptx.if_(tid == 0):
            if not bug("no final wait_group"):
                ptx.cp.async_.bulk.wait_group(0)
        if bug("no fence::before and no barrier before dealloc"):
            with ptx.if_(warp == 0):
                memory.dealloc(warp=None)
        elif bug("dealloc in one lane's branch"):
            ptx.bar.sync(0)
            with ptx.if_(tid < 16):
                memory.dealloc(warp=None)
        else:
            memory.dealloc()

    return splitk


def arguments():
    rng = np.random.default_rng(0)
    return (
        rng.standard_normal((M, K)).astype(ml_dtypes.bfloat16),
        rng.standard_normal((N, K)).astype(ml_dtypes.bfloat16),
        np.zeros((M, N), np.float32),
    )


def expected(a, b, c):
    return a.astype(float) @ b.astype(float).T


SMS = 2
