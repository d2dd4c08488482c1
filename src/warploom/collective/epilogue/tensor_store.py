"""From tensor memory to global memory: a thread holds one row of the accumulator and stores 16 bytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...lang import ptx
from ...lang.accumulator import AccumulatorBuffer
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .apply import Epilogue
from .row_epilogue import RowEpilogue, address_of, store_element, words_of

CHUNK = 32
"""Columns that a thread loads at a time."""
STORE_BYTES = 16


def store_rows(
    done: AccumulatorBuffer,
    array: ArrayHandle,
    row: Register,
    column: Register,
    release: Callable[[], None] | None = None,
    *,
    epilogue: Epilogue | None = None,
    whole: bool = True,
    rows: Register | None = None,
) -> None:
    """Store an accumulator at (row, column) of a row-major array, clipped to the array.

    Args:
        done: f32 or s32; its MMAs are complete, and the four warps of a warpgroup call this.
        array: of its type, or of 16- or 8-bit floats to which it is rounded to nearest even; rows begin at multiples of
            16 bytes.
        release: called when the last columns have been loaded, before they are stored.
        epilogue: the operations on the elements; these warps have called its `begin`.
        rows: the first row that is not stored; by default the array's extent.
        whole: the array's rows are multiples of 16 bytes; otherwise elements of a last group are stored one by one.
    """
    extent, width = array.shape
    each = STORE_BYTES // array.dtype.bytes
    mine, first = done.place()
    line, left = row + mine, column + first
    start = address_of(array, line, left)
    above = line < (extent if rows is None else rows)
    end = None if epilogue is None else RowEpilogue(epilogue, line, left, above)

    def put(values: Sequence[Register], at: int, inside: Predicate) -> None:
        results = values if end is None else end.piece(values, at, inside)
        address = ptx.addr(start, at * array.dtype.bytes)
        if len(results) == 1:
            store_element(address, results[0], array.dtype, inside)
        else:
            ptx.store(address, words_of(results, array.dtype), pred=inside)

    for at in range(0, done.width, CHUNK):
        count = min(CHUNK, done.width - at)
        values = done.load(at, count).registers
        ptx.tcgen05.wait_ld()
        if release is not None and at + count == done.width:
            release()
        for piece in range(0, count, each):
            part, begin = values[piece : piece + each].elements, at + piece
            if whole:
                put(part, begin, above & (left + begin < width))
                continue
            complete = left + (begin + each - 1) < width
            put(part, begin, above & complete)
            with ptx.if_(above & ~complete):
                for index, value in enumerate(part[:-1]):
                    put([value], begin + index, left + (begin + index) < width)
