"""Kernels limited by one resource, predicted before they ran: banks, integers, MUFU, chains, strides, L2, registers,
shared memory, the tail of a grid, a launch that overlaps the previous one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import f32, u32, u64

from .case import Array, Case
from .elementwise import MILLION, each
from .rows import ALL


def shared_strides(words: int, rounds: int) -> Kernel:
    """Lanes read and write shared memory with a stride of `words`, repeatedly."""
    threads = 256

    @kernel(in_specs=(Tile("N", f32, multiple=(threads,)),), out_specs=(Tile("N", f32),), grid=(tiles("N", threads),),
            block=threads, arch="sm_90a")  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        piece = smem.array(f32, threads * words)
        thread = ptx.special.tid.x()
        place = ((ptx.special.ctaid.x() * threads + thread) * 4).to(u64)
        ptx.store(piece[thread * words], ptx.load(f32, ptx.addr(x + place)))
        ptx.bar.sync(0)
        for _ in ptx.range(rounds, unroll=False):
            value = ptx.load(f32, piece[(thread ^ 1) * words])
            ptx.bar.sync(0)
            ptx.store(piece[thread * words], value * 0.5)
            ptx.bar.sync(0)
        ptx.store(ptx.addr(y + place), ptx.load(f32, piece[thread * words]))

    return program


def bits(value: Any) -> Any:
    """Sixteen rounds of counting, reversing and shifting bits, and of products that are added."""
    mixed = value.copy()
    for _ in range(16):
        ones, zeros, turned = (reg.scalar(u32) for _ in range(3))
        ptx.inst.popc.b32(ones, mixed)
        ptx.inst.clz.b32(zeros, mixed)
        ptx.inst.brev.b32(turned, mixed)
        ptx.inst.mad.lo.u32(mixed, ones, zeros, turned)
        mixed = (mixed ^ (mixed >> 7)) + (mixed << 3)
    return mixed


def waves(value: Any) -> Any:
    """Eight rounds of a sine, a logarithm and a reciprocal root."""
    total = value.copy()
    for _ in range(8):
        sine, logarithm, root = (reg.scalar(f32) for _ in range(3))
        ptx.inst.sin.approx.f32(sine, total)
        ptx.inst.lg2.approx.f32(logarithm, sine * sine + 1.5)
        ptx.inst.rsqrt.approx.f32(root, logarithm + 2.0)
        total = total + root
    return total


def long_chain(steps: int) -> Kernel:
    """One warp per SM; each step of f32, of integers and of shared memory depends on the previous one."""

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile("N", u32),), grid=(tiles("N", 32),), block=32, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        table = smem.array(u32, 32)
        lane = ptx.special.tid.x()
        place = ((ptx.special.ctaid.x() * 32 + lane) * 4).to(u64)
        ptx.store(table[lane], ptx.load(u32, ptx.addr(x + place)) & 31)
        ptx.bar.sync(0)
        at = lane.copy()
        for _ in ptx.range(steps, unroll=False):
            found = ptx.load(u32, table[at])
            other = reg.scalar(u32)
            ptx.inst.shfl.sync.bfly.b32(other, found * 5 + 3, 1, 31, ALL)
            at.set((other ^ found) & 31)
        ptx.store(ptx.addr(y + place), at)

    return program


def sums_by_lanes() -> Kernel:
    """Each lane sums its own row: lanes read rows apart, and share lines only over time."""

    @kernel(
        in_specs=(Tile("M", "K", f32, multiple=(64, 4)),), out_specs=(Tile("M", f32),), grid=(tiles("M", 64),),
        block=64, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        _, k = X.shape
        x, y = ptx.global_ptrs(X, Y)
        row = ptx.special.ctaid.x() * 64 + ptx.special.tid.x()
        total = reg.scalar(f32, init=0.0)
        for at in ptx.range(0, k, 4, dtype=u32):
            for value in ptx.load(f32, ptx.addr(x + (row.to(u64) * k + at.to(u64)) * 4), vector=4):
                total += value
        ptx.store(ptx.addr(y + row.to(u64) * 4), total)

    return program


def passes(count: int, ctas: int) -> Kernel:
    """Sums over an array that stays in L2, `count` times, bypassing L1."""
    threads = 256

    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile(ctas, threads, f32),), grid=(ctas,), block=threads,
            arch="sm_90a")  # fmt: skip
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()
        sums = [reg.scalar(f32, init=0.0) for _ in range(4)]
        for _ in ptx.range(count, unroll=False):
            for at in ptx.range((cta * threads + thread) * 4, n, ctas * threads * 4, dtype=u32):
                four = [reg.scalar(f32) for _ in range(4)]
                ptx.inst("ld.global.cg.v4.f32", four, ptx.addr(x + at.to(u64) * 4))
                for one, value in zip(sums, four, strict=True):
                    one += value
        ptx.store(ptx.addr(y + (cta * threads + thread).to(u64) * 4), (sums[0] + sums[1]) + (sums[2] + sums[3]))

    return program


def outer_products(side: int) -> Kernel:
    """Each thread keeps `side` x `side` sums of products of two rows that it loads from global memory."""
    threads = 128

    @kernel(
        in_specs=(Tile("K", "N", f32, multiple=(1, threads * side)), Tile("K", side, f32)),
        out_specs=(Tile("N", f32),), grid=(tiles("N", threads * side),), block=threads, arch="sm_90a",
    )  # fmt: skip
    def program(A, B, Y):
        k, n = A.shape
        a, b, y = ptx.global_ptrs(A, B, Y)
        first = (ptx.special.ctaid.x() * threads + ptx.special.tid.x()) * side
        sums = [[reg.scalar(f32, init=0.0) for _ in range(side)] for _ in range(side)]
        for row in ptx.range(k):
            left = [
                value for i in range(0, side, 4)
                for value in ptx.load(f32, ptx.addr(a + (row.to(u64) * n + first + i) * 4), vector=4)
            ]  # fmt: skip
            right = [
                value for i in range(0, side, 4)
                for value in ptx.load(f32, ptx.addr(b + (row * side + i).to(u64) * 4), vector=4)
            ]  # fmt: skip
            for i in range(side):
                for j in range(side):
                    ptx.inst.fma.rn.f32(sums[i][j], left[i], right[j], sums[i][j])
        for i in range(side):
            for one in sums[i][1:]:
                sums[i][0] += one
            ptx.store(ptx.addr(y + (first + i).to(u64) * 4), sums[i][0])

    return program


def turned_pieces(kilobytes: int) -> Kernel:
    """A CTA loads a large block into shared memory and writes it back in reverse: few CTAs fit on an SM."""
    threads, words = 256, kilobytes * 256

    @kernel(in_specs=(Tile("N", f32, multiple=(words,)),), out_specs=(Tile("N", f32),), grid=(tiles("N", words),),
            block=threads, arch="sm_90a")  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        piece = smem.array(f32, words, align=16)
        thread = ptx.special.tid.x()
        base = ptx.special.ctaid.x().to(u64) * (words * 4)
        for first in ptx.range(thread * 4, words, threads * 4, dtype=u32):
            ptx.store(piece[first], ptx.load(f32, ptx.addr(x + base + first.to(u64) * 4), vector=4))
        ptx.bar.sync(0)
        for first in ptx.range(thread, words, threads, dtype=u32):
            ptx.store(ptx.addr(y + base + first.to(u64) * 4), ptx.load(f32, piece[(words - 1) - first]))

    return program


def scaled_after_the_wait(columns: int) -> Kernel:
    """A launch that overlaps the previous one reads its factors before it waits for it."""
    threads = 256

    @kernel(
        in_specs=(Tile("M", columns, f32), Tile(columns, f32)), out_specs=(Tile("M", columns, f32),), grid=("M",),
        block=threads, arch="sm_90a", pdl=True,
    )  # fmt: skip
    def program(X, W, Y):
        x, w, y = ptx.global_ptrs(X, W, Y)
        offsets = [((ptx.special.tid.x() + i * threads) * 16).to(u64) for i in range(columns // threads // 4)]
        factors = [ptx.load(f32, ptx.addr(w + offset), vector=4) for offset in offsets]
        ptx.inst.griddepcontrol.wait()
        ptx.inst.griddepcontrol.launch_dependents()
        row = ptx.special.ctaid.x().to(u64) * (columns * 4)
        for offset, fours in zip(offsets, factors, strict=True):
            values = ptx.load(f32, ptx.addr(x + row + offset), vector=4)
            ptx.store(ptx.addr(y + row + offset), [a * b for a, b in zip(values, fours, strict=True)])

    return program


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    sms = 132 if whole else 2

    def floats(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, f32),)

    def made(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, f32, "zeros"),)

    count = 2 * million
    for words in (1, 8):
        yield Case(f"shared_strides_{words}", "shared memory", lambda words=words: shared_strides(words, 64),
                   floats(count), made(count))  # fmt: skip
    numbers = Array((8 * million,), u32, 1 << 30), Array((8 * million,), u32, "zeros")
    yield Case("bits_of_words", "arithmetic", lambda: each(bits, name="bits", dtype=u32, vector=4), numbers[:1],
               numbers[1:])  # fmt: skip
    yield Case("waves_of_functions", "arithmetic", lambda: each(waves, name="waves", vector=4), floats(8 * million),
               made(8 * million))  # fmt: skip
    chain = Array((32 * sms,), u32, 1 << 30), Array((32 * sms,), u32, "zeros")
    yield Case("chain_of_4096", "latency", lambda: long_chain(4096 if whole else 64), chain[:1], chain[1:])
    rows = 16384 if whole else 128
    yield Case("sums_by_lanes", "reduction", sums_by_lanes, floats(rows, 1024), made(rows))
    yield Case("eight_passes_over_8_mb", "L2", lambda: passes(8, 8 * sms), floats(2 * million), made(8 * sms, 256))
    wide, deep = (sms * 3 * 1024, 256) if whole else (1024, 8)
    yield Case("outer_products_8", "arithmetic", lambda: outer_products(8), (*floats(deep, wide), *floats(deep, 8)),
               made(wide))  # fmt: skip
    pieces = (6 * sms if whole else 2) * 96 * 256
    yield Case("turned_pieces_of_96_kb", "shared memory", lambda: turned_pieces(96), floats(pieces), made(pieces))
    above = 256 * (sms * 8 + 40 if whole else 3)
    yield Case("a_few_ctas_above_a_wave", "arithmetic", lambda: each(waves, name="above"), floats(above), made(above))
    rows = 2048 if whole else 4
    yield Case("scaled_after_the_wait", "elementwise", lambda: scaled_after_the_wait(4096),
               (*floats(rows, 4096), *floats(4096)), made(rows, 4096))  # fmt: skip
