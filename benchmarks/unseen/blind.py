"""Eight further kernels, predicted before they ran: int8 products, rows over a cluster, histograms of warps, rows in a
ring of cp.async, products with odd stage counts, transposes by stmatrix, bulk additions, vectors of bf16."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from warploom.collective import WARPGROUP, TmaPipeline, each_consumer, producer, warpgroup_index
from warploom.collective.epilogue.direct_store import store_accumulators
from warploom.collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import bf16, f32, s8, s32, u32, u64

from .case import Array, Case
from .elementwise import MILLION
from .rows import over_the_cta, over_the_warp

LOG2_E = math.log2(math.e)


def integer_product(stages: int) -> Kernel:
    """mma.sync of s8, tiles of 128 x 128, 64 deep, from a ring filled by cp.async; rows padded by 16 bytes."""
    rows, columns, depth, threads = 128, 128, 64, 256
    pitch, chunks = depth + 16, depth // 16

    @kernel(
        in_specs=(Tile("M", "K", s8, multiple=(rows, depth)), Tile("N", "K", s8, multiple=(columns, depth))),
        out_specs=(Tile("M", "N", s32),), grid=(tiles("N", columns), tiles("M", rows)), block=threads, arch="sm_90a",
    )  # fmt: skip
    def program(A, B, C):
        left, right = (smem.array(s8, (stages, many, pitch), align=128) for many in (rows, columns))
        _, k = A.shape
        _, n = C.shape
        a, b, c = ptx.global_ptrs(A, B, C)
        thread = ptx.special.tid.x()
        top, side = ptx.special.ctaid.y() * rows, ptx.special.ctaid.x() * columns
        count = k // depth

        def start(stage: Any, at: Any) -> None:
            with ptx.if_(at < count):
                for shared, pointer, first in ((left, a, top), (right, b, side)):
                    for piece in range(0, rows * chunks, threads):
                        row, chunk = (thread + piece) // chunks, (thread + piece) % chunks
                        source = (first + row).to(u64) * k + (at * depth + chunk * 16).to(u64)
                        ptx.cp.async_.cg(shared[stage, row, chunk * 16], ptx.addr(pointer + source))
            ptx.cp.async_.commit_group()

        warp, lane = thread // 32, thread % 32
        sums = [[reg.array(s32, 4, init=0) for _ in range(4)] for _ in range(4)]
        zero = (thread * 0).copy()
        for stage in range(stages - 1):
            start(zero + stage, zero + stage)
        down, across = warp // 4 * 64, warp % 4 * 32
        for at in ptx.range(count):
            stage = at % stages
            ptx.cp.async_.wait_group(stages - 2)
            ptx.bar.sync(0)
            start((at + (stages - 1)) % stages, at + (stages - 1))
            for inner in range(0, depth, 32):
                one = [ptx.ldmatrix(left[stage, down + i * 16 + lane % 16, inner + lane // 16 * 16]) for i in range(4)]
                two = [
                    ptx.ldmatrix(right[stage, across + i * 16 + lane // 16 * 8 + lane % 8, inner + lane // 8 % 2 * 16])
                    for i in range(2)
                ]
                for i in range(4):
                    for j in range(4):
                        ptx.inst("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", sums[i][j], one[i],
                                 two[j // 2][j % 2 * 2 : j % 2 * 2 + 2], sums[i][j])  # fmt: skip
        for i in range(4):
            for j in range(4):
                for half in range(2):
                    row = top + down + i * 16 + lane // 4 + half * 8
                    column = side + across + j * 8 + lane % 4 * 2
                    place = (row.to(u64) * n + column.to(u64)) * 4
                    ptx.store(ptx.addr(c + place), [sums[i][j][2 * half], sums[i][j][2 * half + 1]])

    return program


def softmax_over_a_cluster(columns: int, cluster: int) -> Kernel:
    """A row of each cluster: every CTA keeps its part in registers and reads the others' sums from their memory."""
    threads = 256
    mine, each = columns // cluster, columns // cluster // threads // 4

    @kernel(
        in_specs=(Tile("M", columns, f32),), out_specs=(Tile("M", columns, f32),), grid=(cluster, "M"), block=threads,
        cluster=(cluster, 1, 1), arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        partial, shared = smem.array(f32, threads // 32), smem.array(f32, 2)
        thread = ptx.special.tid.x()
        first = ptx.special.ctaid.y() * columns + ptx.special.ctaid.x() * mine + thread * 4
        place = first.to(u64) * 4
        fours = [ptx.load(f32, ptx.addr(x + place, i * threads * 16), vector=4) for i in range(each)]
        total = reg.scalar(f32, init=0.0)
        for four in fours:
            for value in four:
                ptx.inst.ex2.approx.f32(value, value * LOG2_E)
                total += value
        over_the_cta(partial, total, threads)
        with ptx.if_(thread == 0):
            ptx.store(shared[0], total)
        ptx.cluster.sync()
        of_all = reg.scalar(f32, init=0.0)
        for rank in range(cluster):
            one = reg.scalar(f32)
            ptx.inst("ld.shared::cluster.f32", one, ptx.addr(ptx.cluster.map_shared(shared[0], rank)))
            of_all += one
        ptx.cluster.sync()
        scale = 1.0 / of_all
        for i, four in enumerate(fours):
            ptx.store(ptx.addr(y + place, i * threads * 16), [value * scale for value in four])

    return program


def histograms_of_warps(bins: int, ctas: int) -> Kernel:
    """Each warp counts in its own bins in shared memory, by atomics; then the CTA adds them up in global memory."""
    threads = 256

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile(bins, u32),), grid=(ctas,), block=threads, arch="sm_90a")
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        counts = smem.array(u32, (threads // 32, bins))
        thread = ptx.special.tid.x()
        warp, lane = thread // 32, thread % 32
        for first in range(0, bins, 32):
            ptx.store(counts[warp, lane + first], 0, dtype=u32)
        ptx.warp.sync()
        start = (ptx.special.ctaid.x() * threads + thread) * 4
        for at in ptx.range(start, n, ctas * threads * 4, dtype=u32):
            for value in ptx.load(u32, ptx.addr(x + at.to(u64) * 4), vector=4):
                ptx.inst("red.shared.add.u32", counts[warp, value & (bins - 1)], 1)
        ptx.bar.sync(0)
        for first in range(0, bins, threads):
            total = reg.scalar(u32, init=0)
            for other in range(threads // 32):
                total += ptx.load(u32, counts[other, thread + first])
            ptx.inst("red.global.add.u32", ptx.addr(y + ((thread + first) * 4).to(u64)), total)

    return program


def rows_in_a_ring(columns: int, ctas: int, stages: int) -> Kernel:
    """Softmax over rows of a persistent CTA's share: the next rows arrive by cp.async meanwhile."""
    threads = 128
    each = columns // threads // 4

    @kernel(in_specs=(Tile("R", ctas, columns, f32),), out_specs=(Tile("R", ctas, columns, f32),), grid=(ctas,),
            block=threads, arch="sm_90a")  # fmt: skip
    def program(X, Y):
        rows = X.shape[0]
        x, y = ptx.global_ptrs(X, Y)
        ring, partial = smem.array(f32, (stages, columns), align=16), smem.array(f32, threads // 32)
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()

        def start(row: Any, stage: Any) -> None:
            with ptx.if_(row < rows):
                source = x + ((row * ctas + cta).to(u64) * columns + (thread * 4).to(u64)) * 4
                for i in range(each):
                    ptx.cp.async_.cg(ring[stage, (thread + i * threads) * 4], ptx.addr(source, i * threads * 16))
            ptx.cp.async_.commit_group()

        for first in range(stages - 1):
            start(ptx.special.tid.y() + first, first)
        for row in ptx.range(rows):
            ptx.cp.async_.wait_group(stages - 2)
            start(row + (stages - 1), (row + (stages - 1)) % stages)
            total = reg.scalar(f32, init=0.0)
            powers = []
            for i in range(each):
                for value in ptx.load(f32, ring[row % stages, (thread + i * threads) * 4], vector=4):
                    ptx.inst.ex2.approx.f32(value, value * LOG2_E)
                    total += value
                    powers.append(value)
            over_the_cta(partial, total, threads)
            scale = 1.0 / total
            place = y + ((row * ctas + cta).to(u64) * columns + (thread * 4).to(u64)) * 4
            for i in range(each):
                four = [value * scale for value in powers[4 * i : 4 * i + 4]]
                ptx.store(ptx.addr(place, i * threads * 16), four)

    return program


def odd_product(columns: int, depth: int, stages: int) -> Kernel:
    """wgmma of two consumers with 64 rows each, shallow stages in an odd number; the last product stays in flight."""
    rows, consumers = 64, 2
    swizzle = f"{2 * depth}B"

    @kernel(
        in_specs=(Tile("M", "K", bf16, box=(depth, consumers * rows), swizzle=swizzle),
                  Tile("N", "K", bf16, box=(depth, columns), swizzle=swizzle)),
        out_specs=(Tile("M", "N", bf16, multiple=(1, 8)),), grid=(tiles("N", columns), tiles("M", consumers * rows)),
        block=(1 + consumers) * WARPGROUP, arch="sm_90a",
    )  # fmt: skip
    def program(A, B, C):
        a = smem.wgmma_tile(bf16, (consumers * rows, depth), stages=stages, swizzle=swizzle)
        b = smem.wgmma_tile(bf16, (columns, depth), stages=stages, swizzle=swizzle)
        ring = TmaPipeline(stages=stages, consumers=consumers, every_thread=True, a=a, b=b)
        ring.initialise()
        _, k = A.shape
        count, warpgroup = k // depth, warpgroup_index()
        row, column = ptx.special.ctaid.y() * (consumers * rows), ptx.special.ctaid.x() * columns
        with producer(warpgroup):
            state = ring.producer_state()
            for at in ptx.range(count):
                with ring.produce(state) as stage:
                    ptx.tma.load(stage.a, A.tma_desc(), (at * depth, row), stage.full)
                    ptx.tma.load(stage.b, B.tma_desc(), (at * depth, column), stage.full)
        for me in each_consumer(warpgroup, consumers):
            state, acc = ring.consumer_state(), wgmma_accumulators(rows, columns, zero=True)
            for _ in ptx.range(count):
                stage = ring.consumer_wait(state)
                wgmma_stage(acc, stage.a.rows(me * rows, rows), stage.b)
                ptx.wgmma.wait_group(0)
                ring.consumer_release(state.index)
                ring.advance(state)
            store_accumulators(acc, C, row + me * rows, column)

    return program


def turned_by_matrices() -> Kernel:
    """bf16, tiles of 64 x 64: ldmatrix, stmatrix with .trans into another tile, rows padded by 16 bytes."""
    side, threads = 64, 128
    pitch = side + 8

    @kernel(
        in_specs=(Tile("M", "N", bf16, multiple=(side, side)),), out_specs=(Tile("N", "M", bf16),),
        grid=(tiles("N", side), tiles("M", side)), block=threads, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        m, n = X.shape
        x, y = ptx.global_ptrs(X, Y)
        piece, turned = (smem.array(bf16, (side, pitch), align=16) for _ in range(2))
        thread = ptx.special.tid.x()
        left, top = ptx.special.ctaid.x() * side, ptx.special.ctaid.y() * side
        for first in range(0, side * 8, threads):
            row, chunk = (thread + first) // 8, (thread + first) % 8
            source = ((top + row).to(u64) * n + (left + chunk * 8).to(u64)) * 2
            ptx.store(piece[row, chunk * 8], ptx.load(u32, ptx.addr(x + source), vector=4))
        ptx.bar.sync(0)
        warp, lane = thread // 32, thread % 32
        for block in range(4):
            four = ptx.ldmatrix(piece[warp * 16 + lane % 16, block * 16 + lane // 16 * 8])
            place = turned[block * 16 + lane // 16 * 8 + lane % 8, warp * 16 + lane // 8 % 2 * 8]
            ptx.stmatrix(place, four, trans=True)
        ptx.bar.sync(0)
        for first in range(0, side * 8, threads):
            row, chunk = (thread + first) // 8, (thread + first) % 8
            target = ((left + row).to(u64) * m + (top + chunk * 8).to(u64)) * 2
            ptx.store(ptx.addr(y + target), ptx.load(u32, turned[row, chunk * 8], vector=4))

    return program


def bulk_additions(ctas: int, bytes_: int, rounds: int) -> Kernel:
    """Every CTA adds the same piece of its shared memory to piece after piece of an array, in bulk, two in flight."""
    elements = bytes_ // 4

    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("P", elements, f32),), grid=(ctas,), block=128, arch="sm_90a")
    def program(X, Y):
        pieces, _ = Y.shape
        x, y = ptx.global_ptrs(X, Y)
        piece = smem.array(f32, elements, align=128)
        thread = ptx.special.tid.x()
        for first in range(0, elements, 512):
            ptx.store(piece[thread * 4 + first], ptx.load(f32, ptx.addr(x + (thread * 16).to(u64)), vector=4))
        ptx.fence.proxy_async_shared_cta()
        ptx.bar.sync(0)
        with ptx.if_(thread == 0):
            at = ptx.special.ctaid.x().copy()
            for _ in ptx.range(rounds, unroll=False):
                opcode = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"
                ptx.inst(opcode, ptx.addr(y + (at % pieces).to(u64) * bytes_), piece[0], bytes_)
                ptx.cp.async_.bulk.commit_group()
                ptx.cp.async_.bulk.wait_group_read(1)
                at += ctas
            ptx.cp.async_.bulk.wait_group(0)

    return program


def vector_of_halves(rows: int) -> Kernel:
    """y = A x in bf16: the vector in shared memory, `rows` rows per warp at once, 16 bytes per lane and row."""
    threads = 128

    @kernel(
        in_specs=(Tile("M", "K", bf16, multiple=(4 * rows, 256)), Tile("K", bf16)), out_specs=(Tile("M", f32),),
        grid=(tiles("M", 4 * rows),), block=threads, arch="sm_90a",
    )  # fmt: skip
    def program(A, X, Y):
        _, k = A.shape
        a, x, y = ptx.global_ptrs(A, X, Y)
        thread = ptx.special.tid.x()
        warp, lane = thread // 32, thread % 32
        row = (ptx.special.ctaid.x() * 4 + warp) * rows
        sums = [reg.scalar(f32, init=0.0) for _ in range(rows)]

        def halves(word: Any) -> tuple[Any, Any]:
            low, high = reg.scalar(u32), reg.scalar(u32)
            ptx.inst.shl.b32(low, word, 16)
            ptx.inst.and_.b32(high, word, 0xFFFF0000)
            return low.view(f32), high.view(f32)

        for at in ptx.range(lane * 8, k, 256, dtype=u32):
            lines = [
                ptx.load(u32, ptx.addr(a + ((row + i).to(u64) * k + at.to(u64)) * 2), vector=4) for i in range(rows)
            ]
            for j, word in enumerate(ptx.load(u32, ptx.addr(x + at.to(u64) * 2), vector=4)):
                for total, line in zip(sums, lines, strict=True):
                    for one, other in zip(halves(line[j]), halves(word), strict=True):
                        ptx.inst.fma.rn.f32(total, one, other, total)
        for i, total in enumerate(sums):
            over_the_warp(total, ptx.inst.add.rn.f32)
            with ptx.if_(lane == i):
                ptx.store(ptx.addr(y + (row + i).to(u64) * 4), total)

    return program


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    sms, size, few = (132, 4096, 4096) if whole else (2, 128, 4)

    def made(dtype: Any, *shape: int, fill: str | int = "zeros") -> tuple[Array, ...]:
        return (Array(shape, dtype, fill),)

    bytes_ = made(s8, size, size, fill=100)
    yield Case("integer_product", "product", lambda: integer_product(3), bytes_ * 2, made(s32, size, size),
               flops=2.0 * size**3)  # fmt: skip
    yield Case("softmax_over_a_cluster_of_8", "softmax", lambda: softmax_over_a_cluster(32768, 8),
               made(f32, few // 4, 32768, fill="normal"), made(f32, few // 4, 32768))  # fmt: skip
    yield Case("histograms_of_warps", "atomics", lambda: histograms_of_warps(512, 4 * sms),
               made(u32, 16 * million, fill=1 << 20), made(u32, 512))  # fmt: skip
    rows = (31, 4 * sms, 2048) if whole else (5, sms, 2048)
    yield Case("rows_in_a_ring", "softmax", lambda: rows_in_a_ring(2048, rows[1], 3), made(f32, *rows, fill="normal"),
               made(f32, *rows))  # fmt: skip
    square = made(bf16, size, size, fill="normal")
    yield Case("product_of_seven_stages", "product", lambda: odd_product(96 if whole else 64, 32, 7),
               made(bf16, size, size, fill="normal") + made(bf16, size * 3 // 4 if whole else 64, size, fill="normal"),
               made(bf16, size, size * 3 // 4 if whole else 64), flops=1.5 * size**3)  # fmt: skip
    yield Case("turned_by_matrices", "transpose", turned_by_matrices, square, made(bf16, size, size))
    yield Case("bulk_additions", "reduction", lambda: bulk_additions(2 * sms, 16384, 64 if whole else 3),
               made(f32, 512, fill="normal"), made(f32, 6 * sms, 4096))  # fmt: skip
    yield Case("vector_of_halves", "matrix times vector", lambda: vector_of_halves(4),
               made(bf16, 4 * size, size if whole else 256, fill="normal")
               + made(bf16, size if whole else 256, fill="normal"), made(f32, 4 * size))  # fmt: skip
