"""Kernels whose CTAs or lanes cooperate, predicted before they ran: clusters, st.async, reductions by TMA, redux,
ballots, batched products of warps."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import bf16, f32, u32, u64

from .case import Array, Case
from .elementwise import MILLION
from .rows import ALL


def pushed_pieces(cluster: int) -> Kernel:
    """Each CTA writes what it read into the shared memory of the others of its cluster, a part for each."""
    threads = 256

    @kernel(
        in_specs=(Tile("N", threads, f32),), out_specs=(Tile("N", threads, f32),), grid=("N",), block=threads,
        cluster=(cluster, 1, 1), arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        taken = smem.array(f32, threads)
        thread, rank = ptx.special.tid.x(), ptx.special.cluster_ctarank()
        at = ((ptx.special.ctaid.x() * threads + thread) * 4).to(u64)
        value = ptx.load(f32, ptx.addr(x + at))
        ptx.cluster.sync()
        part = threads // cluster
        place = ptx.cluster.map_shared(taken[rank * part + thread % part], thread // part)
        ptx.inst("st.shared::cluster.f32", ptx.addr(place), value)
        ptx.cluster.sync()
        ptx.store(ptx.addr(y + at), ptx.load(f32, taken[thread]))

    return program


def sums_round_the_cluster(cluster: int, rounds: int) -> Kernel:
    """Each thread sends 16 bytes to the next CTA by st.async, whose barrier counts them, repeatedly."""
    threads = 128

    @kernel(
        in_specs=(Tile("N", threads * 4, f32),), out_specs=(Tile("N", threads * 4, f32),), grid=("N",), block=threads,
        cluster=(cluster, 1, 1), arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        taken, full = smem.array(f32, threads * 4, align=128), smem.mbarrier(1)
        thread, rank = ptx.special.tid.x(), ptx.special.cluster_ctarank()
        with ptx.if_(thread == 0):
            ptx.mbarrier.init(full[0], 1)
            ptx.fence.mbarrier_init()
        ptx.cluster.sync()
        other = (rank + 1) % cluster
        target, barrier = ptx.cluster.map_shared(taken[thread * 4], other), ptx.cluster.map_shared(full[0], other)
        at = ((ptx.special.ctaid.x() * threads + thread) * 16).to(u64)
        sums = [value.copy() for value in ptx.load(f32, ptx.addr(x + at), vector=4)]
        words = [reg.scalar(u32) for _ in range(4)]
        phase = reg.scalar(u32, init=0)
        for _ in ptx.range(rounds, unroll=False):
            ptx.mbarrier.arrive_expect_tx(full[0], threads * 16, pred=thread == 0)
            for word, value in zip(words, sums, strict=True):
                ptx.inst.mov.b32(word, value)
            ptx.inst("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.u32", target, words, barrier)
            ptx.mbarrier.wait(full[0], phase, scope="cluster")
            for one, value in zip(sums, ptx.load(f32, taken[thread * 4], vector=4), strict=True):
                one += value
            phase ^= 1
            ptx.cluster.sync()
        ptx.store(ptx.addr(y + at), sums)

    return program


def sums_by_tma(ctas: int, stages: int) -> Kernel:
    """Boxes of 64 x 64 of all blocks are added to those of one, by TMA in L2."""
    side = 64

    @kernel(
        in_specs=(Tile("M", side, f32, box=(side, side)),), out_specs=(Tile("R", side, f32, box=(side, side)),),
        grid=(ctas,), block=32, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        m, _ = X.shape
        rows, _ = Y.shape
        ring, full = smem.array(f32, (stages, side, side), align=128), smem.mbarrier(stages)
        cta, first = ptx.special.ctaid.x(), ptx.special.tid.x() == 0
        with ptx.if_(first):
            for stage in range(stages):
                ptx.mbarrier.init(full[stage], 1)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)
        with ptx.if_(first):
            turn = reg.scalar(u32, init=0)
            for at in ptx.range(cta, m // side, ctas, dtype=u32):
                stage = turn % stages
                ptx.cp.async_.bulk.wait_group_read(stages - 1)
                ptx.mbarrier.arrive_expect_tx(full[stage], side * side * 4)
                ptx.cp.async_.bulk.tensor_2d(ring[stage, 0, 0], X.tma_desc(), (0, at * side), full[stage])
                ptx.mbarrier.wait(full[stage], turn // stages & 1)
                ptx.cp.async_.bulk.tensor_reduce("add", Y.tma_desc(), ring[stage, 0, 0], (0, at * side % rows))
                ptx.cp.async_.bulk.commit_group()
                turn.set(turn + 1)
            ptx.cp.async_.bulk.wait_group(0)

    return program


def sums_by_redux() -> Kernel:
    """A warp sums a row of integers by redux.sync, 16 bytes per lane at a time."""

    @kernel(
        in_specs=(Tile("M", "K", u32, multiple=(8, 128)),), out_specs=(Tile("M", u32),), grid=(tiles("M", 8),),
        block=256, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        _, k = X.shape
        x, y = ptx.global_ptrs(X, Y)
        thread = ptx.special.tid.x()
        row, lane = ptx.special.ctaid.x() * 8 + thread // 32, thread % 32
        total = reg.scalar(u32, init=0)
        for at in ptx.range(lane * 4, k, 128, dtype=u32):
            a, b, c, d = ptx.load(u32, ptx.addr(x + (row.to(u64) * k + at.to(u64)) * 4), vector=4)
            of_all = reg.scalar(u32)
            ptx.inst.redux.sync.add.u32(of_all, (a ^ b) + (c ^ d), ALL)
            total += of_all
        with ptx.if_(lane == 0):
            ptx.store(ptx.addr(y + row.to(u64) * 4), total)

    return program


def kept_values() -> Kernel:
    """Stream compaction of values below a limit: ballots, and an offset by an atomic of each warp."""

    @kernel(
        in_specs=(Tile("N", u32, multiple=(256,)),), out_specs=(Tile("N", u32), Tile(1, u32)),
        grid=(tiles("N", 256),), block=256, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y, Count):
        (n,) = X.shape
        x, y, count = ptx.global_ptrs(X, Y, Count)
        thread = ptx.special.tid.x()
        lane = thread % 32
        value = ptx.load(u32, ptx.addr(x + ((ptx.special.ctaid.x() * 256 + thread) * 4).to(u64)))
        kept = value < (1 << 29)
        mask, many, before, place = (reg.scalar(u32, init=0) for _ in range(4))
        ptx.inst("vote.sync.ballot.b32", mask, kept, ALL)
        ptx.inst.popc.b32(many, mask)
        one = reg.scalar(u32, init=1)
        ptx.inst.popc.b32(before, mask & ((one << lane) - 1))
        with ptx.if_(lane == 0):
            ptx.inst("atom.global.add.u32", place, ptx.addr(count), many)
        ptx.inst.shfl.sync.idx.b32(place, place, 0, 31, ALL)
        with ptx.if_(kept):
            ptx.store(ptx.addr(y + ((place + before) % n * 4).to(u64)), value)  # launches follow each other

    return program


def products_of_warps(size: int) -> Kernel:
    """C[b] = A[b] B[b]^T of `size` x `size` bf16: one CTA per product, ldmatrix and mma.sync, rows padded by 16
    bytes."""
    threads, pitch = 128, size + 8

    @kernel(
        in_specs=(Tile("P", size, size, bf16), Tile("P", size, size, bf16)), out_specs=(Tile("P", size, size, f32),),
        grid=("P",), block=threads, arch="sm_90a",
    )  # fmt: skip
    def program(A, B, C):
        a, b, c = ptx.global_ptrs(A, B, C)
        left, right = smem.array(bf16, (size, pitch), align=16), smem.array(bf16, (size, pitch), align=16)
        thread, base = ptx.special.tid.x(), ptx.special.ctaid.x().to(u64) * (size * size)
        chunks = size // 8
        for shared, pointer in ((left, a), (right, b)):
            for first in range(0, size * chunks, threads):
                row, chunk = (thread + first) // chunks, (thread + first) % chunks
                source = ptx.addr(pointer + (base + (row * size + chunk * 8).to(u64)) * 2)
                ptx.cp.async_.cg(shared[row, chunk * 8], source)
        ptx.cp.async_.commit_group()
        ptx.cp.async_.wait_group(0)
        ptx.bar.sync(0)
        warp, lane = thread // 32, thread % 32
        sums = [reg.array(f32, 4, init=0.0) for _ in range(size // 8)]
        for inner in range(0, size, 16):
            one = ptx.ldmatrix(left[warp * 16 + lane % 16, inner + lane // 16 * 8])
            for j in range(0, size // 8, 2):
                two = ptx.ldmatrix(right[j * 8 + lane // 16 * 8 + lane % 8, inner + lane // 8 % 2 * 8])
                for half in range(2):
                    ptx.mma_sync(shape=(16, 8, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16, d=sums[j + half], a=one,
                                 b=two[half * 2 : half * 2 + 2])  # fmt: skip
        for j in range(size // 8):
            for half in range(2):
                row, column = warp * 16 + lane // 4 + half * 8, lane % 4 * 2 + j * 8
                place = ptx.addr(c + (base + (row * size + column).to(u64)) * 4)
                ptx.store(place, [sums[j][2 * half], sums[j][2 * half + 1]])

    return program


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    sms = 132 if whole else 2

    def floats(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, f32),)

    def made(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, f32, "zeros"),)

    count = 8192 if whole else 16
    yield Case("pushed_pieces_8", "cluster", lambda: pushed_pieces(8), floats(count, 256), made(count, 256))
    count = 2112 if whole else 8
    yield Case("sums_round_a_cluster_of_2", "cluster", lambda: sums_round_the_cluster(2, 16), floats(count, 512),
               made(count, 512))  # fmt: skip
    rows = 64 * 8 * sms
    yield Case("sums_by_tma", "reduction", lambda: sums_by_tma(2 * sms, 3), floats(4 * rows, 64), made(1024, 64))
    rows, columns = (16384, 2048) if whole else (16, 256)
    yield Case("sums_by_redux", "reduction", sums_by_redux, (Array((rows, columns), u32, 1 << 30),),
               (Array((rows,), u32, "zeros"),))  # fmt: skip
    count = 4 * million
    yield Case("kept_values", "atomics", kept_values, (Array((count,), u32, 1 << 30),),
               (Array((count,), u32, "zeros"), Array((1,), u32, "zeros")))  # fmt: skip
    many = 8192 if whole else 4
    halves = Array((many, 64, 64), bf16)
    yield Case("products_of_warps_64", "product", lambda: products_of_warps(64), (halves, halves), made(many, 64, 64),
               flops=2.0 * many * 64**3)  # fmt: skip
