"""From tensor memory to global memory: a thread holds one row of the accumulator and stores it in 16-byte pieces."""

from __future__ import annotations

from collections.abc import Callable

from ...isa.dtypes import f32, u64
from ...lang import ptx
from ...lang.accumulator import AccumulatorBuffer
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..mma.fragment import pack

CHUNK = 32
"""Columns that a thread loads at a time."""
STORE_BYTES = 16


def store_rows(
    done: AccumulatorBuffer,
    array: ArrayHandle,
    row: Register,
    column: Register,
    release: Callable[[], None] | None = None,
) -> None:
    """Store an accumulator at (row, column) of a row-major array; what is outside the array is left out.

    Args:
        done: f32; the four warps of a warpgroup call this, and the products are done.
        array: f32, or a 16-bit float type to which it is rounded to nearest even; its rows have whole groups of 16
            bytes (`multiple`).
        release: called when the last columns have been loaded, before they are stored.
    """
    extent, width = array.shape
    each = STORE_BYTES // array.dtype.bytes
    mine, first = done.place()
    line = row + mine
    start = array.pointer() + (line.to(u64) * width + column + first) * array.dtype.bytes
    above = line < extent
    for at in range(0, done.width, CHUNK):
        count = min(CHUNK, done.width - at)
        values = done.load(at, count).registers
        ptx.tcgen05.wait_ld()
        if release is not None and at + count == done.width:
            release()
        for piece in range(0, count, each):
            inside = above & (column + first + (at + piece) < width)
            part = values[piece : piece + each]
            words = part if array.dtype is f32 else [pack(part[i : i + 2], array.dtype) for i in range(0, each, 2)]
            ptx.store(ptx.addr(start, (at + piece) * array.dtype.bytes), words, pred=inside)
