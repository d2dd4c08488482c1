"""Kernels over tiles: transposes, stencils, filters, simple products, copies by cp.async and by TMA, clusters."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from warploom.kernels.walkthrough import build_gemm_m64n64
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import bf16, f32, u64

from .case import Array, Case
from .elementwise import MILLION
from .rows import ROOT, example


def naive_transpose() -> Kernel:
    """Reads rows and writes columns, without shared memory."""

    @kernel(
        in_specs=(Tile("M", "N", f32),), out_specs=(Tile("N", "M", f32),), grid=(tiles("N", 32), tiles("M", 8)),
        block=(32, 8), arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        m, n = X.shape
        x, y = ptx.global_ptrs(X, Y)
        column = ptx.special.ctaid.x() * 32 + ptx.special.tid.x()
        row = ptx.special.ctaid.y() * 8 + ptx.special.tid.y()
        value = ptx.load(f32, ptx.addr(x + (row.to(u64) * n + column) * f32.bytes))
        ptx.store(ptx.addr(y + (column.to(u64) * m + row) * f32.bytes), value)

    return program


def stencil() -> Kernel:
    """The mean of a point and its four neighbours, without the edges; reuse by the caches."""

    @kernel(
        in_specs=(Tile("M", "N", f32),), out_specs=(Tile("M", "N", f32),), grid=(tiles("N", 32), tiles("M", 8)),
        block=(32, 8), arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        m, n = X.shape
        x, y = ptx.global_ptrs(X, Y)
        column = ptx.special.ctaid.x() * 32 + ptx.special.tid.x()
        row = ptx.special.ctaid.y() * 8 + ptx.special.tid.y()
        with ptx.if_((column > 0) & (column < n - 1) & (row > 0) & (row < m - 1)):
            at = (row.to(u64) * n + column) * f32.bytes
            total = ptx.load(f32, ptx.addr(x + at))
            for there in (at - 4, at + 4, at - n.to(u64) * 4, at + n.to(u64) * 4):
                total += ptx.load(f32, ptx.addr(x + there))
            ptx.store(ptx.addr(y + at), total * 0.2)

    return program


def filtered(taps: int) -> Kernel:
    """Y[i] = sum of W[j] X[i + j]: a block of X in shared memory, read again for every tap."""
    threads = 256

    @kernel(
        in_specs=(Tile("M", f32), Tile(taps, f32)), out_specs=(Tile("N", f32, multiple=(threads,)),),
        grid=(tiles("N", threads),), block=threads, arch="sm_90a",
    )  # fmt: skip
    def program(X, W, Y):
        x, w, y = ptx.global_ptrs(X, W, Y)
        piece, weights = smem.array(f32, threads + taps), smem.array(f32, taps)
        thread = ptx.special.tid.x()
        at = x + (ptx.special.ctaid.x() * threads + thread).to(u64) * f32.bytes
        ptx.store(piece[thread], ptx.load(f32, ptx.addr(at)))
        with ptx.if_(thread < taps):
            ptx.store(piece[thread + threads], ptx.load(f32, ptx.addr(at, threads * f32.bytes)))
            ptx.store(weights[thread], ptx.load(f32, ptx.addr(w + thread.to(u64) * f32.bytes)))
        ptx.bar.sync(0)
        total = reg.scalar(f32, init=0.0)
        for tap in range(taps):
            ptx.inst.fma.rn.f32(total, ptx.load(f32, piece[thread + tap]), ptx.load(f32, weights[tap]), total)
        ptx.store(ptx.addr(y + (ptx.special.ctaid.x() * threads + thread).to(u64) * f32.bytes), total)

    return program


def square_tiles(side: int) -> Kernel:
    """The textbook product in f32: a tile of A and of B in shared memory, one element per thread."""

    @kernel(
        in_specs=(Tile("M", "K", f32, multiple=(side, side)), Tile("K", "N", f32, multiple=(side, side))),
        out_specs=(Tile("M", "N", f32),), grid=(tiles("N", side), tiles("M", side)), block=(side, side), arch="sm_90a",
    )  # fmt: skip
    def program(A, B, C):
        _, k = A.shape
        _, n = C.shape
        a, b, c = ptx.global_ptrs(A, B, C)
        left, right = smem.array(f32, (side, side)), smem.array(f32, (side, side))
        across, down = ptx.special.tid.x(), ptx.special.tid.y()
        row, column = ptx.special.ctaid.y() * side + down, ptx.special.ctaid.x() * side + across
        total = reg.scalar(f32, init=0.0)
        for first in ptx.range(0, k, side):
            ptx.store(left[down, across], ptx.load(f32, ptx.addr(a + (row * k + first + across).to(u64) * 4)))
            ptx.store(right[down, across], ptx.load(f32, ptx.addr(b + ((first + down) * n + column).to(u64) * 4)))
            ptx.bar.sync(0)
            for i in range(side):
                ptx.inst.fma.rn.f32(total, ptx.load(f32, left[down, i]), ptx.load(f32, right[i, across]), total)
            ptx.bar.sync(0)
        ptx.store(ptx.addr(c + (row * n + column).to(u64) * f32.bytes), total)

    return program


def pipelined_sums(stages: int, ctas: int) -> Kernel:
    """Each CTA sums its blocks of 8 KiB, with `stages` of them in flight by cp.async."""
    threads, vectors = 128, 4

    @kernel(
        in_specs=(Tile("P", ctas, vectors * threads * 4, f32),), out_specs=(Tile(ctas, threads, f32),), grid=(ctas,),
        block=threads, arch="sm_90a", name=f"pipelined{stages}",
    )  # fmt: skip
    def program(X, Y):
        pieces = X.shape[0]
        x, y = ptx.global_ptrs(X, Y)
        ring = smem.array(f32, (stages, vectors, threads * 4))
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()

        def start(piece: Any, stage: Any) -> None:
            with ptx.if_(piece < pieces):
                source = x + (piece * ctas + cta).to(u64) * (vectors * threads * 16)
                for i in range(vectors):
                    at = ptx.addr(source + (thread * 16 + i * threads * 16).to(u64))
                    ptx.cp.async_.cg(ring[stage, i, thread * 4], at)
            ptx.cp.async_.commit_group()

        for first in range(stages - 1):
            start(ptx.special.tid.y() + first, first)
        total = reg.scalar(f32, init=0.0)
        for piece in ptx.range(pieces):
            ptx.cp.async_.wait_group(stages - 2)
            ptx.bar.sync(0)
            for i in range(vectors):
                for value in ptx.load(f32, ring[piece % stages, i, thread * 4], vector=4):
                    total += value
            start(piece + (stages - 1), (piece + (stages - 1)) % stages)
        ptx.store(ptx.addr(y + (cta * threads + thread).to(u64) * f32.bytes), total)

    return program


def tma_tiles(rows: int, ctas: int, stages: int) -> Kernel:
    """Y = X through shared memory: TMA in, TMA out; each CTA walks over its tiles of rows x 64 floats."""
    columns = 64

    @kernel(
        in_specs=(Tile("M", columns, f32, box=(columns, rows)),),
        out_specs=(Tile("M", columns, f32, box=(columns, rows)),), grid=(ctas,), block=32, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        m, _ = X.shape
        ring = smem.array(f32, (stages, rows, columns), align=128)
        full = smem.mbarrier(stages)
        cta, first = ptx.special.ctaid.x(), ptx.special.tid.x() == 0
        with ptx.if_(first):
            for stage in range(stages):
                ptx.mbarrier.init(full[stage], 1)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)

        def load(stage: Any, row: Any) -> None:
            ptx.mbarrier.arrive_expect_tx(full[stage], rows * columns * f32.bytes)
            ptx.cp.async_.bulk.tensor_2d(ring[stage, 0, 0], X.tma_desc(), (0, row), full[stage])

        count = m // (rows * ctas)
        with ptx.if_(first):
            for stage in range(stages - 1):
                load(stage, (cta + stage * ctas) * rows)
            for at in ptx.range(count):
                stage = at % stages
                ptx.mbarrier.wait(full[stage], at // stages & 1)
                ptx.cp.async_.bulk.tensor_store(Y.tma_desc(), ring[stage, 0, 0], (0, (cta + at * ctas) * rows))
                ptx.cp.async_.bulk.commit_group()
                ahead = at + (stages - 1)
                with ptx.if_(ahead < count):
                    ptx.cp.async_.bulk.wait_group_read(1)
                    load(ahead % stages, (cta + ahead * ctas) * rows)
            ptx.cp.async_.bulk.wait_group(0)

    return program


def exchanged(cluster: int) -> Kernel:
    """Each CTA sums its row with those of its cluster, through distributed shared memory."""
    threads = 256

    @kernel(
        in_specs=(Tile("N", threads, f32),), out_specs=(Tile("N", threads, f32),), grid=("N",), block=threads,
        cluster=(cluster, 1, 1), arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        mine = smem.array(f32, threads)
        thread = ptx.special.tid.x()
        at = (ptx.special.ctaid.x() * threads + thread).to(u64) * f32.bytes
        ptx.store(mine[thread], ptx.load(f32, ptx.addr(x + at)))
        ptx.cluster.sync()
        total = reg.scalar(f32, init=0.0)
        for rank in range(cluster):
            total += ptx.load(f32, ptx.cluster.map_shared(mine[thread], rank), space="shared::cluster")
        ptx.cluster.sync()
        ptx.store(ptx.addr(y + at), total)

    return program


def ring_of_sums(ctas: int) -> Kernel:
    """A producer warp fills a ring by bulk copies of 4 KiB; 256 threads add them up."""
    piece, stages, consumers = 1024, 6, 256

    @kernel(
        in_specs=(Tile("P", ctas, piece, f32),), out_specs=(Tile(ctas, consumers, f32),), grid=(ctas,),
        block=consumers + 128, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        pieces = X.shape[0]
        x, y = ptx.global_ptrs(X, Y)
        ring = smem.array(f32, (stages, piece), align=128)
        full, empty = smem.mbarrier(stages), smem.mbarrier(stages)
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()
        with ptx.if_(thread == 0):
            for stage in range(stages):
                ptx.mbarrier.init(full[stage], 1)
                ptx.mbarrier.init(empty[stage], consumers)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)
        with ptx.if_(thread == consumers):
            for at in ptx.range(pieces):
                stage = at % stages
                ptx.mbarrier.wait(empty[stage], at // stages & 1 ^ 1)
                ptx.mbarrier.arrive_expect_tx(full[stage], piece * f32.bytes)
                source = ptx.addr(x + (at * ctas + cta).to(u64) * (piece * f32.bytes))
                ptx.cp.async_.bulk.load(ring[stage, 0], source, piece * f32.bytes, full[stage])
        with ptx.elif_(lambda: thread < consumers):
            total = reg.scalar(f32, init=0.0)
            for at in ptx.range(pieces):
                stage = at % stages
                ptx.mbarrier.wait(full[stage], at // stages & 1)
                for value in ptx.load(f32, ring[stage, thread * 4], vector=4):
                    total += value
                ptx.fence.proxy_async_shared_cta()
                ptx.mbarrier.arrive(empty[stage])
            ptx.store(ptx.addr(y + (cta * consumers + thread).to(u64) * f32.bytes), total)

    return program


def small_attention() -> Kernel:
    """Attention from building blocks of the package, composed as in its own tests."""
    spec = importlib.util.spec_from_file_location("unseen_attention", ROOT / "tests/collective/attention.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Kernel = module.build(causal=False)
    return found


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    square = (4096, 4096) if whole else (64, 64)
    f32s = Array(square, f32), Array(square, f32, "zeros")
    for name in ("transpose", "transpose_with_conflicts"):
        yield Case(name, "transpose", lambda name=name: example("transpose", name), f32s[:1], f32s[1:])
    yield Case("transpose_naive", "transpose", naive_transpose, f32s[:1], f32s[1:])
    yield Case("stencil", "stencil", stencil, f32s[:1], f32s[1:])
    yield Case("filter_64", "stencil", lambda: filtered(64), (Array((4 * million + 64,), f32), Array((64,), f32)),
               (Array((4 * million,), f32, "zeros"),))  # fmt: skip
    sms, deep = (132, 64) if whole else (2, 3)
    for side, size in ((16, 1024), (32, 2048)):
        shape = (size, size) if whole else (64, 64)
        yield Case(f"square_tiles_{side}", "product", lambda side=side: square_tiles(side),
                   (Array(shape, f32), Array(shape, f32)), (Array(shape, f32, "zeros"),))  # fmt: skip
    for stages, ctas in ((2, 4 * sms), (4, 4 * sms), (4, sms)):
        pieces = Array((deep * 4 * sms // ctas, ctas, 2048), f32)
        yield Case(f"cp_async_{stages}_stages_{ctas // sms}_per_sm", "pipeline",
                   lambda stages=stages, ctas=ctas: pipelined_sums(stages, ctas),
                   (pieces,), (Array((ctas, 128), f32, "zeros"),))  # fmt: skip
    for rows, ctas, stages in ((64, 2 * sms, 4), (16, sms, 4)):
        shape = (rows * ctas * (deep // 2 + 4), 64)
        yield Case(f"tma_copy_{rows}_rows_{ctas // sms}_per_sm", "pipeline",
                   lambda rows=rows, ctas=ctas, stages=stages: tma_tiles(rows, ctas, stages),
                   (Array(shape, f32),), (Array(shape, f32, "zeros"),))  # fmt: skip
    yield Case("bulk_ring", "pipeline", lambda: ring_of_sums(2 * sms), (Array((deep, 2 * sms, 1024), f32),),
               (Array((2 * sms, 256), f32, "zeros"),))  # fmt: skip
    yield Case("cluster_sums_4", "cluster", lambda: exchanged(4), (Array((million // 64, 256), f32),),
               (Array((million // 64, 256), f32, "zeros"),))  # fmt: skip
    for name, size, build in (
        ("ampere_tile", 2048, lambda: example("ampere_tile", "ampere_gemm")),
        ("walkthrough", 1024, lambda: build_gemm_m64n64(*([1024] * 3 if whole else [64] * 3), tile_k=64)),
    ):
        shape = (size, size) if whole else (64, 64)
        yield Case(f"{name}_{size}", "product", build, (Array(shape, bf16), Array(shape, bf16)),
                   (Array(shape, f32, "zeros"),), flops=2.0 * size**3)  # fmt: skip
    shape = (4, 2048, 16, 64) if whole else (1, 128, 2, 64)
    yield Case("attention_of_parts", "attention", small_attention, (Array(shape, bf16),) * 3,
               (Array(shape, bf16, "zeros"),), flops=4.0 * 4 * 16 * 2048 * 2048 * 64)  # fmt: skip
