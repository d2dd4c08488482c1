"""More of Blackwell's primitives: other kinds of products, their options, shifts and launch control.

`PRIMITIVES` also has those of `primitives.py`, whose command runs and whose helpers build these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import primitives
from primitives import COLUMNS, THREADS, Primitive, _barrier, _constant, _first, _kernel, _ones, _put_all, _wait

from warploom import ptx, reg, smem, tmem
from warploom.types import b32, b128, bf16, e4m3, f32, s8, s32, tf32, u32

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


_ROW = np.arange(THREADS)[:, None]
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
)


if __name__ == "__main__":
    primitives.main(PRIMITIVES)
