"""Store only the rows that belong to a sequence, without TMA: the rows after them belong to the next sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...collective.mma.fragment import Fragment, pack
from ...isa.dtypes import s32, u32, u64
from ...lang import ptx
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .attention_config import QUERY_ROWS


@dataclass
class Rows:
    """64 rows of one head of an array (1, rows of all sequences, heads, columns).

    Attributes:
        first: index of the first of the 64 rows in the sequence, s32.
        begin: the sequence's first row in the array, s32.
        count: rows of the sequence, s32.
        head, heads: index of the head and number of heads, u32.
    """

    first: Register
    begin: Register | int
    count: Register
    head: Register
    heads: Register


def from_(begin: Register | int, row: Register) -> Register:
    """The index in the array of a sequence's row; `begin` is 0 if the sequence has its own array."""
    return row if isinstance(begin, int) else row + begin


def store_part(whole: Callable[[], None], array: ArrayHandle, fragment: Fragment, rows: Rows, width: int) -> None:
    """Store the sequence's rows: by `whole`, with TMA, if all 64 belong to the sequence."""
    with ptx.if_(rows.first + QUERY_ROWS <= rows.count):
        whole()
    with ptx.else_():
        store_rows(array, fragment, rows, width)


def store_rows(array: ArrayHandle, fragment: Fragment, rows: Rows, width: int) -> None:
    """Store `width` columns of the sequence's rows, two columns at a time, with all threads of a warpgroup."""
    acc, dtype = fragment.registers, array.dtype
    for half, row in enumerate(fragment.rows):
        here = row.view(s32) + rows.first
        line = (here + rows.begin).view(u32) * rows.heads + rows.head
        place = array.pointer() + (line.to(u64) * width + fragment.column_of(0)) * dtype.bytes
        exists = here < rows.count
        for index in range(2 * half, len(acc), 4):
            column = 2 * (index - 2 * half)
            if column < width:
                word = pack(acc[index : index + 2], dtype)
                ptx.store(ptx.addr(place, column * dtype.bytes), word, pred=exists)
