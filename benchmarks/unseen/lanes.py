"""Further kernels of lanes, predicted before they ran: lookups, scans, sorts, histograms, random numbers, chases."""

from __future__ import annotations

import math
from collections.abc import Iterator

from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import f32, u32, u64

from .case import Array, Case
from .elementwise import MILLION
from .rows import ALL, over_the_cta, over_the_warp


def reversed_copy() -> Kernel:
    """Y[n - 1 - i] = X[i], 8 bytes per lane: lanes store in descending order."""
    threads = 512

    @kernel(
        in_specs=(Tile("N", f32, multiple=(2 * threads,)),), out_specs=(Tile("N", f32),),
        grid=(tiles("N", 2 * threads),), block=threads, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        at = (ptx.special.ctaid.x() * threads + ptx.special.tid.x()) * 2
        first, second = ptx.load(f32, ptx.addr(x + at.to(u64) * 4), vector=2)
        ptx.store(ptx.addr(y + (n - 2 - at).to(u64) * 4), [second, first])

    return program


def rows_of_a_table(columns: int) -> Kernel:
    """An embedding: each warp copies the row that an index names."""

    @kernel(
        in_specs=(Tile("V", columns, f32), Tile("N", u32, multiple=(8,))), out_specs=(Tile("N", columns, f32),),
        grid=(tiles("N", 8),), block=256, arch="sm_90a",
    )  # fmt: skip
    def program(T, I, Y):  # noqa: E741 - the usual name of indices
        t, i, y = ptx.global_ptrs(T, I, Y)
        thread = ptx.special.tid.x()
        row, lane = ptx.special.ctaid.x() * 8 + thread // 32, thread % 32
        index = ptx.load(u32, ptx.addr(i + row.to(u64) * 4))
        for first in range(0, columns, 128):
            place = (lane * 4 + first).to(u64) * 4
            values = ptx.load(f32, ptx.addr(t + index.to(u64) * (columns * 4) + place), vector=4)
            ptx.store(ptx.addr(y + row.to(u64) * (columns * 4) + place), values)

    return program


def sums_of_rows() -> Kernel:
    """One warp per row with shuffles, four 16-byte loads in flight."""

    @kernel(
        in_specs=(Tile("M", "K", f32, multiple=(4, 512)),), out_specs=(Tile("M", f32),), grid=(tiles("M", 4),),
        block=128, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        _, k = X.shape
        x, y = ptx.global_ptrs(X, Y)
        thread = ptx.special.tid.x()
        row, lane = ptx.special.ctaid.x() * 4 + thread // 32, thread % 32
        mine = x + row.to(u64) * k * 4
        total = reg.scalar(f32, init=0.0)
        for first in ptx.range(lane * 4, k, 512, dtype=u32):
            fours = [ptx.load(f32, ptx.addr(mine + (first + i * 128).to(u64) * 4), vector=4) for i in range(4)]
            for four in fours:
                for value in four:
                    total += value
        over_the_warp(total, ptx.inst.add.rn.f32)
        with ptx.if_(lane == 0):
            ptx.store(ptx.addr(y + row.to(u64) * 4), total)

    return program


def softmax_in_shared(columns: int) -> Kernel:
    """One CTA per row, the row in shared memory between its passes."""
    threads = 256

    @kernel(in_specs=(Tile("M", columns, f32),), out_specs=(Tile("M", columns, f32),), grid=("M",), block=threads,
            arch="sm_90a")  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        row, partial = smem.array(f32, columns, align=16), smem.array(f32, threads // 32)
        thread = ptx.special.tid.x()
        base = ptx.special.ctaid.x().to(u64) * (columns * 4)
        largest = reg.scalar(f32, init=-math.inf)
        for first in range(0, columns, 4 * threads):
            four = ptx.load(f32, ptx.addr(x + base + ((thread * 4 + first) * 4).to(u64)), vector=4)
            ptx.store(row[thread * 4 + first], four)
            for value in four:
                ptx.inst.max.f32(largest, largest, value)
        over_the_warp(largest, ptx.inst.max.f32)
        with ptx.if_(thread % 32 == 0):
            ptx.store(partial[thread // 32], largest)
        ptx.bar.sync(0)
        for warp in range(threads // 32):
            ptx.inst.max.f32(largest, largest, ptx.load(f32, partial[warp]))
        total = reg.scalar(f32, init=0.0)
        for first in range(0, columns, threads):
            power = reg.scalar(f32)
            ptx.inst.ex2.approx.f32(power, (ptx.load(f32, row[thread + first]) - largest) * math.log2(math.e))
            ptx.store(row[thread + first], power)
            total += power
        over_the_cta(partial, total, threads)
        scale = 1.0 / total
        for first in range(0, columns, threads):
            ptx.store(ptx.addr(y + base + ((thread + first) * 4).to(u64)), ptx.load(f32, row[thread + first]) * scale)

    return program


def global_histogram(ctas: int) -> Kernel:
    """Counts of 4096 bins by atomics in L2, four values per load."""

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile(4096, u32),), grid=(ctas,), block=256, arch="sm_90a")
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        start = (ptx.special.ctaid.x() * 256 + ptx.special.tid.x()) * 4
        for at in ptx.range(start, n, ctas * 1024, dtype=u32):
            for value in ptx.load(u32, ptx.addr(x + at.to(u64) * 4), vector=4):
                ptx.inst.red.global_.add.u32(ptx.addr(y + (value & 4095).to(u64) * 4), 1)

    return program


def looked_up() -> Kernel:
    """Y[i] = T[X[i]] with 1024 words in shared memory and random bank conflicts."""

    @kernel(in_specs=(Tile("N", u32), Tile(1024, f32)), out_specs=(Tile("N", f32),), grid=(1056,), block=256,
            arch="sm_90a")  # fmt: skip
    def program(X, T, Y):
        (n,) = X.shape
        x, t, y = ptx.global_ptrs(X, T, Y)
        table = smem.array(f32, 1024)
        thread = ptx.special.tid.x()
        for first in range(0, 1024, 256):
            ptx.store(table[thread + first], ptx.load(f32, ptx.addr(t + ((thread + first) * 4).to(u64))))
        ptx.bar.sync(0)
        for at in ptx.range(ptx.special.ctaid.x() * 256 + thread, n, 1056 * 256, dtype=u32):
            index = ptx.load(u32, ptx.addr(x + at.to(u64) * 4)) & 1023
            ptx.store(ptx.addr(y + at.to(u64) * 4), ptx.load(f32, table[index]))

    return program


def sorted_pieces() -> Kernel:
    """Bitonic sort of 1024 words in shared memory, 512 threads: 55 steps with a barrier each."""
    size = 1024

    @kernel(in_specs=(Tile("N", u32, multiple=(size,)),), out_specs=(Tile("N", u32),), grid=(tiles("N", size),),
            block=size // 2, arch="sm_90a")  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        piece = smem.array(u32, size)
        thread = ptx.special.tid.x()
        base = ptx.special.ctaid.x().to(u64) * (size * 4)
        for first in (0, size // 2):
            ptx.store(piece[thread + first], ptx.load(u32, ptx.addr(x + base + ((thread + first) * 4).to(u64))))
        for width in (2 << i for i in range(10)):
            distance = width // 2
            while distance:
                ptx.bar.sync(0)
                low = thread // distance * (2 * distance) + thread % distance
                one, other = ptx.load(u32, piece[low]), ptx.load(u32, piece[low + distance])
                rising = (low & width) == 0
                small, large = reg.scalar(u32), reg.scalar(u32)
                ptx.inst.min.u32(small, one, other)
                ptx.inst.max.u32(large, one, other)
                ptx.store(piece[low], ptx.select(rising, small, large))
                ptx.store(piece[low + distance], ptx.select(rising, large, small))
                distance //= 2
        ptx.bar.sync(0)
        for first in (0, size // 2):
            ptx.store(ptx.addr(y + base + ((thread + first) * 4).to(u64)), ptx.load(u32, piece[thread + first]))

    return program


def random_numbers(steps: int) -> Kernel:
    """Each thread draws numbers from a linear congruential generator and counts those inside a circle."""

    @kernel(in_specs=(Tile(1, u32),), out_specs=(Tile("N", u32, multiple=(256,)),), grid=(tiles("N", 256),), block=256,
            arch="sm_90a")  # fmt: skip
    def program(X, Y):
        _, y = ptx.global_ptrs(X, Y)
        thread = ptx.special.ctaid.x() * 256 + ptx.special.tid.x()
        state, inside = (thread * 2654435761).copy(), reg.scalar(u32, init=0)
        for _ in ptx.range(steps, unroll=False):
            state.set(state * 1664525 + 1013904223)
            across = (state >> 16).to(f32)
            down = (state & 0xFFFF).to(f32)
            far = across * across + down * down
            inside.set(inside + ptx.select(far < 4294836225.0, thread * 0 + 1, 0))
        ptx.store(ptx.addr(y + thread.to(u64) * 4), inside)

    return program


def chases(ctas: int, warps: int, steps: int) -> Kernel:
    """Many warps chase pointers at a time, one lane of each."""

    @kernel(
        in_specs=(Tile("N", u32),), out_specs=(Tile(ctas * warps, u32),), grid=(ctas,), block=32 * warps, arch="sm_90a"
    )
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        mine = ptx.special.ctaid.x() * warps + ptx.special.tid.x() // 32
        at = (mine * 7919 * 64 % n).copy()
        for _ in ptx.range(steps, unroll=False):
            at.set(ptx.load(u32, ptx.addr(x + at.to(u64) * 4)))
        with ptx.if_(ptx.special.tid.x() % 32 == 0):
            ptx.store(ptx.addr(y + mine.to(u64) * 4), at)

    return program


def independent_sums(chains: int, threads: int, terms: int) -> Kernel:
    """f32 by independent chains of multiplications and additions; one CTA per SM."""

    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(132,), block=threads, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        place = (ptx.special.ctaid.x() * threads + ptx.special.tid.x()).to(u64) * 4
        value = ptx.load(f32, ptx.addr(x + place))
        sums = [(value * (0.5 + i)).copy() for i in range(chains)]
        for _ in ptx.range(terms // 16, unroll=False):
            for _ in range(16):
                for one in sums:
                    ptx.inst.fma.rn.f32(one, one, value, 0.25)
        for one in sums[1:]:
            sums[0] += one
        ptx.store(ptx.addr(y + place), sums[0])

    return program


def root_mean_square(columns: int) -> Kernel:
    """RMS norm, one CTA per row, in a dependent launch: waits late, lets the next begin early."""
    threads = columns // 8

    @kernel(
        in_specs=(Tile("M", columns, f32), Tile(columns, f32)), out_specs=(Tile("M", columns, f32),), grid=("M",),
        block=threads, arch="sm_90a", pdl=True,
    )  # fmt: skip
    def program(X, W, Y):
        x, w, y = ptx.global_ptrs(X, W, Y)
        partial = smem.array(f32, threads // 32)
        thread = ptx.special.tid.x()
        base = ptx.special.ctaid.x().to(u64) * (columns * 4)
        offsets = [((thread + i * threads) * 16).to(u64) for i in range(2)]
        ptx.inst.griddepcontrol.launch_dependents()
        weights = [ptx.load(f32, ptx.addr(w + offset), vector=4) for offset in offsets]
        ptx.inst.griddepcontrol.wait()
        values = [ptx.load(f32, ptx.addr(x + base + offset), vector=4) for offset in offsets]
        squares = reg.scalar(f32, init=0.0)
        for four in values:
            for value in four:
                ptx.inst.fma.rn.f32(squares, value, value, squares)
        over_the_cta(partial, squares, threads)
        scale = reg.scalar(f32)
        ptx.inst.rsqrt.approx.f32(scale, squares * (1.0 / columns) + 1e-6)
        for four, weight, offset in zip(values, weights, offsets, strict=True):
            made = [value * scale * each for value, each in zip(four, weight, strict=True)]
            ptx.store(ptx.addr(y + base + offset), made)

    return program


def running_sums() -> Kernel:
    """Inclusive sums of blocks of 1024: shuffles, then the warps' totals through shared memory."""
    threads = 256

    @kernel(in_specs=(Tile("N", f32, multiple=(4 * threads,)),), out_specs=(Tile("N", f32),),
            grid=(tiles("N", 4 * threads),), block=threads, arch="sm_90a")  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        totals = smem.array(f32, threads // 32)
        thread = ptx.special.tid.x()
        lane, warp = thread % 32, thread // 32
        place = (ptx.special.ctaid.x() * (4 * threads) + thread * 4).to(u64) * 4
        four = list(ptx.load(f32, ptx.addr(x + place), vector=4))
        for i in range(1, 4):
            four[i] = (four[i - 1] + four[i]).copy()
        mine = four[3].copy()
        for distance in (1, 2, 4, 8, 16):
            before = reg.scalar(f32)
            ptx.inst.shfl.sync.up.b32(before, mine, distance, 0, ALL)
            mine.set(mine + ptx.select(lane >= distance, before, before * 0.0))
        with ptx.if_(lane == 31):
            ptx.store(totals[warp], mine)
        ptx.bar.sync(0)
        offset = (mine - four[3]).copy()
        for other in range(threads // 32 - 1):
            value = ptx.load(f32, totals[other])
            offset.set(offset + ptx.select(warp > other, value, value * 0.0))
        ptx.store(ptx.addr(y + place), [value + offset for value in four])

    return program


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    sms, steps = (132, 1024) if whole else (2, 8)

    def floats(*shape: int) -> Array:
        return Array(shape, f32)

    def words(*shape: int, fill: int = 1 << 30) -> Array:
        return Array(shape, u32, fill)

    def made(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, f32, "zeros"),)

    def counted(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, u32, "zeros"),)

    yield Case("copy_8_bytes_reversed", "elementwise", reversed_copy, (floats(32 * million),), made(32 * million))
    rows = million // 16
    yield Case("rows_of_a_table", "gather", lambda: rows_of_a_table(256), (floats(rows, 256), words(rows, fill=rows)),
               made(rows, 256))  # fmt: skip
    yield Case("sums_of_rows", "reduction", sums_of_rows, (floats(million // 64, 2048),), made(million // 64))
    few = million // 256
    yield Case("softmax_in_shared", "softmax", lambda: softmax_in_shared(8192), (floats(few, 8192),), made(few, 8192))
    yield Case("global_histogram_4096", "atomics", lambda: global_histogram(4 * sms), (words(8 * million),),
               counted(4096))  # fmt: skip
    yield Case("looked_up", "lookup", looked_up, (words(16 * million), floats(1024)), made(16 * million))
    yield Case("sorted_pieces", "sort", sorted_pieces, (words(8 * million),), counted(8 * million))
    yield Case("random_numbers", "integers", lambda: random_numbers(steps), (words(1),), counted(million // 4))
    chain = Array((16 * million,), u32, "leaps")
    for warps in (1, 16):
        yield Case(f"chases_{warps}_per_sm", "latency", lambda warps=warps: chases(sms, warps, steps), (chain,),
                   counted(sms * warps), moved=sms * warps * steps * 64)  # fmt: skip
    for chains, threads in ((1, 128), (4, 128), (8, 256)):
        yield Case(f"independent_sums_{chains}_of_{threads}", "arithmetic",
                   lambda chains=chains, threads=threads: independent_sums(chains, threads, 16 * steps),
                   (floats(132 * threads),), made(132 * threads))  # fmt: skip
    yield Case("root_mean_square_4096", "layer norm", lambda: root_mean_square(4096), (floats(few, 4096), floats(4096)),
               made(few, 4096))  # fmt: skip
    yield Case("running_sums", "scan", running_sums, (floats(16 * million),), made(16 * million))
