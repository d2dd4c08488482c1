"""From accumulators to global memory, each thread storing what it holds.

mma.sync and wgmma spread a result over lanes in the same way: of each 8 columns, lane l holds columns 2(l % 4) and the
next, of rows l / 4 and l / 4 + 8 (`isa.fragments`; PTX ISA 9.7.14.5.8, 9.7.15.5.1.1). A store instruction of a warp
so touches eight rows, 8 bytes (f32) or 4 (bf16) from each lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.dtypes import DType, b32, bf16, f16, f32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.tile import ArrayHandle
from ...lang.trace import Trace
from ...lang.values import Register
from ..tile.roles import WARPGROUP

_REGISTERS_PER_GROUP = 4
_COLUMNS_PER_GROUP = 8
_HALF_ROWS = 8
_PAIR = 2


def store_fragment(
    acc: RegisterArray, array: ArrayHandle, row: Register, column: Register, *, ragged: bool = False, cache: str = ""
) -> None:
    """Store a warpgroup's 64 x n f32 accumulators of a wgmma at (row, column) of a row-major array.

    Args:
        acc: the thread's n/2 accumulators.
        array: f32, or a 16-bit float type to which they are rounded to nearest even.
        row, column: of the block; the thread's own place is added here.
        ragged: keep to the array's extent, whose columns its Tile promises in groups of 8 (`multiple`). Without
            `ragged`, tiles are whole.
        cache: cache operator of the store, such as "cs".
    """
    warp = (ptx.special.tid.x() & (WARPGROUP - 1)) >> 5
    groups = [acc[i : i + _REGISTERS_PER_GROUP] for i in range(0, len(acc), _REGISTERS_PER_GROUP)]
    store_groups(groups, array, row + (warp << 4), column, ragged=ragged, cache=cache)


def store_groups(
    groups: Sequence[RegisterArray], array: ArrayHandle, row: Register, column: Register, *, ragged: bool = False,
    cache: str = "",
) -> None:  # fmt: skip
    """Store a warp's 16 rows of neighbouring groups of 8 columns, four registers each. Else as `store_fragment`.

    Raises TraceError for a ragged array that may end inside a group.
    """
    multiple = array.spec.multiple[-1] if array.spec.multiple else 1
    if ragged and multiple % _COLUMNS_PER_GROUP:
        raise Trace.current().error(
            f"the columns of {array.name} are stored in groups of {_COLUMNS_PER_GROUP}, and it may end inside one",
            expected=f"a Tile with multiple=(1, {_COLUMNS_PER_GROUP})",
            got=f"multiple={array.spec.multiple}",
        )
    lane = ptx.special.tid.x() & 31
    first_row = row + (lane >> 2)
    first_column = column + ((lane & 3) << 1)
    extent, width = array.shape
    size = array.dtype.bytes
    for half in range(2):
        line = first_row + half * _HALF_ROWS if half else first_row
        start = array.pointer()
        place = start + (line.to(u64) * width + first_column) * size
        above = line < extent if ragged else None
        for index, group in enumerate(groups):
            at = index * _COLUMNS_PER_GROUP
            inside = above & (column + at < width) if above is not None else None
            pair = group[_PAIR * half : _PAIR * half + _PAIR]
            values = pair if array.dtype is f32 else packed(pair, array.dtype)
            ptx.store(ptx.addr(place, at * size), values, cache=cache, pred=inside)


def packed(pair: Sequence[Register] | RegisterArray, dtype: DType) -> Register:
    """Two f32 accumulators as one register of two 16-bit floats, as they lie in memory (cvt.rn)."""
    result = reg.scalar(b32)
    ptx.inst(f"cvt.rn.{dtype}x2.f32", result, pair[1], pair[0])
    return result


def unpacked(word: Register, dtype: DType) -> tuple[Register, Register]:
    """The two 16-bit floats of a register as f32: the inverse of `packed`."""
    if dtype is bf16:
        return (word << 16).view(f32), (word & 0xFFFF0000).view(f32)
    low, high = reg.scalar(f16), reg.scalar(f16)
    ptx.inst.mov.b32([low, high], word)
    return low.to(f32), high.to(f32)
