"""The store of a tile whose first or last rows belong to other groups and must not be written."""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.dtypes import u64
from ...lang import ptx
from ...lang.arrays import RegisterArray
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..mma.fragment import ACC_REGS, HALF_ROWS, first_column, first_row, pack, thread_of_warpgroup
from ..tile.roles import WARP
from ..tile.sizes import ACC_ATOM_N
from .apply import Loaded
from .arguments import BOX_ROWS
from .tma_store import TmaStore


def store_rows_of(
    out: TmaStore, acc: list[RegisterArray], me: int, row: Register, column: Register, begin: Register, end: Register
) -> None:  # fmt: skip
    """Store the rows from `begin` to before `end` of blocks of 64 rows.

    If these are all rows of a consumer, TMA stores them; otherwise each thread stores its elements among them, block by
    block, without the blocks that have none.
    """
    with ptx.if_((begin <= row) & (row + len(acc) * BOX_ROWS <= end)):
        out.store(acc, me, row, column)
    with ptx.else_():
        for index, block in enumerate(acc):
            first = row + index * BOX_ROWS
            with ptx.if_((first < end) & (begin < first + BOX_ROWS)):
                _store_elements(out, block, first, column, begin, end)
        if out.epilogue is not None and out.epilogue.ahead is not None:
            out.epilogue.ahead.release()


def _store_elements(
    out: TmaStore, block: RegisterArray, row: Register, column: Register, begin: Register, end: Register
) -> None:  # fmt: skip
    """Store rows from `begin` to before `end` and columns inside D, two columns per store."""
    array = out.array
    assert isinstance(array, ArrayHandle)
    thread, size = thread_of_warpgroup(), array.dtype.bytes
    lane, width = thread & (WARP - 1), array.shape[1]
    _, mine = first_row(thread, row, lane)
    first = first_column(lane, column)
    fused = None if out.epilogue is None else out.epilogue.block(row, column)
    rows = [mine + half * HALF_ROWS for half in range(2)]
    places = [array.pointer() + (each.to(u64) * width + first) * size for each in rows]
    inside_rows = [(begin <= each) & (each < end) for each in rows]
    edge = first if array.dtype.bits == 32 else column  # rows are multiples of 16 bytes: of half an atom in 32 bits
    atoms = len(block) // ACC_REGS
    batch = atoms if out.epilogue is None else out.epilogue.batch(atoms, 1)
    loaded: Sequence[Loaded] = []
    for atom in range(atoms):
        own = block[atom * ACC_REGS : (atom + 1) * ACC_REGS]
        values: Sequence[Register] = own.elements
        if fused is not None:
            if atom % batch == 0:
                loaded = fused.load(atom, min(batch, atoms - atom))
            values = fused.apply(loaded[atom % batch], own)
        for half in range(2):
            inside = inside_rows[half] & (edge + atom * ACC_ATOM_N < width)
            pair = list(values[2 * half : 2 * half + 2])
            value = pair if array.dtype.bits == 32 else pack(pair, array.dtype)
            ptx.store(ptx.addr(places[half], atom * ACC_ATOM_N * size), value, pred=inside)
