"""From accumulators to global memory."""

from __future__ import annotations

from ..isa.dtypes import u64
from ..lang import ptx
from ..lang.arrays import RegisterArray
from ..lang.tile import ArrayHandle
from ..lang.values import Register
from .roles import WARPGROUP

_REGISTERS_PER_GROUP = 4
_COLUMNS_PER_GROUP = 8


def store_fragment(acc: RegisterArray, array: ArrayHandle, row: Register, column: Register) -> None:
    """Store a warpgroup's 64 x n f32 accumulators at (row, column) of a row-major f32 array, two columns at a time.

    Thread t of the warpgroup owns, in each group of 8 columns, columns 2q and 2q+1 of rows 16w+g and 16w+g+8, with
    w = t/32, g = t%32/4, q = t%4 (`isa.fragments.wgmma_accumulator`; PTX ISA 9.7.15.5.1.1).
    """
    thread = ptx.special.tid.x() & (WARPGROUP - 1)
    lane = thread & 31
    first_row = row + ((thread >> 5) << 4) + (lane >> 2)
    first_column = column + ((lane & 3) << 1)
    width = array.shape[1]
    pointer = array.pointer()
    size = array.dtype.bytes
    upper = pointer + (first_row.to(u64) * width + first_column) * size
    lower = pointer + ((first_row + 8).to(u64) * width + first_column) * size
    for group in range(len(acc) // _REGISTERS_PER_GROUP):
        for half, place in enumerate((upper, lower)):
            pair = acc[group * _REGISTERS_PER_GROUP + 2 * half : group * _REGISTERS_PER_GROUP + 2 * half + 2]
            ptx.inst.st.global_.v2.f32(ptx.addr(place, group * _COLUMNS_PER_GROUP * size), pair)
