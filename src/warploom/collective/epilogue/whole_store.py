"""A warpgroup's result through a tile of shared memory that is free just then, such as the one its operand was in.

    written whole: meet | stmatrix of all columns | fence, meet | one thread starts a TMA store for each panel

`TmaStore` has boxes of its own, and stores one while the next is written; here the memory is somebody else's, who says
when it may be overwritten (all threads meet first) and learns when TMA has read it (`wait_read`).
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
    """See the module's docstring.

    Args:
        array: the result, of 16-bit elements; its Tile has a box of 64 rows by 128 bytes, swizzled over 128 bytes.
        barrier: a named barrier of the warpgroup's own.
    """

    def __init__(self, array: ArrayHandle, barrier: int) -> None:
        self.array, self.barrier = array, barrier
        self.writer = BoxWriter(array.dtype)
        thread = thread_of_warpgroup()
        self.leader: Predicate = thread == 0
        self._place = self.writer.place(thread)

    def store(self, acc: RegisterArray, memory: TileSlice, at: Coordinates) -> None:
        """Store 64 rows of accumulators; called by all threads of the warpgroup.

        Args:
            acc: f32, 64 x columns.
            memory: 64 rows of a K-major tile of as many columns or more, swizzle 128B; its generic and async readers
                are done in the calling thread.
            at: at(column) gives the coordinates in the array of that column of the first row, innermost first.
        """
        columns = len(acc) * ACC_ATOM_N // ACC_REGS
        ptx.bar.sync(self.barrier, WARPGROUP)
        panels = boxes_of(columns, self.array.dtype)
        for number, (column, width) in enumerate(panels):
            start = (memory + number * memory.layout.panel_bytes + self._place).register()
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
        """The storing thread waits until TMA has read the memory; then it may tell others (`leader`)."""
        with ptx.if_(self.leader):
            ptx.cp.async_.bulk.wait_group_read(0)
        ptx.warp.sync()

    def finish(self) -> None:
        """Before the CTA ends."""
        with ptx.if_(self.leader):
            ptx.cp.async_.bulk.wait_group(0)
