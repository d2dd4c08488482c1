"""A warpgroup's result through a tile of shared memory that is currently free, such as that of its operand.

    written at once: sync | stmatrix of all columns | fence, sync | one thread starts a TMA store per panel

`TmaStore` has its own boxes, and stores one while the next is written. Here the caller owns the memory: it decides when
the memory may be overwritten (all threads synchronise first) and learns when TMA has read it (`wait_read`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...lang import ptx
from ...lang.arrays import RegisterArray
from ...lang.operand_tile import TileSlice
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..mma.fragment import ACC_REGS, thread_of_warpgroup
from ..tile.roles import WARPGROUP
from ..tile.sizes import ACC_ATOM_N
from .smem_tile import BoxWriter, boxes_of

Coordinates = Callable[[int], Sequence[Register | int]]


class WholeStore:
    """A store through borrowed memory; see the module's docstring.

    Args:
        array: the result, of 16-bit elements; its Tile has a box of 64 rows by 128 bytes, swizzled over 128 bytes.
        barrier: a named barrier of the warpgroup's own.
    """

    def __init__(self, array: ArrayHandle, barrier: int) -> None:
        self.array, self.barrier = array, barrier
        self.writer = BoxWriter(array.dtype)
        thread = thread_of_warpgroup()
        self.leader: Predicate = thread == 0
        self._offset = self.writer.offset(thread)

    def store(self, acc: RegisterArray, memory: TileSlice, at: Coordinates) -> None:
        """Store 64 rows of accumulators; called by all threads of the warpgroup.

        Args:
            acc: f32, 64 x columns.
            memory: 64 rows of a K-major tile of at least as many columns, swizzle 128B; in the calling thread, all
                generic and async reads of it are complete.
            at: at(column) returns the coordinates in the array of that column of the first row, innermost first.
        """
        columns = len(acc) * ACC_ATOM_N // ACC_REGS
        ptx.bar.sync(self.barrier, WARPGROUP)
        panels = boxes_of(columns, self.array.dtype)
        for number, (column, width) in enumerate(panels):
            start = (memory + number * memory.layout.panel_bytes + self._offset).register()
            first = column // ACC_ATOM_N * ACC_REGS
            self.writer.write(start, 0, acc[first : first + width // ACC_ATOM_N * ACC_REGS].elements)
        ptx.fence.proxy_async_shared_cta()
        ptx.bar.sync(self.barrier, WARPGROUP)
        with ptx.if_(self.leader):
            for number, (column, _) in enumerate(panels):
                source = memory + number * memory.layout.panel_bytes
                ptx.tma.store(self.array.tma_desc(), source, at(column))
            ptx.cp.async_.bulk.commit_group()

    def wait_read(self) -> None:
        """Wait in the storing thread until TMA has read the memory; that thread may then signal others (`leader`)."""
        with ptx.if_(self.leader):
            ptx.cp.async_.bulk.wait_group_read(0)
        ptx.warp.sync()

    def finish(self) -> None:
        """Wait until the stores are complete, before the CTA exits."""
        with ptx.if_(self.leader):
            ptx.cp.async_.bulk.wait_group(0)
