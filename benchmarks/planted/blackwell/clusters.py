"""Two pairs in a cluster of four share B by multicast; tiles by launch control."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from warploom import Tile, kernel, ptx, reg, smem, tmem
from warploom.types import b128, bf16, f32, u32, u64

from .bug import bug, step

K, M, N, STAGES = 256, 2048, 128, 2
KT = K // 64


def build():
    @kernel(
        in_specs=(
            Tile.umma_a("M", "K", bf16, tile_m=128, tile_k=64),
            Tile.umma_b("N", "K", bf16, major="K", tile_n=16, tile_k=64),
        ),
        out_specs=(Tile("M", "N", f32),),
        grid=(M // 128 * (N // 64), 1, 1),
        block=256,
        cluster=(4, 1, 1),
        arch="sm_100a",
        name="pairs",
    )
    def pairs(A, B, C):
        a, b = smem.umma_tile(bf16, (128, 64), stages=STAGES), smem.umma_tile(bf16, (32, 64), stages=STAGES)
        answer = smem.array(b128, 2)
        full, empty = smem.mbarrier(STAGES), smem.mbarrier(STAGES)
        afull, aempty = smem.mbarrier(2), smem.mbarrier(2)
        qfull, qempty = smem.mbarrier(2), smem.mbarrier(2)
        tid = ptx.special.tid.x()
        warp, lane = tid >> 5, tid & 31
        rank = ptx.special.cluster_ctarank()
        half = rank & 1
        leads = half == 0
        with ptx.if_(tid == 0):
            for i in range(STAGES):
                ptx.mbarrier.init(full[i], 1)
                ptx.mbarrier.init(empty[i], 1 if bug("empty counts one pair") else 2)
            for i in range(2):
                ptx.mbarrier.init(afull[i], 1)
                ptx.mbarrier.init(aempty[i], 4 if bug("accumulator-empty counts one CTA") else 8)
                ptx.mbarrier.init(qfull[i], 1)
                ptx.mbarrier.init(qempty[i], 4 + 2 + 16 + 4 - (4 if bug("queue-empty forgets the schedulers") else 0))
            if not bug("no fence.mbarrier_init"):
                ptx.fence.mbarrier_init()
        if bug("no cluster barrier before the first remote access"):
            memory = tmem.reserve(128, group=2)
            with ptx.if_(warp == 0):
                memory.alloc()
            ptx.bar.sync(0)
            memory.open()
        else:
            memory = tmem.alloc(128, group=2)
        acc = memory.accumulator(256, 64, buffers=2)

        def tiles(role, whole=False):
            s, p = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            number = reg.scalar(u32, init=ptx.special.ctaid.x() // 4)
            with ptx.loop():
                yield (number >> 1) * 512, (number & 1) * 64
                ptx.break_(~take(s, p, number, whole))

        def take(s, p, number, whole):
            if not bug("answer read without a wait"):
                ptx.mbarrier.wait(qfull[s], p)
            response = ptx.clusterlaunchcontrol.response(answer[s])
            granted = ptx.clusterlaunchcontrol.is_canceled(response)
            x, _, _ = ptx.clusterlaunchcontrol.first_ctaid(response)
            number.set(x if bug("index of the CTA taken as that of the cluster") else x // 4)
            if not bug("no proxy fence behind the read of an answer"):
                ptx.fence.proxy_async()
            if whole:
                ptx.inst.bar.warp.sync(-1)
                speaks = lane == 0
            else:
                speaks = None
            if bug("answers released in the own CTA"):
                ptx.mbarrier.arrive(qempty[s], pred=speaks)
            else:
                ptx.mbarrier.arrive_remote(qempty[s], 0, pred=speaks, relaxed=bug("answers released relaxed"))
            step(s, p, 2)
            return granted

        with ptx.if_((warp == 0) & (lane == 0)):
            s, p = reg.scalar(u32, init=0), reg.scalar(u32, init=1)
            for row, column in tiles("load"):
                for k in ptx.range(KT):
                    if not bug("loader does not wait"):
                        ptx.mbarrier.wait(empty[s], p)
                    size = (a.bytes + b.bytes) * (
                        1 if bug("bytes of one CTA") else 4 if bug("bytes of the cluster") else 2
                    )
                    if bug("both CTAs expect bytes"):
                        ptx.mbarrier.arrive_expect_tx(full[s], size)
                    else:
                        ptx.mbarrier.arrive_expect_tx(full[s], size, pred=leads)
                    bar = full[s] if bug("A signals the own CTA's barrier") else ptx.cluster.leader_of(full[s])
                    barb = ptx.cluster.leader_of(full[s])
                    a_row = row + (half * 128 if bug("pairs load the same rows of A") else rank * 128)
                    ptx.tma.load(a[s], A.tma_desc(), (k * 64, a_row), bar, group=2)
                    other = rank >> 1
                    if bug("mask of both CTAs of the pair"):
                        mask = (rank >> 1) * 9 + 3  # 0b0011 or 0b1100
                    elif bug("mask of the whole cluster"):
                        mask = reg.scalar(u32, init=15)
                    elif bug("no multicast to the other pair"):
                        mask = (rank * 0 + 1) << rank
                    else:
                        mask = (half + 1) * 5  # 0b0101 or 0b1010
                    at = other * 16 * 128
                    if bug("slices of B land at the same place"):
                        at = 0 * other
                    b_row = column + (rank >> 1 if bug("rows of B by the wrong CTA rank") else half) * 32 + other * 16
                    extra = dict(multicast=mask, group=2)
                    if bug("multicast without cta_group"):
                        extra = dict(multicast=mask)
                    ptx.cp.async_.bulk.tensor_2d(b[s] + at, B.tma_desc(), (k * 64, b_row), barb, **extra)
                    step(s, p, STAGES)
        guard = (warp == 1) & (lane == 0)
        if not bug("both CTAs of a pair multiply"):
            guard = guard & leads
        with ptx.if_(guard):
            s, p = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            u, r = reg.scalar(u32, init=0), reg.scalar(u32, init=1)
            for _row, _column in tiles("multiply"):
                if not bug("multiply does not wait for the accumulator"):
                    ptx.mbarrier.wait(aempty[u], r, scope="cluster")
                ptx.tcgen05.fence_after_thread_sync()
                for k in ptx.range(KT):
                    if not bug("multiply does not wait for its stage"):
                        ptx.mbarrier.wait(full[s], p)
                    ptx.tcgen05.fence_after_thread_sync()
                    ptx.tcgen05.multiply(acc[u], a[s], b[s], accumulate=k > 0)
                    mask = 3 if bug("stage freed in the first pair only") else 15
                    if bug("stage freed in the own pair only"):
                        mask = ptx.select(rank < 2, reg.scalar(u32, init=3), reg.scalar(u32, init=12))
                    if bug("commit without multicast"):
                        ptx.tcgen05.commit(empty[s], group=2)
                    else:
                        ptx.tcgen05.commit(empty[s], group=2, multicast=mask)
                    step(s, p, STAGES)
                pair = ptx.select(rank < 2, reg.scalar(u32, init=3), reg.scalar(u32, init=12))
                if bug("accumulator committed to mask 3 in each pair"):
                    pair = 3
                if bug("accumulator committed to all"):
                    pair = 15
                if bug("accumulator committed to the leader only"):
                    ptx.tcgen05.commit(afull[u], group=2)
                else:
                    ptx.tcgen05.commit(afull[u], group=2, multicast=pair)
                step(u, r, 2)
        with ptx.if_((warp == 2) & (lane == 0)):
            s, p = reg.scalar(u32, init=0), reg.scalar(u32, init=1)
            s2, p2 = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            number = reg.scalar(u32, init=0)
            with ptx.loop():
                if not bug("only CTA 0 expects an answer"):
                    ptx.mbarrier.arrive_expect_tx(qfull[s], 16, pred=rank != 0)
                with ptx.if_(rank == 0):
                    if not bug("scheduler does not wait for its slot"):
                        ptx.mbarrier.wait(
                            qempty[s], p, scope="cta" if bug("scheduler acquires at CTA scope") else "cluster"
                        )
                    ptx.mbarrier.arrive_expect_tx(qfull[s], 32 if bug("32 bytes of an answer") else 16)
                    ptx.clusterlaunchcontrol.try_cancel(answer[s], qfull[s], multicast=not bug("answer for CTA 0 only"))
                step(s, p, 2)
                more = take(s2, p2, number, False)
                if bug("scheduler asks once more after a decline"):
                    with ptx.if_((rank == 0) & ~more):
                        ptx.mbarrier.wait(qempty[s], p, scope="cluster")
                        ptx.mbarrier.arrive_expect_tx(qfull[s], 16)
                        ptx.clusterlaunchcontrol.try_cancel(answer[s], qfull[s])
                ptx.break_(~more)
        with ptx.if_(warp >= 4):
            u, r = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            for row, column in tiles("store", True):
                if not bug("epilogue does not wait"):
                    ptx.mbarrier.wait(afull[u], r)
                ptx.tcgen05.fence_after_thread_sync()
                part = acc[u].load(0, 64)
                if bug("accumulator released before wait::ld"):
                    ptx.mbarrier.arrive_remote(aempty[u], rank & 2, pred=lane == 0)
                if not bug("no wait::ld"):
                    ptx.tcgen05.wait_ld()
                ptx.tcgen05.fence_before_thread_sync()
                ptx.inst.bar.warp.sync(-1)
                to_leader = rank * 0 if bug("accumulators of all pairs returned to CTA 0") else rank & 2
                if bug("accumulator returned to the own CTA"):
                    ptx.mbarrier.arrive(aempty[u], pred=lane == 0)
                elif not bug("accumulator released before wait::ld"):
                    ptx.mbarrier.arrive_remote(
                        aempty[u], to_leader, pred=lane == 0, relaxed=bug("accumulator returned relaxed")
                    )
                mine = part.row if bug("row of the pair taken as that of the cluster") else part.row + (rank >> 1) * 256
                to = C.pointer() + ((row + mine).to(u64) * N + column.to(u64)) * 4
                for i in range(0, 64, 4):
                    ptx.store(ptx.addr(to, i * 4), part[i : i + 4])
                step(u, r, 2)
        if bug("no cluster barrier at the end"):
            ptx.bar.sync(0)
            with ptx.if_(warp == 0):
                memory.dealloc(warp=None)
        elif bug("one CTA of the pair frees"):
            ptx.cluster.sync()
            with ptx.if_((warp == 0) & leads):
                memory.dealloc(warp=None)
        else:
            memory.dealloc()

    return pairs


def arguments():
    rng = np.random.default_rng(0)
    return rng.standard_normal((M, K)).astype(ml_dtypes.bfloat16), rng.standard_normal((N, K)).astype(
        ml_dtypes.bfloat16
    )


def expected(a, b):
    return a.astype(float) @ b.astype(float).T


SMS = 4
