"""A consumer whose tensor-core work never drains: its two blocks of 64 rows end at different times.

The upper block's last wgmmas are committed before the lower block's. The upper block is then complete and is stored
while the lower one is multiplied; the lower one is stored while the upper block of the next tile is multiplied:

    upper   ... k-2 | k-1 |  store  | 0' (next tile) ...        | 1' ...
    lower   ... k-2 |       k-1     |   store                0' | 1' ...

At least one group of wgmmas is in flight from the first k-tile of the first tile to the last k-tile of the last tile.
ptxas accepts this only if no branch intervenes: loops are tested at their end, the code for a single tile is written
out separately, and every tile has at least `MIN_K_TILES` k-tiles (those beyond K are zeros).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...collective.mma.wgmma import WGMMA_ROWS, wgmma_block
from ...collective.pipeline.tma import Stage, State, TmaPipeline
from ...collective.tile.scheduler import Persistent, TileCoord
from ...isa.dtypes import u32
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.values import Register

MIN_K_TILES = 3
"""k-tiles per tile, at least: one to begin, one in the loop, one to end."""


@dataclass
class Staggered:
    """One consumer. Call `run` once.

    Attributes:
        ring, work: the source of the k-tiles, and this CTA's tiles.
        upper, lower: accumulators of its two blocks of rows.
        first_row: its first row in the tile.
        num_k_tiles: k-tiles per tile, at least `MIN_K_TILES`.
        store: called as store(block, place, 0 or 64) when a block is complete, with its accumulators, the tile, and
            the block's first row among the consumer's.
    """

    ring: TmaPipeline
    state: State
    work: Persistent
    upper: RegisterArray
    lower: RegisterArray
    first_row: int
    num_k_tiles: Register
    store: Callable[[RegisterArray, TileCoord, int], None]

    def run(self) -> None:
        """Multiply and store all the CTA's tiles."""
        work = self.work
        self.previous = reg.scalar(u32, init=0)
        number, step = work.first(), work.step()
        with ptx.if_(number < work.whole):
            with ptx.if_(number + step < work.whole):
                self._begin()
                with ptx.do_while(lambda: number + step < work.whole):
                    self._loop(self.num_k_tiles - 2)
                    self._cross(work.coordinates(number))
                    number += step
                self._loop(self.num_k_tiles - 1)
                self._end(work.coordinates(number))
            with ptx.else_():
                self._begin()
                self._loop(self.num_k_tiles - 1)
                self._end(work.coordinates(number))

    def _begin(self) -> None:
        """Issue the first k-tile of the first tile."""
        stage = self.ring.consumer_wait(self.state)
        ptx.wgmma.fence()
        self._upper(stage, accumulate=False)
        self._lower(stage, accumulate=False)
        self._step()

    def _loop(self, rounds: Register) -> None:
        """Issue `rounds` k-tiles of both blocks, one group each; a stage is released one k-tile later."""
        left = rounds.copy()
        with ptx.do_while(lambda: left != 0):
            stage = self.ring.consumer_wait(self.state)
            ptx.wgmma.fence()
            self._multiply(self.upper, stage, 0, accumulate=True)
            self._lower(stage, accumulate=True)
            self._retire()
            self._step()
            left -= 1

    def _cross(self, here: TileCoord) -> None:
        """Go from a tile's last k-tile to the first of the next tile; each block is stored under the other's wgmmas."""
        last = self.ring.consumer_wait(self.state)
        ptx.wgmma.fence()
        self._upper(last, accumulate=True)
        self._lower(last, accumulate=True)
        self._retire()
        self._step()
        self.store(self.upper, here, 0)
        following = self.ring.consumer_wait(self.state)
        ptx.wgmma.fence()
        self._upper(following, accumulate=False)
        self._retire()
        self.store(self.lower, here, WGMMA_ROWS)
        ptx.wgmma.fence()
        self._lower(following, accumulate=False)
        self._step()

    def _end(self, here: TileCoord) -> None:
        """Finish the last tile, whose stores nothing overlaps."""
        ptx.wgmma.wait_group(0)
        self.ring.consumer_release(self.previous)
        self.store(self.upper, here, 0)
        self.store(self.lower, here, WGMMA_ROWS)

    def _retire(self) -> None:
        """Wait until all groups but the newest are complete, and release the previous stage."""
        ptx.wgmma.wait_group(1)
        self.ring.consumer_release(self.previous)

    def _step(self) -> None:
        self.previous.set(self.state.index)
        self.ring.advance(self.state)

    def _upper(self, stage: Stage, *, accumulate: bool) -> None:
        self._multiply(self.upper, stage, 0, accumulate=accumulate)
        ptx.wgmma.commit_group()

    def _lower(self, stage: Stage, *, accumulate: bool) -> None:
        self._multiply(self.lower, stage, WGMMA_ROWS, accumulate=accumulate)
        ptx.wgmma.commit_group()

    def _multiply(self, block: RegisterArray, stage: Stage, row: int, *, accumulate: bool) -> None:
        wgmma_block(block, stage.a.rows(self.first_row + row, WGMMA_ROWS), stage.b, accumulate=accumulate)
