"""From accumulators to global memory: each thread stores its own fragment.

A store instruction of a warp touches eight rows, 8 bytes (f32) or 4 (bf16) from each lane; see `mma.fragment`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.dtypes import f32, u64
from ...lang import ptx
from ...lang.arrays import RegisterArray
from ...lang.tile import ArrayHandle
from ...lang.trace import Trace
from ...lang.values import Register
from ..mma.fragment import ACC_REGS, HALF_ROWS, pack
from ..tile.roles import WARPGROUP
from ..tile.sizes import ACC_ATOM_N, WARPGROUP_ROWS

_PAIR = 2


def store_accumulators(
    acc: list[RegisterArray], array: ArrayHandle, row: Register, column: Register, *, cache: str = ""
) -> None:
    """Store a warpgroup's blocks of 64 rows at (row, column) of an array of any extent; see `store_fragment`."""
    for index, block in enumerate(acc):
        below = row + index * WARPGROUP_ROWS if index else row
        store_fragment(block, array, below, column, ragged=True, cache=cache)


def store_fragment(
    acc: RegisterArray, array: ArrayHandle, row: Register, column: Register, *, ragged: bool = False, cache: str = ""
) -> None:
    """Store a warpgroup's 64 x n f32 accumulators at (row, column) of a row-major array.

    Args:
        acc: the thread's n/2 accumulators.
        array: f32, or a 16-bit float type to which they are rounded to nearest even.
        row, column: coordinates of the block; the thread's own offset is added here.
        ragged: stay within the array's extent, whose columns its Tile declares in groups of 8 (`multiple`). Without
            `ragged`, tiles are whole.
        cache: cache operator of the store, such as "cs".
    """
    warp = (ptx.special.tid.x() & (WARPGROUP - 1)) >> 5
    groups = [acc[i : i + ACC_REGS] for i in range(0, len(acc), ACC_REGS)]
    store_groups(groups, array, row + (warp << 4), column, ragged=ragged, cache=cache)


def store_groups(
    groups: Sequence[RegisterArray], array: ArrayHandle, row: Register, column: Register, *, ragged: bool = False,
    cache: str = "",
) -> None:  # fmt: skip
    """Store a warp's 16 rows of consecutive groups of 8 columns, four registers each. Otherwise like `store_fragment`.

    Raises TraceError for a ragged array that may end inside a group.
    """
    multiple = array.spec.multiple[-1] if array.spec.multiple else 1
    if ragged and multiple % ACC_ATOM_N:
        raise Trace.current().error(
            f"the columns of {array.name} are stored in groups of {ACC_ATOM_N}, and it may end inside one",
            expected=f"a Tile with multiple=(1, {ACC_ATOM_N})",
            got=f"multiple={array.spec.multiple}",
        )
    lane = ptx.special.tid.x() & 31
    first_row = row + (lane >> 2)
    first_column = column + ((lane & 3) << 1)
    extent, width = array.shape
    size = array.dtype.bytes
    for half in range(2):
        line = first_row + half * HALF_ROWS if half else first_row
        start = array.pointer()
        address = start + (line.to(u64) * width + first_column) * size
        above = line < extent if ragged else None
        for index, group in enumerate(groups):
            at = index * ACC_ATOM_N
            inside = above & (column + at < width) if above is not None else None
            pair = group[_PAIR * half : _PAIR * half + _PAIR]
            values = pair if array.dtype is f32 else pack(pair, array.dtype)
            ptx.store(ptx.addr(address, at * size), values, cache=cache, pred=inside)
