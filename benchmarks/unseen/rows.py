"""Kernels over rows: reductions, softmax, layer norm, matrix times vector, histograms, atomics."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import f32, u32, u64

from .case import Array, Case
from .elementwise import MILLION

ROOT = Path(__file__).resolve().parents[2]
ALL = 0xFFFFFFFF


def example(name: str, kernel_: str = "") -> Kernel:
    """A kernel from a file in `examples`."""
    spec = importlib.util.spec_from_file_location(f"unseen_{name}", ROOT / f"examples/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Kernel = getattr(module, kernel_ or name)
    return found


def over_the_warp(value: Any, combine: Callable[..., None]) -> None:
    for distance in (16, 8, 4, 2, 1):
        other = reg.scalar(f32)
        ptx.inst.shfl.sync.bfly.b32(other, value, distance, 31, ALL)
        combine(value, value, other)


def over_the_cta(shared: Any, value: Any, threads: int) -> None:
    """Every thread gets the sum: by warps, then through shared memory."""
    over_the_warp(value, ptx.inst.add.rn.f32)
    thread = ptx.special.tid.x()
    ptx.bar.sync(0)
    with ptx.if_(thread % 32 == 0):
        ptx.store(shared[thread // 32], value)
    ptx.bar.sync(0)
    value.set(0.0)
    for warp in range(threads // 32):
        value += ptx.load(f32, shared[warp])


def total(ctas: int, vector: int) -> Kernel:
    """The sum of all elements: a grid-stride loop, warps, shared memory, an atomic addition by each CTA."""
    threads = 256

    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile(1, f32),), grid=(ctas,), block=threads, arch="sm_90a")
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        shared = smem.array(f32, threads // 32)
        thread = ptx.special.tid.x()
        sums = [reg.scalar(f32, init=0.0) for _ in range(vector)]
        start = (ptx.special.ctaid.x() * threads + thread) * vector
        for at in ptx.range(start, n, ctas * threads * vector, dtype=u32):
            values = ptx.load(f32, ptx.addr(x + at.to(u64) * f32.bytes), vector=vector)
            for one, value in zip(sums, values if vector > 1 else [values], strict=True):
                one += value
        for one in sums[1:]:
            sums[0] += one
        over_the_cta(shared, sums[0], threads)
        with ptx.if_(thread == 0):
            ptx.inst.red.global_.add.f32(ptx.addr(y), sums[0])

    return program


def layer_norm(columns: int, threads: int = 256) -> Kernel:
    """One CTA per row, the row in registers; weight and bias."""
    each = columns // threads // 4

    @kernel(
        in_specs=(Tile("M", columns, f32), Tile(columns, f32), Tile(columns, f32)),
        out_specs=(Tile("M", columns, f32),), grid=("M",), block=threads, arch="sm_90a",
    )  # fmt: skip
    def program(X, W, B, Y):
        x, w, b, y = ptx.global_ptrs(X, W, B, Y)
        shared = smem.array(f32, threads // 32)
        thread = ptx.special.tid.x()
        row = ptx.special.ctaid.x().to(u64) * (columns * f32.bytes)
        offsets = [((thread + i * threads) * 16).to(u64) for i in range(each)]
        values = [ptx.load(f32, ptx.addr(x + row + offset), vector=4) for offset in offsets]
        mean = reg.scalar(f32, init=0.0)
        for four in values:
            for value in four:
                mean += value
        over_the_cta(shared, mean, threads)
        mean.set(mean * (1.0 / columns))
        squares = reg.scalar(f32, init=0.0)
        for four in values:
            for value in four:
                apart = value - mean
                ptx.inst.fma.rn.f32(squares, apart, apart, squares)
        over_the_cta(shared, squares, threads)
        scale = reg.scalar(f32)
        ptx.inst.rsqrt.approx.f32(scale, squares * (1.0 / columns) + 1e-5)
        for four, offset in zip(values, offsets, strict=True):
            weights = ptx.load(f32, ptx.addr(w + offset), vector=4)
            biases = ptx.load(f32, ptx.addr(b + offset), vector=4)
            made = [(v - mean) * scale * g + c for v, g, c in zip(four, weights, biases, strict=True)]
            ptx.store(ptx.addr(y + row + offset), made)

    return program


def matrix_times_vector(ahead: int) -> Kernel:
    """One warp per row, 16 bytes per lane."""

    @kernel(
        in_specs=(Tile("M", "K", f32, multiple=(8, 128 * ahead)), Tile("K", f32)), out_specs=(Tile("M", f32),),
        grid=(tiles("M", 8),), block=256, arch="sm_90a",
    )  # fmt: skip
    def program(A, X, Y):
        _, k = A.shape
        a, x, y = ptx.global_ptrs(A, X, Y)
        thread = ptx.special.tid.x()
        row, lane = ptx.special.ctaid.x() * 8 + thread // 32, thread % 32
        mine = a + row.to(u64) * k * f32.bytes
        sums = [reg.scalar(f32, init=0.0) for _ in range(4)]
        for first in ptx.range(lane * 4, k, 128 * ahead, dtype=u32):
            offsets = [(first + i * 128).to(u64) * f32.bytes for i in range(ahead)]
            rows = [ptx.load(f32, ptx.addr(mine + offset), vector=4) for offset in offsets]
            vectors = [ptx.load(f32, ptx.addr(x + offset), vector=4) for offset in offsets]
            for left, right in zip(rows, vectors, strict=True):
                for i in range(4):
                    ptx.inst.fma.rn.f32(sums[i], left[i], right[i], sums[i])
        for one in sums[1:]:
            sums[0] += one
        over_the_warp(sums[0], ptx.inst.add.rn.f32)
        with ptx.if_(lane == 0):
            ptx.store(ptx.addr(y + row.to(u64) * f32.bytes), sums[0])

    return program


def histogram(bins: int, ctas: int) -> Kernel:
    """Counts in shared memory, added to those in global memory at the end."""
    threads = 256

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile(bins, u32),), grid=(ctas,), block=threads, arch="sm_90a")
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        counts = smem.array(u32, bins)
        thread = ptx.special.tid.x()
        for first in range(0, bins, threads):
            ptx.store(counts[thread + first], ptx.select(thread < 0, thread, 0))
        ptx.bar.sync(0)
        start = ptx.special.ctaid.x() * threads + thread
        for at in ptx.range(start, n, ctas * threads, dtype=u32):
            value = ptx.load(u32, ptx.addr(x + at.to(u64) * u32.bytes))
            ptx.inst.red.shared.add.u32(counts[value % bins], 1)
        ptx.bar.sync(0)
        for first in range(0, bins, threads):
            count = ptx.load(u32, counts[thread + first])
            ptx.inst.red.global_.add.u32(ptx.addr(y + (thread + first).to(u64) * u32.bytes), count)

    return program


def scattered_additions() -> Kernel:
    """Y[I[i]] += 1 by atomics in L2."""

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile("M", u32),), grid=(tiles("N", 256),), block=256, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        at = (ptx.special.ctaid.x() * 256 + ptx.special.tid.x()).to(u64) * u32.bytes
        index = ptx.load(u32, ptx.addr(x + at))
        ptx.inst.red.global_.add.u32(ptx.addr(y + index.to(u64) * u32.bytes), 1)

    return program


def cases(million: int = MILLION) -> Iterator[Case]:
    sms, less = (132, 1) if million == MILLION else (3, 128)
    for ctas, vector in ((sms * 8, 4), (sms, 1)):
        yield Case(f"sum_{ctas}_ctas_{4 * vector}_bytes", "reduction",
                   lambda ctas=ctas, vector=vector: total(ctas, vector),
                   (Array((16 * million,), f32),), (Array((1,), f32, "zeros"),))  # fmt: skip
    for rows, columns in ((8192, 1024), (65536, 128), (512, 32768)):
        shape = rows // less, columns
        yield Case(f"softmax_{rows}_x_{columns}", "softmax", lambda: example("softmax"),
                   (Array(shape, f32),), (Array(shape, f32, "zeros"),))  # fmt: skip
    for rows, columns in ((8192, 4096), (1024, 1024)):
        yield Case(f"layer_norm_{rows}_x_{columns}", "layer norm", lambda columns=columns: layer_norm(columns),
                   (Array((rows // less, columns), f32), Array((columns,), f32), Array((columns,), f32)),
                   (Array((rows // less, columns), f32, "zeros"),))  # fmt: skip
    for ahead, m in ((1, 8192), (4, 8192), (4, 1024)):
        yield Case(f"matrix_times_vector_{m}_ahead_{ahead}", "matrix times vector",
                   lambda ahead=ahead: matrix_times_vector(ahead),
                   (Array((m // less, 8192), f32), Array((8192,), f32)),
                   (Array((m // less,), f32, "zeros"),))  # fmt: skip
    yield Case("histogram_256", "atomics", lambda: histogram(256, sms * 8),
               (Array((16 * million,), u32, 1 << 30),), (Array((256,), u32, "zeros"),))  # fmt: skip
    for places in (million, 1024):
        yield Case(f"scattered_additions_{places}", "atomics", scattered_additions,
                   (Array((4 * million,), u32, places),), (Array((places,), u32, "zeros"),))  # fmt: skip
