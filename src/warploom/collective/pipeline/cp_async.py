"""A ring of stages filled by cp.async: the multistage main loop of Ampere.

All threads copy, and all multiply. Each k-tile is one group of copies, and `stages - 1` groups are in flight. A wait
for the oldest group followed by a CTA barrier guarantees two things: the next tile has arrived, and the stage read
before it is free.

    k-tile    t-1 multiplied | wait, bar | t multiplied, copies of t+stages-1 start into the stage of t-1 | wait, bar
"""

from __future__ import annotations

from ...isa.dtypes import u32
from ...lang import ptx, reg
from ...lang.operand_tile import TileSlice
from ...lang.values import Register
from .operand_copy import OperandCopy


class CpAsyncPipeline:
    """A ring filled by cp.async; see the module's docstring.

    Args:
        stages: at least 2; the tiles of the copies have as many.
        tile_k: elements of k per tile.
        a, b: the copies of the operands.
        async_proxy: a warpgroup MMA reads the tiles, so each thread fences its copies before the barrier
            (fence.proxy.async).
    """

    def __init__(self, *, stages: int, tile_k: int, a: OperandCopy, b: OperandCopy, async_proxy: bool = False) -> None:
        for copy in (a, b):
            if copy.tile.stages != stages or stages < 2:
                raise copy.tile.trace.error(
                    f"{copy.tile.buffer.name} does not fit the pipeline",
                    expected=f"{max(stages, 2)} stages, at least 2",
                    got=copy.tile.stages,
                )
        self.stages, self.tile_k, self.a, self.b = stages, tile_k, a, b
        self.async_proxy = async_proxy
        self.read = reg.scalar(u32, init=0)
        self.write = reg.scalar(u32, init=stages - 1)
        self.start = reg.scalar(u32, init=0)

    def fill(self) -> None:
        """Start the copies of the first `stages - 1` tiles."""
        for stage in range(self.stages - 1):
            self._copy(stage)

    def refill(self) -> None:
        """Start the copies of the next tile into the stage that `wait` freed.

        Past the end of K they copy nothing.
        """
        self._copy(self.write)
        self._step(self.write)

    def wait(self) -> None:
        """Wait until the oldest tile in flight has arrived and all threads have read the previous one."""
        ptx.cp.async_.wait_group(self.stages - 2)
        if self.async_proxy:
            ptx.fence.proxy_async_shared_cta()
        ptx.bar.sync(0)

    def advance(self) -> None:
        """Step to the next stage to read."""
        self._step(self.read)

    def drain(self) -> None:
        """Wait for the copies past the end of K, which copy nothing."""
        ptx.cp.async_.wait_all()

    @property
    def stage(self) -> tuple[TileSlice, TileSlice]:
        """A's and B's tile at the stage to read."""
        return self.a.tile[self.read], self.b.tile[self.read]

    def _copy(self, stage: int | Register) -> None:
        self.a.start(self.a.tile[stage], self.start)
        self.b.start(self.b.tile[stage], self.start)
        ptx.cp.async_.commit_group()
        self.start += self.tile_k

    def _step(self, index: Register) -> None:
        index += 1
        index.set(ptx.select(index == self.stages, 0, index))
