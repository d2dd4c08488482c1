"""int8 x bf16: A comes as s8, four warps convert it and put it into tensor memory; B from shared memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from warploom import Tile, kernel, ptx, reg, smem, tmem
from warploom.isa.instruction_descriptor import InstructionDescriptor
from warploom.types import b32, bf16, f32, s8, s32, u32, u64

from .bug import bug, step

K, M, N, STAGES = 320, 256, 64, 2
KT = K // 64


def build():
    @kernel(
        in_specs=(
            Tile("M", "K", s8, box=(64, 128)),
            Tile.umma_b("N", "K", bf16, major="K", tile_n=N, tile_k=64),
            Tile("M", f32),
        ),
        out_specs=(Tile("M", "N", f32),),
        grid=(2, 1, 1),
        block=192,
        arch="sm_100a",
        name="weights",
    )
    def weights(A, B, S, C):
        raw = smem.array(s8, (STAGES, 128, 64), align=128)
        b = smem.umma_tile(bf16, (N, 64), stages=STAGES)
        rfull, rempty = smem.mbarrier(STAGES), smem.mbarrier(STAGES)
        bfull, bempty = smem.mbarrier(STAGES), smem.mbarrier(STAGES)
        tfull, tempty = smem.mbarrier(2), smem.mbarrier(2)
        done = smem.mbarrier(1)
        tid = ptx.special.tid.x()
        warp, lane = tid >> 5, tid & 31
        row0 = ptx.special.ctaid.x() * 128
        with ptx.if_(tid == 0):
            for i in range(STAGES):
                ptx.mbarrier.init(rfull[i], 1)
                ptx.mbarrier.init(rempty[i], 32 if bug("raw tile released by one warp's count") else 128)
                ptx.mbarrier.init(bfull[i], 1)
                ptx.mbarrier.init(bempty[i], 1)
                ptx.mbarrier.init(tfull[i], 128)
                ptx.mbarrier.init(tempty[i], 1)
            ptx.mbarrier.init(done[0], 1)
            ptx.fence.mbarrier_init()
        slot = tmem.reserve(128)
        with ptx.if_(warp == 4):
            slot.alloc(relinquish=not bug("permit not relinquished"))
        if not bug("no barrier between alloc and the read of the address"):
            ptx.bar.sync(0)
        slot.open()
        acc = slot.accumulator(128, N)
        ta = slot.matrix_a(64, bf16, buffers=2)  # 32 columns each
        if bug("columns of A overlap the accumulator"):
            ta.start -= 16
        with ptx.if_((warp == 4) & (lane == 0)):
            s, p = reg.scalar(u32, init=0), reg.scalar(u32, init=1)
            for k in ptx.range(KT):
                if not bug("loader does not wait for raw"):
                    ptx.mbarrier.wait(rempty[s], p)
                ptx.mbarrier.arrive_expect_tx(rfull[s], 128 * 64 * (2 if bug("expects bytes of bf16") else 1))
                ptx.cp.async_.bulk.tensor_2d(raw[s, 0, 0], A.tma_desc(), (k * 64, row0), rfull[s])
                if not bug("loader does not wait for B's stage"):
                    ptx.mbarrier.wait(bempty[s], p)
                ptx.mbarrier.arrive_expect_tx(bfull[s], b.bytes)
                ptx.tma.load(b[s], B.tma_desc(), (k * 64, 0), bfull[s])
                step(s, p, STAGES)
        with ptx.if_((warp == 5) & (lane == 0)):
            s, p = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            for k in ptx.range(KT):
                if not bug("multiply does not wait for B"):
                    ptx.mbarrier.wait(bfull[s], p)
                if not bug("multiply does not wait for A"):
                    ptx.mbarrier.wait(tfull[s], (p ^ 1) if bug("multiply waits for the other phase of A") else p)
                if not bug("no fence::after in the multiply thread"):
                    ptx.tcgen05.fence_after_thread_sync()
                form = InstructionDescriptor(
                    "f16",
                    64 if bug("idesc says M = 64") else 128,
                    N // 2 if bug("idesc says half of N") else N,
                    "f16" if bug("idesc says A is f16") else "bf16",
                    "bf16",
                    mn_major_b=bug("idesc says B is MN-major"),
                    negate_a=bug("idesc negates A"),
                )
                for i in range(4):
                    if i == 3 and bug("A released before the last product"):
                        ptx.tcgen05.commit(tempty[s])
                    ptx.tcgen05.mma(
                        acc[0],
                        ta[s] + (4 if bug("A's slices half as wide") else 8) * i,
                        b[s].k(i),
                        accumulate=(k > 0) if i == 0 else True,
                        kind="f16",
                        idesc=form.encode(),
                    )
                if bug("one commit for both releases, B's stage by arrive"):
                    ptx.mbarrier.arrive(bempty[s])
                elif not bug("B's stage not committed"):
                    ptx.tcgen05.commit(bempty[s])
                if not bug("A released before the last product"):
                    ptx.tcgen05.commit(tempty[s])
                step(s, p, STAGES)
            if not bug("done not committed"):
                ptx.tcgen05.commit(done[0])
        with ptx.if_(warp < 4):
            s, p = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            for _k in ptx.range(KT):
                if not bug("converter does not wait for raw"):
                    ptx.mbarrier.wait(rfull[s], p)
                words = []
                place = raw[s, 0, 0] + tid * 64
                if bug("raw released before the reads"):
                    ptx.mbarrier.arrive(rempty[s])
                got = []
                for q in range(4):
                    got += [ptx.load(s32, place + 16 * q + 4 * w) for w in range(4)]
                for w in got:
                    fs = []
                    for byte in range(4):
                        e = reg.scalar(s32)
                        ptx.inst.bfe.s32(e, w, 8 * byte, 8)
                        fs.append(e.to(f32))
                    for lo in (0, 2):
                        word = reg.scalar(b32)
                        ptx.inst.cvt.rn.bf16x2.f32(word, fs[lo + 1], fs[lo])
                        words.append(word)
                if bug("raw not released") or bug("raw released before the reads"):
                    pass
                elif bug("lane 0 releases the raw tile for its warp, without a syncwarp"):
                    ptx.mbarrier.arrive(rempty[s], 32, pred=lane == 0)
                else:
                    ptx.mbarrier.arrive(rempty[s])
                if not bug("converter does not wait for its columns"):
                    ptx.mbarrier.wait(
                        tempty[s], p if bug("converter waits for the wrong phase of its columns") else p ^ 1
                    )
                if not bug("no fence::after in the converters"):
                    ptx.tcgen05.fence_after_thread_sync()
                where = ta[s] if bug("all warps store into the first quarter") else ta[s].mine()
                if bug("stored in the next buffer"):
                    where = ta[s ^ 1].mine()
                if bug("half of the columns stored"):
                    ptx.tcgen05.st(where, words[:16])
                else:
                    ptx.tcgen05.st(where, words)
                if bug("arrive before wait::st"):
                    ptx.mbarrier.arrive(tfull[s])
                if bug("wait::ld instead of wait::st"):
                    ptx.tcgen05.wait_ld()
                elif not bug("no wait::st"):
                    ptx.tcgen05.wait_st()
                if not bug("no fence::before in the converters"):
                    ptx.tcgen05.fence_before_thread_sync()
                if not bug("arrive before wait::st"):
                    ptx.mbarrier.arrive(tfull[s])
                step(s, p, STAGES)
            if not bug("epilogue does not wait"):
                ptx.mbarrier.wait(done[0], 0)
            ptx.tcgen05.fence_after_thread_sync()
            scale = ptx.load(f32, ptx.addr(S.pointer() + (row0 + tid).to(u64) * 4))
            for start in range(0, N, 32):
                part = acc[0].load(start, 32)
                if not bug("no wait::ld in the epilogue"):
                    ptx.tcgen05.wait_ld()
                out = [v * scale for v in part[0:32]]
                to = C.pointer() + ((part.row + row0).to(u64) * N + start) * 4
                for i in range(0, 32, 4):
                    ptx.store(ptx.addr(to, i * 4), out[i : i + 4])
        if bug("freed before the epilogue's end"):
            with ptx.if_(warp == 4):
                slot.dealloc(warp=None)
        else:
            ptx.bar.sync(0)
            with ptx.if_(warp == (3 if bug("freed by another warp") else 4)):
                if bug("half of the columns freed"):
                    ptx.tcgen05.dealloc(slot.base, 64)
                elif bug("freed twice"):
                    slot.dealloc(warp=None)
                    slot.dealloc(warp=None)
                else:
                    slot.dealloc(warp=None)

    return weights


def arguments():
    rng = np.random.default_rng(0)
    return (
        rng.integers(-128, 128, (M, K), np.int8),
        rng.standard_normal((N, K)).astype(ml_dtypes.bfloat16),
        rng.uniform(0.5, 2, M).astype(np.float32),
    )


def expected(a, b, s):
    return a.astype(float) @ b.astype(float).T * s[:, None]


SMS = 1
