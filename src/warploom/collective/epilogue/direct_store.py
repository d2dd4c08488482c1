"""From accumulators to global memory, each thread storing what it holds.

mma.sync and wgmma spread a result over lanes in the same way: of each 8 columns, lane l holds columns 2(l % 4) and the
next, of rows l / 4 and l / 4 + 8 (`isa.fragments`; PTX ISA 9.7.14.5.8, 9.7.15.5.1.1). A store instruction of a warp
so touches eight rows, 8 bytes (f32) or 4 (bf16) from each lane. Where rows may have an odd number of elements (the
array's Tile demands no multiple), every other one begins at no multiple of two: then elements are stored one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...isa.dtypes import DType, b32, bf16, f16, f32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..tile.roles import WARPGROUP

if TYPE_CHECKING:
    from .scaling import Scaled

_REGISTERS_PER_GROUP = 4
_COLUMNS_PER_GROUP = 8
_HALF_ROWS = 8
_PAIR = 2
_BATCH = 4
"""Groups of 8 columns whose addends are read together, before the first of them is stored."""


def store_fragment(
    acc: RegisterArray, array: ArrayHandle, row: Register, column: Register, *, ragged: bool = False, cache: str = "",
    scaled: Scaled | None = None,
) -> None:  # fmt: skip
    """Store a warpgroup's 64 x n f32 accumulators of a wgmma at (row, column) of a row-major array.

    Args:
        acc: the thread's n/2 accumulators.
        array: f32, or a 16-bit float type to which they are rounded to nearest even.
        row, column: of the block; the thread's own place is added here.
        ragged: keep to the array's extent. Its Tile says whether it has whole groups of 8 columns (`multiple`); else
            it may have any number. Without `ragged`, tiles are whole.
        cache: cache operator of the store, such as "cs".
        scaled: what is done to them first.
    """
    warp = (ptx.special.tid.x() & (WARPGROUP - 1)) >> 5
    groups = [acc[i : i + _REGISTERS_PER_GROUP] for i in range(0, len(acc), _REGISTERS_PER_GROUP)]
    store_groups(groups, array, row + (warp << 4), column, ragged=ragged, cache=cache, scaled=scaled)


def store_groups(
    groups: Sequence[RegisterArray], array: ArrayHandle, row: Register, column: Register, *, ragged: bool = False,
    cache: str = "", scaled: Scaled | None = None,
) -> None:  # fmt: skip
    """Store a warp's 16 rows of neighbouring groups of 8 columns, four registers each. Else as `store_fragment`."""
    lane = ptx.special.tid.x() & 31
    first_row = row + (lane >> 2)
    first_column = column + ((lane & 3) << 1)

    whole = bool(array.spec.multiple) and array.spec.multiple[-1] % _COLUMNS_PER_GROUP == 0
    guard = _unguarded if not ragged else partial(_whole_groups, column) if whole else _elements

    def store(count: int) -> None:
        for half in range(2):
            rows = first_row + half * _HALF_ROWS if half else first_row
            line = [group[_PAIR * half : _PAIR * half + _PAIR] for group in groups]
            _store_row(line, array, rows, first_column, count, guard, cache, scaled)

    if ragged and not whole:
        by_alignment(array.shape[1], _PAIR, store)
    else:
        store(_PAIR)


def by_alignment(width: Register | int, count: int, store: Callable[[int], None]) -> None:
    """store(count) where all rows of an array begin at multiples of `count` elements, else store(1).

    One branch, the same way for all threads. `count`: a power of two; `width`: elements of a row.
    """
    if isinstance(width, int):
        store(1 if width % count else count)
        return
    with ptx.if_((width & (count - 1)) == 0):
        store(count)
    with ptx.else_():
        store(1)


def columns_left(array: ArrayHandle, row: Register, column: Register) -> Register:
    """How many elements an array has from (row, column) to the end of the row; 0 outside of it."""
    rows, width = array.shape
    return ptx.select((row < rows) & (column < width), width - column, 0)


_Guard = Callable[[ArrayHandle, Register, Register], Callable[[int], "Predicate | None"]]
"""For a thread's row and first column: whether the elements so many columns further on exist."""


def _unguarded(array: ArrayHandle, row: Register, column: Register) -> Callable[[int], Predicate | None]:
    return lambda at: None


def _whole_groups(
    tile_column: Register, array: ArrayHandle, row: Register, column: Register
) -> Callable[[int], Predicate | None]:
    """Groups of 8 columns exist or not, the same for all lanes of a row."""
    rows, width = array.shape
    above = row < rows
    return lambda at: above & (tile_column + at < width)


def _elements(array: ArrayHandle, row: Register, column: Register) -> Callable[[int], Predicate | None]:
    left = columns_left(array, row, column)
    return lambda at: left > at


def _store_row(
    line: Sequence[RegisterArray], array: ArrayHandle, row: Register, column: Register, count: int, guard: _Guard,
    cache: str, scaled: Scaled | None,
) -> None:  # fmt: skip
    """A thread's pairs of one row, 8 columns from each to the next, in accesses of `count` elements."""
    _, width = array.shape
    size = array.dtype.bytes
    start = array.pointer()
    offset = (row.to(u64) * width + column) * size
    place = start + offset
    inside = guard(array, row, column)
    scaled = None if scaled is None or scaled.C is None else scaled
    for first in range(0, len(line), _BATCH):
        pieces = [
            (index * _COLUMNS_PER_GROUP + j, line[index][j : j + count])
            for index in range(first, min(first + _BATCH, len(line)))
            for j in range(0, _PAIR, count)
        ]  # fmt: skip
        addends = [scaled.read(offset, count, inside(at), at) for at, _ in pieces] if scaled is not None else []
        for number, (at, values) in enumerate(pieces):
            there = inside(at)
            results = scaled.apply(values, addends[number]) if scaled is not None else values
            ptx.store(ptx.addr(place, at * size), _word(results, array.dtype), cache=cache, pred=there)


def _word(values: Sequence[Register] | RegisterArray, dtype: DType) -> Any:
    """One element, or two neighbouring ones, as they lie in memory."""
    if len(values) == 1:
        return values[0].to(dtype)
    return values if dtype is f32 else packed(values, dtype)


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
