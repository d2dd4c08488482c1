"""A result that consumers write to shared memory as a whole tile, and another thread stores by TMA.

    consumer    wait until free | write all boxes | fence, arrive | the next tile's main loop
    sender      wait until ready | start the stores | wait until TMA has read them: free | wait until they are complete

So what a store waits for, another GPU's memory or a signal after it, is no consumer's wait.

    ready[c]    128 arrivals    consumer c has written its boxes
    free[c]     1 arrival       the sender's stores have read them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...lang import ptx, smem
from ...lang.arrays import RegisterArray
from ...lang.values import Register
from ..mma.fragment import thread_of_warpgroup
from ..pipeline.cache_policy import read_once
from ..tile.roles import WARPGROUP
from .apply import Epilogue
from .arguments import BOX_ROWS
from .smem_tile import boxes_of
from .tma_store import Target, TmaStore

__all__ = ["DeferredTmaStore"]


class DeferredTmaStore(TmaStore):
    """See the module's docstring. `ring.initialise` initialises its barriers.

    Args:
        array, consumers, epilogue, evict_first: as in `TmaStore`, without operands in boxes.
        blocks, columns: blocks of 64 rows of a consumer, and columns of a tile.
    """

    def __init__(
        self, array: Target, consumers: int, *, blocks: int, columns: int, epilogue: Epilogue | None = None,
        evict_first: bool = False,
    ) -> None:  # fmt: skip
        self.places = [(block, *box) for block in range(blocks) for box in boxes_of(columns, array.dtype)]
        super().__init__(array, consumers, epi_stages=len(self.places), epilogue=epilogue, evict_first=evict_first)
        assert self.operands is None
        self.consumers = consumers
        self.ready = smem.mbarrier(consumers, name="boxes.ready")
        self.free = smem.mbarrier(consumers, name="boxes.free")

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for me in range(self.consumers):
            ptx.mbarrier.init(self.ready[me], WARPGROUP)
            ptx.mbarrier.init(self.free[me], 1)

    def write(self, acc: list[RegisterArray], me: int, row: Register, column: Register, phase: Register) -> None:
        """Write a consumer's part of a tile at (row, column) of D; called by all threads of consumer `me`. phase: 1
        before the first tile; it is changed for the next one."""
        ptx.mbarrier.wait(self.free[me], phase)
        offset = self.writer.offset(thread_of_warpgroup())
        block = None
        for box in self._boxes(acc, me):
            if self.epilogue is not None and box.column == 0:
                block = self.epilogue.block(row + box.block * BOX_ROWS, column)
            self._fill(box, acc, block, offset, lambda: None)
            if block is not None:  # ptxas moves no values of other boxes across it: they would spill
                ptx.bar.sync(1 + me, WARPGROUP)
        ptx.fence.proxy_async_shared_cta()
        ptx.mbarrier.arrive(self.ready[me])
        phase ^= 1

    def send(
        self, row: Register, column: Register, rows: int, phase: Register,
        at: Callable[[Register, Register], Sequence[Register | int]],
    ) -> None:  # fmt: skip
        """Store a tile at (row, column) of D; by one thread, which then lets the consumers write. rows: of a consumer's
        part; phase: 0 before the first tile; at: as in `TmaStore.store`. The stores are complete after
        `wait_group`."""
        policy = read_once() if self.evict_first else None
        for me in range(self.consumers):
            ptx.mbarrier.wait(self.ready[me], phase)
            for number, (block, first, width) in enumerate(self.places):
                corner = at(row + me * rows + block * BOX_ROWS, column + first)
                target = self.array.tma_desc((width, *self._extents[1:]))
                ptx.tma.store(target, self.boxes[me * self.epi_stages + number], corner, cache_hint=policy)
        ptx.cp.async_.bulk.commit_group()
        ptx.cp.async_.bulk.wait_group_read(0)
        for me in range(self.consumers):
            ptx.mbarrier.arrive(self.free[me])
        phase ^= 1
