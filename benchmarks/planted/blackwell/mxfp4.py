"""mxfp4 GEMM: factors stream through a ring of their own, three deep; two accumulators."""

from __future__ import annotations

import numpy as np

from warploom import Tile, kernel, ptx, reg, smem, tmem
from warploom.isa.instruction_descriptor import InstructionDescriptor
from warploom.types import f32, u8, u32, u64

from .bug import bug, step

K, TILES, STAGES, SFS = 1280, 3, 2, 3  # elements; tiles of columns; stages
KT = K // 256


def build():
    @kernel(
        in_specs=(
            Tile.umma_a("M", "K", u8, tile_m=128, tile_k=128),
            Tile.umma_b("N", "K", u8, major="K", tile_n=128, tile_k=128),
            Tile("MA", "KA", 512, u8),
            Tile("NA", "KA", 512, u8),
        ),
        out_specs=(Tile("M", "N", f32),),
        grid=(1, 1, 1),
        block=256,
        arch="sm_100a",
        name="mxfp4",
    )
    def mxfp4(A, B, SA, SB, C):
        a, b = smem.umma_tile(u8, (128, 128), stages=STAGES), smem.umma_tile(u8, (128, 128), stages=STAGES)
        fa = smem.umma_tile(u8, (32, 16), swizzle="NONE", stages=2 * SFS)
        fb = smem.umma_tile(u8, (32, 16), swizzle="NONE", stages=2 * SFS)
        full, empty = smem.mbarrier(STAGES), smem.mbarrier(STAGES)
        sfull, sempty = smem.mbarrier(SFS), smem.mbarrier(SFS)
        afull, aempty = smem.mbarrier(2), smem.mbarrier(2)
        tid = ptx.special.tid.x()
        warp, lane = tid >> 5, tid & 31
        with ptx.if_(tid == 0):
            for i in range(STAGES):
                ptx.mbarrier.init(full[i], 1)
                ptx.mbarrier.init(empty[i], 1)
            for i in range(SFS):
                ptx.mbarrier.init(sfull[i], 2 if bug("factor barrier expects two arrivals") else 1)
                ptx.mbarrier.init(sempty[i], 1)
            for i in range(2):
                ptx.mbarrier.init(afull[i], 1)
                ptx.mbarrier.init(aempty[i], 1 if bug("accumulator-empty barrier counts one warp") else 4)
            ptx.fence.mbarrier_init()
        memory = tmem.alloc(512)
        acc = memory.accumulator(128, 128, buffers=2)
        ca = memory.scales(128, blocks=2, buffers=1 if bug("one set of columns for A's factors") else SFS)
        cb = memory.scales(128, blocks=2, buffers=SFS)
        with ptx.if_((warp == 0) & (lane == 0)):
            s, p = (
                reg.scalar(u32, init=0),
                reg.scalar(u32, init=0 if bug("loader waits for the first phase of empty") else 1),
            )
            for n in ptx.range(TILES):
                for k in ptx.range(KT):
                    if not bug("loader does not wait for empty"):
                        ptx.mbarrier.wait(empty[s], p)
                    ptx.mbarrier.arrive_expect_tx(
                        full[s], a.bytes if bug("expect_tx counts A only") else a.bytes + b.bytes
                    )
                    ptx.tma.load(a[s], A.tma_desc(), (k * 128, 0), full[s])
                    ptx.tma.load(b[s], B.tma_desc(), (k * 128, n * 128), full[s])
                    step(s, p, STAGES)
        with ptx.if_((warp == 1) & (lane == 0)):
            s, p = reg.scalar(u32, init=0), reg.scalar(u32, init=1)
            for n in ptx.range(TILES):
                for k in ptx.range(KT):
                    if not bug("factor loader does not wait"):
                        ptx.mbarrier.wait(sempty[s], p)
                    ptx.mbarrier.arrive_expect_tx(
                        sfull[s], 1024 if bug("bytes of one side's factors expected") else 2048
                    )
                    off_a = k.to(u64) * 1024
                    off_b = (n * KT + k).to(u64) * 1024
                    ptx.cp.async_.bulk.load(fa[s * 2], ptx.addr(SA.pointer() + off_a), 1024, sfull[s])
                    if bug("B's factors loaded half"):
                        ptx.cp.async_.bulk.load(fb[s * 2], ptx.addr(SB.pointer() + off_b), 512, sfull[s])
                    else:
                        ptx.cp.async_.bulk.load(
                            fb[s * 2],
                            ptx.addr(SB.pointer() + off_b),
                            1024,
                            full[0] if bug("B's factors signal the wrong barrier") else sfull[s],
                        )
                    step(s, p, STAGES if bug("factor loader wraps at the wrong length") else SFS)
        with ptx.if_((warp == 2) & (lane == 0)):
            s, p = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            t, q = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            u, r = reg.scalar(u32, init=0), reg.scalar(u32, init=1)
            for _n in ptx.range(TILES):
                if not bug("multiply does not wait for the accumulator"):
                    ptx.mbarrier.wait(aempty[u], r)
                ptx.tcgen05.fence_after_thread_sync()
                for k in ptx.range(KT):
                    if not bug("multiply does not wait for the factors"):
                        ptx.mbarrier.wait(sfull[t], q)
                    if not bug("multiply does not wait for A and B"):
                        ptx.mbarrier.wait(full[s], (p ^ 1) if bug("multiply waits for the wrong phase") else p)
                    ptx.tcgen05.fence_after_thread_sync()
                    col = 0 if bug("one set of columns for A's factors") else t
                    for atom in range(2):
                        shape = "4x256b" if bug("A's factors copied by 4x256b") else "32x128b"
                        ptx.tcgen05.cp(ca[col] + 4 * atom, fa[t * 2 + atom], shape=shape)
                        if not (atom and bug("second atom of B's factors not copied")):
                            ptx.tcgen05.cp(
                                cb[t] + (2 if bug("B's atoms overlap by two columns") else 4) * atom, fb[t * 2 + atom]
                            )
                    for i in range(4):
                        at = i // 2
                        ident = 2 * (i % 2)
                        ida = 0 if bug("factor id of A stays 0") else ident
                        form = InstructionDescriptor(
                            "mxf4",
                            128,
                            64 if bug("idesc says N = 64") else 128,
                            "e2m1",
                            "e2m1",
                            scale="ue8m0",
                            scale_a_id=ida,
                            scale_b_id=ident,
                        )
                        sb_at = (8 if bug("B's factors of the next atom") else 4) * at
                        scales = ptx.tcgen05.Scales(ca[col] + 4 * at, cb[t] + sb_at, "ue8m0", 32, ida, ident)
                        ptx.tcgen05.mma(
                            acc[u],
                            a[s].k(i),
                            b[s].k(3 - i if bug("k slices of B reversed") else i),
                            kind="mxf4",
                            scales=scales,
                            idesc=form.encode(),
                            accumulate=(k > 0) if i == 0 and not bug("always accumulates") else True,
                        )
                        if i == 2 and bug("stage committed before the last product"):
                            ptx.tcgen05.commit(empty[s])
                    if not bug("stage committed before the last product"):
                        ptx.tcgen05.commit(empty[s])
                    if bug("factors released by arrive instead of commit"):
                        ptx.mbarrier.arrive(sempty[t])
                    elif not bug("factors never released"):
                        ptx.tcgen05.commit(sempty[t])
                    step(s, p, STAGES)
                    step(t, q, SFS)
                if bug("accumulator committed by arrive"):
                    ptx.mbarrier.arrive(afull[u])
                else:
                    ptx.tcgen05.commit(afull[u])
                step(u, r, 2)
        with ptx.if_(warp >= 4):
            u, r = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            for n in ptx.range(TILES):
                if not bug("epilogue does not wait"):
                    ptx.mbarrier.wait(afull[u], r)
                ptx.tcgen05.fence_after_thread_sync()
                for start in range(0, 128, 32):
                    part = acc[u].load(start, 32)
                    last = start == 96
                    if last and bug("accumulator released before wait::ld"):
                        ptx.inst.bar.warp.sync(-1)
                        ptx.mbarrier.arrive(aempty[u], pred=lane == 0)
                    if not bug("no wait::ld"):
                        ptx.tcgen05.wait_ld()
                    to = C.pointer() + (part.row.to(u64) * (TILES * 128) + (n * 128 + start).to(u64)) * 4
                    for i in range(0, 32, 4):
                        ptx.store(ptx.addr(to, i * 4), part[i : i + 4])
                    if last and not bug("accumulator released before wait::ld"):
                        ptx.tcgen05.fence_before_thread_sync()
                        if not bug("no __syncwarp before the release"):
                            ptx.inst.bar.warp.sync(-1)
                        ptx.mbarrier.arrive(aempty[u], pred=lane == 0)
                step(u, r, 2)
        if bug("never deallocated"):
            pass
        elif bug("deallocated without a barrier"):
            with ptx.if_(warp == 2):
                memory.dealloc(warp=None)
        else:
            memory.dealloc()

    return mxfp4


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def decode(x, atoms):
    """rows x K; atoms (row blocks, K/128, 512)"""
    v = np.stack([FP4[x & 15], FP4[x >> 4]], -1).reshape(x.shape[0], -1)
    r, f = np.meshgrid(np.arange(x.shape[0]), np.arange(v.shape[1] // 32), indexing="ij")
    s = atoms[r // 128, f // 4, 16 * (r % 32) + 4 * (r % 128 // 32) + f % 4].astype(float)
    return v * np.repeat(2.0 ** (s - 127), 32, 1)


def arguments():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (128, K // 2), np.uint8), rng.integers(0, 256, (TILES * 128, K // 2), np.uint8)
    sa, sb = (
        rng.integers(124, 130, (1, K // 128, 512), np.uint8),
        rng.integers(124, 130, (TILES, K // 128, 512), np.uint8),
    )
    return a, b, sa, sb


def expected(a, b, sa, sb):
    return decode(a, sa) @ decode(b, sb).T


SMS = 1
