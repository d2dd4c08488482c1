"""More of Blackwell's primitives: other kinds of products, their options, other copies, shifts, launch control.

`PRIMITIVES` also has those of `primitives.py`, whose command runs and whose helpers build these.
"""

from __future__ import annotations

from typing import Any

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
from warploom.types import b32, b128, bf16, e4m3, f32, s8, s32, tf32, u8, u32

ONES = {bf16: 0x3F803F80, e4m3: 0x38383838, tf32: 0x3F800000, s8: 0x01010101}
"""A word of ones."""


def _filled(dtype: Any, rows: int) -> Any:
    """A tile of ones, rows of 128 bytes."""
    tile = smem.umma_tile(dtype, (rows, 1024 // dtype.bits), name="ones")
    word = reg.scalar(b32, init=ONES[dtype])
    with ptx.if_(ptx.special.tid.x() < rows):
        for piece in range(8):
            ptx.store(tile[0] + ptx.special.tid.x() * 128 + 16 * piece, [word] * 4)
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    return tile


def _product_of(dtype: Any, result: Any = f32):
    """One product of ones, 32 bytes deep: as many as its k."""

    def body(put):
        done = _barrier()
        a, b = _filled(dtype, THREADS), _filled(dtype, COLUMNS)
        memory = tmem.alloc(COLUMNS)
        acc = memory.accumulator(128, COLUMNS, result)
        with ptx.if_(_first()):
            ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), accumulate=False)
            ptx.tcgen05.commit(done[0])
        _finish(put, done, acc, memory)

    body.__name__ = f"product_of_{dtype}"
    return body


def _finish(put, done, acc, memory):
    _wait(done)
    found = acc[0].load(0, 8).registers
    ptx.tcgen05.wait_ld()
    _put_all(put, [value.view(u32) if value.dtype is s32 else value for value in found])
    memory.dealloc()


def _second(put, **options):
    """A product, 16, and a second one with options that adds to it."""
    done = _barrier()
    a, b = _ones(), _ones(COLUMNS)
    memory = tmem.alloc(COLUMNS)
    acc = memory.accumulator(128, COLUMNS)
    off, on = reg.scalar(b32, init=0xFFFFFFFF), reg.scalar(b32, init=0)
    if "lanes" in options:
        options["lanes"] = [off, on, on, on]
    with ptx.if_(_first()):
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), accumulate=False)
        ptx.tcgen05.mma(acc[0], a[0].k(1), b[0].k(1), **options)
        ptx.tcgen05.commit(done[0])
    _finish(put, done, acc, memory)


def p17_halved_sum(put):
    """D is divided by two before the second product is added: 24."""
    _second(put, scale_d=1)


def p18_disabled_lanes(put):
    """The second product leaves the first 32 lanes alone: 16, in the others 32."""
    _second(put, lanes=True)


def p19_negated(put):
    """The second product is subtracted: 0."""
    _second(put, negate=(True, False))


def p20_weight_stationary(put):
    """.ws with 64 columns: 16."""
    done = _barrier()
    a, b = _ones(), _ones(64)
    memory = tmem.alloc(64)
    acc = memory.accumulator(128, 64, ws=True)
    with ptx.if_(_first()):
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), accumulate=False, ws=True)
        ptx.tcgen05.commit(done[0])
    _finish(put, done, acc, memory)


def p21_scaled_blocks(put):
    """mxf8f6f4: 32 products of ones, scaled by 2 for A and by 4 for B: 256."""
    done = _barrier()
    a, b = _filled(e4m3, THREADS), _filled(e4m3, COLUMNS)
    memory = tmem.alloc(64)
    acc = memory.accumulator(128, COLUMNS)
    of_a, of_b = memory.scales(128), memory.scales(COLUMNS)
    ptx.tcgen05.st(of_a[0].mine(), [reg.scalar(b32, init=0x80808080)] * 4)
    ptx.tcgen05.st(of_b[0].mine(), [reg.scalar(b32, init=0x81818181)])
    ptx.tcgen05.wait_st()
    ptx.tcgen05.fence_before_thread_sync()
    ptx.bar.sync(0)
    ptx.tcgen05.fence_after_thread_sync()
    with ptx.if_(_first()):
        scales = ptx.tcgen05.Scales(of_a[0], of_b[0])
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), accumulate=False, scales=scales)
        ptx.tcgen05.commit(done[0])
    _finish(put, done, acc, memory)


def p22_shift(put):
    """Each lane of a quarter gets the cells of the next; the last keeps its own."""
    done = _barrier()
    memory = tmem.alloc(COLUMNS)
    cells = memory.tile(8)
    ptx.tcgen05.st(cells[0].mine(), [ptx.special.tid.x() * 100 + column for column in range(8)])
    ptx.tcgen05.wait_st()
    ptx.tcgen05.fence_before_thread_sync()
    ptx.bar.sync(0)
    ptx.tcgen05.fence_after_thread_sync()
    with ptx.if_(_first()):
        ptx.tcgen05.shift(cells[0])
        ptx.tcgen05.commit(done[0])
    _wait(done)
    found = ptx.tcgen05.ld(cells[0].mine(), 8, dtype=u32)
    ptx.tcgen05.wait_ld()
    _put_all(put, found)
    memory.dealloc()


def p23_nothing_to_cancel(put):
    """Launch control in a grid of one cluster: the request is declined."""
    answer, full = smem.array(b128, 1, name="answer"), smem.mbarrier(1, name="full")
    with ptx.if_(_first()):
        ptx.mbarrier.init(full[0], 1)
        ptx.fence.mbarrier_init()
    ptx.bar.sync(0)
    with ptx.if_(_first()):
        ptx.mbarrier.arrive_expect_tx(full[0], ptx.clusterlaunchcontrol.bytes)
        ptx.clusterlaunchcontrol.try_cancel(answer[0], full[0])
    ptx.mbarrier.wait(full[0], 0)
    taken = ptx.clusterlaunchcontrol.is_canceled(ptx.clusterlaunchcontrol.response(answer[0]))
    put(0, ptx.select(taken, reg.scalar(u32, init=1), reg.scalar(u32, init=2)))


def p24_sparse_product(put):
    """A holds 16 ones of 32: elements 0 and 1 of each four in even rows, 2 and 3 in odd rows; B is column + k % 4."""
    done = _barrier()
    a, b = _ones(), _tile("b", COLUMNS, lambda row, k: row.to(f32) + _number(float(k % 4)))
    memory = tmem.alloc(64)
    acc = memory.accumulator(128, COLUMNS, sparse=True)
    metadata = memory.tile(1)
    odd = (ptx.special.tid.x() & 1) == 1
    which = ptx.select(odd, reg.scalar(b32, init=0xEEEEEEEE), reg.scalar(b32, init=0x44444444))
    ptx.tcgen05.st(metadata[0].mine(), [which])
    ptx.tcgen05.wait_st()
    ptx.tcgen05.fence_before_thread_sync()
    ptx.bar.sync(0)
    ptx.tcgen05.fence_after_thread_sync()
    with ptx.if_(_first()):
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0, 2), accumulate=False, metadata=metadata[0])
        ptx.tcgen05.commit(done[0])
    _finish(put, done, acc, memory)


def p25_load_with_maximum(put):
    """tcgen05.ld.red, of sm_103a: the 8 cells of each thread, and their maximum."""
    memory = tmem.alloc(COLUMNS)
    cells = memory.tile(8)
    ptx.tcgen05.st(cells[0].mine(), [ptx.special.tid.x() * 13 * (column + 1) & 63 for column in range(8)])
    ptx.tcgen05.wait_st()
    found, most = reg.array(b32, 8), reg.scalar(u32)
    ptx.inst("tcgen05.ld.red.sync.aligned.32x32b.x8.max.u32", found, most, cells[0].mine())
    ptx.tcgen05.wait_ld()
    _put_all(put, [*(value.view(u32) for value in found), most])
    memory.dealloc()


FOUR = (7, 100, 3, 64)
"""The rows that the next two copy."""


def p26_gather(put, matrix):
    """.tile::gather4 of 8 columns of four rows; each thread reads one of the four into its columns 8 to 15."""
    tile, full = smem.array(u32, (4, 8), align=128, name="tile"), smem.mbarrier(1, name="full")
    _put_all(put, [ptx.special.tid.x() * 100 + column for column in range(8)])
    with ptx.if_(_first()):
        ptx.mbarrier.init(full[0], 1)
        ptx.fence.mbarrier_init()
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    with ptx.if_(_first()):
        ptx.mbarrier.arrive_expect_tx(full[0], 128)
        ptx.cp.async_.bulk.gather4(tile[0], matrix, 0, FOUR, full[0])
    ptx.mbarrier.wait(full[0], 0)
    mine = tile[0] + (ptx.special.tid.x() & 3) * 32
    _put_all(put, [ptx.load(u32, mine + 4 * column) for column in range(8)], 8)


def p27_scatter(put, matrix):
    """.tile::scatter4: four threads write a row of the tile each, which the TMA puts in its place; others stay zero."""
    tile = smem.array(u32, (4, 8), align=128, name="tile")
    thread = ptx.special.tid.x()
    with ptx.if_(thread < 4):
        for half in range(2):
            words = [(thread + 1) * 100 + 4 * half + column for column in range(4)]
            ptx.store(tile[0] + thread * 32 + 16 * half, words)
    ptx.fence.proxy_async()
    ptx.bar.sync(0)
    with ptx.if_(_first()):
        ptx.cp.async_.bulk.scatter4(matrix, tile[0], 0, FOUR)
        ptx.cp.async_.bulk.commit_group()
        ptx.cp.async_.bulk.wait_group(0)


def _codes(bits: int) -> list[int]:
    """16 elements of 4 or 6 bits; the row is added to the first two."""
    return [0, 0, *(number * (bits - 3) for number in range(2, 16))]


def _unpacking(bits: int, source: str):
    """tcgen05.cp that makes a byte of each of 16 elements of 4 or 6 bits, in four quarters of the lanes."""
    whole = sum(code << bits * number for number, code in enumerate(_codes(bits)))

    def body(put):
        done = _barrier()
        packed = smem.umma_tile(u8, (32, 16), swizzle="NONE", name="packed")
        with ptx.if_(ptx.special.tid.x() < 32):
            first, *rest = (reg.scalar(b32, init=whole >> 32 * word & 0xFFFFFFFF) for word in range(4))
            row = ptx.special.tid.x()
            ptx.store(packed[0] + row * 16, [(first.view(u32) + row).view(b32), *rest])
        ptx.fence.proxy_async()
        ptx.bar.sync(0)
        memory = tmem.alloc(COLUMNS)
        cells = memory.tile(4)
        with ptx.if_(_first()):
            ptx.tcgen05.cp(cells[0], packed[0], formats=f"b8x16.{source}")
            ptx.tcgen05.commit(done[0])
        _wait(done)
        found = ptx.tcgen05.ld(cells[0].mine(), 4, dtype=u32)
        ptx.tcgen05.wait_ld()
        _put_all(put, found)
        memory.dealloc()

    body.__name__ = f"unpacking_{source}"
    return body


def _unpacked(bits: int) -> np.ndarray:
    """An element of 4 bits is in bits 2 to 5 of its byte, one of 6 bits in bits 1 to 6."""
    row = np.arange(THREADS)[:, None] % 32
    elements = np.array(_codes(bits)) + np.hstack([row % (1 << bits), row >> bits, np.zeros((THREADS, 14), int)])
    return (elements << {4: 2, 6: 1}[bits]).astype(np.uint8).view(np.uint32)


_ROW = np.arange(THREADS)[:, None]
_RAMP = (_ROW * 100 + np.arange(8)).astype(np.uint32)
_RANGED = (_ROW * 13 * np.arange(1, 9) % 64).astype(np.uint32)
_SCATTERED = np.zeros((THREADS, 8), np.uint32)
_SCATTERED[list(FOUR)] = _RAMP[1:5]
_NEXT = np.where(_ROW % 32 < 31, _ROW + 1, _ROW)
PRIMITIVES = (
    *primitives.PRIMITIVES,
    Primitive("14 product of e4m3", _kernel(8, f32)(_product_of(e4m3)), _constant(32)),
    Primitive("15 product of tf32", _kernel(8, f32)(_product_of(tf32)), _constant(8)),
    Primitive("16 product of s8", _kernel(8, u32)(_product_of(s8, s32)), _constant(32).astype(np.uint32)),
    Primitive("17 halved sum", _kernel(8, f32)(p17_halved_sum), _constant(24)),
    Primitive("18 disabled lanes", _kernel(8, f32)(p18_disabled_lanes), _constant(32) - 16 * (_ROW < 32)),
    Primitive("19 negated", _kernel(8, f32)(p19_negated), _constant(0)),
    Primitive("20 weight-stationary", _kernel(8, f32)(p20_weight_stationary), _constant(16)),
    Primitive("21 scaled blocks", _kernel(8, f32)(p21_scaled_blocks), _constant(256)),
    Primitive("22 shift", _kernel(8, u32)(p22_shift), (_NEXT * 100 + np.arange(8)).astype(np.uint32)),
    Primitive("23 nothing to cancel", _kernel(1, u32)(p23_nothing_to_cancel), np.full((THREADS, 1), 2, np.uint32)),
    Primitive("24 sparse product", _kernel(8, f32)(p24_sparse_product), 16 * np.arange(8) + 8 + 32 * (_ROW % 2)),
    Primitive(
        "25 load with maximum", _kernel(9, u32, arch="sm_103a")(p25_load_with_maximum),
        np.hstack([_RANGED, _RANGED.max(1, keepdims=True)]),
    ),
    Primitive(
        "26 gather", _kernel(16, u32, box=(8, 1))(p26_gather), np.hstack([_RAMP, _RAMP[list(FOUR)][_ROW[:, 0] % 4]]),
    ),
    Primitive("27 scatter", _kernel(8, u32, box=(8, 1))(p27_scatter), _SCATTERED),
    Primitive("28 unpacking 4 bits", _kernel(4, u32)(_unpacking(4, "b4x16_p64")), _unpacked(4)),
    Primitive("29 unpacking 6 bits", _kernel(4, u32)(_unpacking(6, "b6x16_p32")), _unpacked(6)),
)  # fmt: skip


if __name__ == "__main__":
    primitives.main(PRIMITIVES)
