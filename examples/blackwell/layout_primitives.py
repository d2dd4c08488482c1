"""Blackwell's primitives, third part: layouts of D, halves, the other copies, 4-bit products, the collector buffer.

`PRIMITIVES` also has those of `primitives.py` and `more_primitives.py`. The expected values are computed from the ISA's
text, not by the tables of the emulator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import more_primitives
import numpy as np
import primitives
from primitives import (
    COLUMNS,
    THREADS,
    Primitive,
    _barrier,
    _constant,
    _first,
    _kernel,
    _number,
    _ones,
    _put_all,
    _tile,
    _wait,
)  # fmt: skip

from warploom import ptx, reg, smem, tmem
from warploom.types import b32, bf16, e2m1, f16, f32, u8, u32

HALVES_OF_ONE, ONES_OF_4_BITS = 0x3C003C00, 0x22222222
"""Two ones of f16, eight of e2m1."""


def _rank(cluster: int) -> Any:
    return ptx.special.cluster_ctarank() if cluster > 1 else reg.scalar(u32, init=0)


def _layout(m: int, n: int, cluster: int = 1, *, ws: bool = False, split: int | None = None):
    """D[row, column] = row + column, as A has (row, 1, 0 ...) and B (1, column, 0 ...); a thread's first 8 cells."""

    def body(put):
        done, rank = _barrier(), _rank(cluster)
        rows, columns = m // cluster, n // cluster

        def of_a(row, k):
            return (row + rank * rows).to(f32) if k == 0 else _number(float(k == 1))

        def of_b(row, k):
            return (row + rank * columns).to(f32) if k == 1 else _number(float(k == 0))

        a, b = _tile("a", rows, of_a), _tile("b", columns, of_b)
        memory = tmem.alloc(64, group=cluster)
        acc = memory.accumulator(m, n, ws=ws)
        with ptx.if_(_first() & (rank == 0)):
            ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), accumulate=False, ws=ws)
            ptx.tcgen05.commit(done[0], group=cluster, multicast=3 if cluster > 1 else None)
        _wait(done)
        found = ptx.tcgen05.ld(acc[0].mine(), 8, dtype=f32, split=split)
        ptx.tcgen05.wait_ld()
        _put_all(put, found)
        memory.dealloc()

    body.__name__ = f"layout_of_{m}x{n}_{cluster}"
    return body


def p34_halves(put):
    """st.unpack::16b of two halves per register: each has a cell of its own; ld.pack::16b joins them again."""
    memory = tmem.alloc(COLUMNS)
    cells = memory.tile(8)
    first = ptx.special.tid.x() * 8
    ptx.tcgen05.st(
        cells[0].mine(), [(first + 2 * pair) | (first + 2 * pair + 1) << 16 for pair in range(4)], unpack=True
    )
    ptx.tcgen05.wait_st()
    apart = ptx.tcgen05.ld(cells[0].mine(), 8, dtype=u32)
    together = ptx.tcgen05.ld(cells[0].mine(), 4, dtype=u32, pack=True)
    ptx.tcgen05.wait_ld()
    _put_all(put, [cell & 0xFFFF for cell in apart])
    _put_all(put, together, 8)
    memory.dealloc()


def _words(dtype: Any, rows: int, word: int) -> Any:
    """A tile of rows of 128 bytes, all of the same word."""
    tile = smem.umma_tile(dtype, (rows, 1024 // dtype.bits), name="same")
    value = reg.scalar(b32, init=word)
    with ptx.if_(ptx.special.tid.x() < rows):
        for piece in range(8):
            ptx.store(tile[0] + ptx.special.tid.x() * 128 + 16 * piece, [value] * 4)
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    return tile


def p35_sums_of_halves(put):
    """D of f16: 16 in each half of a register."""
    done = _barrier()
    a, b = _words(f16, THREADS, HALVES_OF_ONE), _words(f16, COLUMNS, HALVES_OF_ONE)
    memory = tmem.alloc(COLUMNS)
    acc = memory.accumulator(128, COLUMNS, f16)
    with ptx.if_(_first()):
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), accumulate=False)
        ptx.tcgen05.commit(done[0])
    _wait(done)
    found = acc[0].load(0, 16).registers
    ptx.tcgen05.wait_ld()
    _put_all(put, [value.view(u32) for value in found])
    memory.dealloc()


def _copied(shape: str, rows: int, pieces: int, multicast: str = "") -> Callable[..., None]:
    """tcgen05.cp over zeros: word w of row r is 100 r + w + 1."""

    def body(put):
        done = _barrier()
        source = smem.umma_tile(
            u8, (max(rows, 8), 16 * pieces), swizzle="32B" if pieces == 2 else "NONE", name="source"
        )
        row = ptx.special.tid.x()
        with ptx.if_(row < max(rows, 8)):
            for piece in range(pieces):
                chunk = (row >> 2 & 1) ^ piece if pieces == 2 else 0
                words = [row * 100 + (4 * piece + word + 1) for word in range(4)]
                ptx.store(source[0] + row * (16 * pieces) + chunk * 16, words)
        ptx.fence.proxy_async()
        memory = tmem.alloc(COLUMNS)
        cells = memory.tile(8)
        ptx.tcgen05.st(cells[0].mine(), [reg.scalar(u32, init=0)] * 8)
        ptx.tcgen05.wait_st()
        ptx.tcgen05.fence_before_thread_sync()
        ptx.bar.sync(0)
        ptx.tcgen05.fence_after_thread_sync()
        with ptx.if_(_first()):
            ptx.tcgen05.cp(cells[0], source[0], shape=shape, multicast=multicast)
            ptx.tcgen05.commit(done[0])
        _wait(done)
        found = ptx.tcgen05.ld(cells[0].mine(), 8, dtype=u32)
        ptx.tcgen05.wait_ld()
        _put_all(put, found)
        memory.dealloc()

    body.__name__ = f"copy_{shape}_{multicast.replace('::', '_')}"
    return body


def _cells(row_of_lane: Callable[[int], int | None], words: int) -> np.ndarray:
    """What `_copied` leaves: the words of the row that a lane gets, otherwise zeros."""
    found = np.zeros((THREADS, 8), np.uint32)
    for lane in range(THREADS):
        if (row := row_of_lane(lane)) is not None:
            found[lane, :words] = 100 * row + np.arange(1, words + 1)
    return found


def _scaled_4_bits(block: int, scale: str, of_a: int, of_b: int) -> Callable[..., None]:
    """A product of 64 ones of 4 bits, with the same factor in all blocks of A, and of B."""

    def body(put):
        done = _barrier()
        a, b = _words(e2m1, THREADS, ONES_OF_4_BITS), _words(e2m1, COLUMNS, ONES_OF_4_BITS)
        memory = tmem.alloc(64)
        acc = memory.accumulator(128, COLUMNS)
        factors = memory.scales(128), memory.scales(COLUMNS)
        for each, byte, columns in zip(factors, (of_a, of_b), (4, 1), strict=True):
            ptx.tcgen05.st(each[0].mine(), [reg.scalar(b32, init=0x01010101 * byte)] * columns)
        ptx.tcgen05.wait_st()
        ptx.tcgen05.fence_before_thread_sync()
        ptx.bar.sync(0)
        ptx.tcgen05.fence_after_thread_sync()
        with ptx.if_(_first()):
            scales = ptx.tcgen05.Scales(factors[0][0], factors[1][0], scale, block)
            ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), accumulate=False, scales=scales)
            ptx.tcgen05.commit(done[0])
        more_primitives._finish(put, done, acc, memory)

    body.__name__ = f"scaled_blocks_of_{block}"
    return body


def p43_collector(put):
    """The second product takes A from the collector buffer that the first one filled: 32."""
    done = _barrier()
    a, b = _ones(), _ones(COLUMNS)
    memory = tmem.alloc(COLUMNS)
    acc = memory.accumulator(128, COLUMNS)
    with ptx.if_(_first()):
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), accumulate=False, collector="fill")
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(1), collector="lastuse")
        ptx.tcgen05.commit(done[0])
    more_primitives._finish(put, done, acc, memory)


def p44_columns_contiguous(put):
    """B with n contiguous: its row k = 0 has ones, k = 1 the column: row + column."""
    done = _barrier()
    a = _tile("a", THREADS, lambda row, k: row.to(f32) if k == 0 else _number(float(k == 1)))
    b = smem.umma_tile(bf16, (64, 64), major="MN", name="b")
    row = ptx.special.tid.x()
    with ptx.if_(row < 64):
        for piece in range(8):
            words = []
            for pair in range(4):
                word, first = reg.scalar(b32), 8 * piece + 2 * pair
                low, high = (
                    ptx.select(row == 1, _number(first + odd), ptx.select(row == 0, _number(1.0), _number(0.0)))
                    for odd in (0.0, 1.0)
                )
                ptx.inst.cvt.rn.bf16x2.f32(word, high, low)
                words.append(word)
            ptx.store(b[0] + row * 128 + (((row & 7) ^ piece) << 4), words)
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    memory = tmem.alloc(64)
    acc = memory.accumulator(128, 64)
    with ptx.if_(_first()):
        ptx.tcgen05.multiply(acc[0], a[0], b[0], accumulate=False)
        ptx.tcgen05.commit(done[0])
    more_primitives._finish(put, done, acc, memory)


_T, _EIGHT = np.arange(THREADS)[:, None], np.arange(8)
_F = 16 * (_T // 32) + _T % 16 + 16 * (_T % 32 // 16) + _EIGHT
_B = np.vstack([64 * rank + _T % 64 + 16 * (_T // 64) + _EIGHT for rank in range(2)])
_APART = (8 * _T + _EIGHT).astype(np.uint32)
_HALVES = np.hstack([_APART, _APART[:, ::2] | _APART[:, 1::2] << 16])
PRIMITIVES = (
    *more_primitives.PRIMITIVES,
    Primitive("30 layout F", _kernel(8, f32)(_layout(64, 32, split=16)), _F),
    Primitive("31 layout B", _kernel(8, f32, cluster=2)(_layout(128, 32, 2)), _B),
    Primitive("32 layout E", _kernel(8, f32)(_layout(64, 64, ws=True)), _T % 64 + 32 * (_T // 64) + _EIGHT),
    Primitive("33 layout G", _kernel(8, f32)(_layout(32, 64, ws=True)), _T % 32 + 16 * (_T // 32) + _EIGHT),
    Primitive("34 halves", _kernel(12, u32)(p34_halves), _HALVES),
    Primitive("35 sums of halves", _kernel(8, u32)(p35_sums_of_halves), np.full((THREADS, 8), 0x4C004C00, np.uint32)),
    Primitive("36 copy 128x256b", _kernel(8, u32)(_copied("128x256b", 128, 2)), _cells(lambda lane: lane, 8)),
    Primitive("37 copy 128x128b", _kernel(8, u32)(_copied("128x128b", 128, 1)), _cells(lambda lane: lane, 4)),
    Primitive(
        "38 copy to quarters 0 and 2", _kernel(8, u32)(_copied("64x128b", 64, 1, "warpx2::02_13")),
        _cells(lambda lane: lane % 64, 4),
    ),
    Primitive(
        "39 copy to quarters 0 and 1", _kernel(8, u32)(_copied("64x128b", 64, 1, "warpx2::01_23")),
        _cells(lambda lane: lane // 64 * 32 + lane % 32, 4),
    ),
    Primitive(
        "40 copy 4x256b", _kernel(8, u32)(_copied("4x256b", 4, 2)),
        _cells(lambda lane: None if lane % 32 else lane // 32, 8),
    ),
    Primitive("41 mxf4", _kernel(8, f32)(_scaled_4_bits(32, "ue8m0", 0x80, 0x81)), _constant(512)),
    Primitive("42 nvfp4", _kernel(8, f32)(_scaled_4_bits(16, "ue4m3", 0x40, 0x34)), _constant(96)),
    Primitive("43 collector", _kernel(8, f32)(p43_collector), _constant(32)),
    Primitive("44 columns contiguous", _kernel(8, f32)(p44_columns_contiguous), _T + _EIGHT),
)  # fmt: skip
"""The factor 0x34 of ue4m3 is 3/4; 0x80 and 0x81 of ue8m0 are 2 and 4."""


if __name__ == "__main__":
    primitives.main(PRIMITIVES)
