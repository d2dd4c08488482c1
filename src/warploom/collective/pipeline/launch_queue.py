"""Tiles by cluster launch control: a grid with one cluster per tile, whose running clusters take over the next tiles.

    full[i]    one arrival, with the 16 bytes of the response        the GPU -> every role
    empty[i]   one arrival per reader, in the cluster's first CTA    every role -> the scheduler

The first tile of a cluster is its own. Then its scheduler requests one cluster after the other until a request is
declined. That may happen while tiles are left: their clusters then start as usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...isa.dtypes import b128, u32
from ...lang import ptx, reg, smem
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..tile.raster import Order
from ..tile.scheduler import TileCoord
from .tma import State, advance

BYTES = 16


@dataclass(frozen=True)
class ClusterPerTile:
    """The grid rule: `ctas` CTAs per tile (`m`, `n`) of a C with sizes named "M" and "N"."""

    tile: tuple[int, int]
    ctas: int = 1

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        return (-(-dims["M"] // self.tile[0]) * -(-dims["N"] // self.tile[1]) * self.ctas, 1, 1)


class LaunchQueue:
    """A queue of tiles; see the module's docstring.

    Args:
        array: C.
        tile: (m, n) of a cluster.
        order: the order of the tiles; see `raster`.
        readers: arrivals per response, in all CTAs of the cluster together.
        ctas: CTAs per cluster; all of them receive every response.
        depth: responses that may be in flight or unread.
    """

    def __init__(
        self, array: ArrayHandle, tile: tuple[int, int], order: Order, *, readers: int, ctas: int = 1, depth: int = 2
    ) -> None:
        self.tile, self.order, self.readers, self.ctas, self.depth = tile, order, readers, ctas, depth
        rows, columns = array.shape
        self.rows = (rows + (tile[0] - 1)) // tile[0]
        self.columns = (columns + (tile[1] - 1)) // tile[1]
        self.answers = smem.array(b128, depth, name="queue.answers")
        self.full = smem.mbarrier(depth, name="queue.full")
        self.empty = smem.mbarrier(depth, name="queue.empty")

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for slot in range(self.depth):
            ptx.mbarrier.init(self.full[slot], 1)
            ptx.mbarrier.init(self.empty[slot], self.readers)

    def first(self) -> Register:
        """Index of the cluster's own tile."""
        cta = ptx.special.ctaid.x()
        return cta // self.ctas if self.ctas > 1 else reg.scalar(u32, init=cta)

    # -- every role --------------------------------------------------------------------------------------------------

    def tiles(self, whole_warp: bool = False) -> Iterator[TileCoord]:
        """The cluster's tiles, in the order of the responses; a run-time loop. `whole_warp`: all lanes run it."""
        state, number = State(reg.scalar(u32, init=0), reg.scalar(u32, init=0)), self.first()
        with ptx.loop():
            row, column = self.order(number, self.rows, self.columns)
            yield TileCoord(row * self.tile[0], column * self.tile[1])
            ptx.break_(~self.take(state, number, whole_warp))

    def take(self, state: State, number: Register, whole_warp: bool = False) -> Any:
        """Wait for the next response, write its tile index to `number` and free its slot; True if there is a tile."""
        ptx.mbarrier.wait(self.full[state.index], state.phase)
        response = ptx.clusterlaunchcontrol.response(self.answers[state.index])
        granted = ptx.clusterlaunchcontrol.is_canceled(response)
        first, _, _ = ptx.clusterlaunchcontrol.first_ctaid(response)
        number.set(first // self.ctas if self.ctas > 1 else first)
        ptx.fence.proxy_async()  # the next response overwrites this one
        speaks = None
        if whole_warp:
            ptx.inst.bar.warp.sync(-1)
            speaks = (ptx.special.tid.x() & 31) == 0
        if self.ctas > 1:
            ptx.mbarrier.arrive_remote(self.empty[state.index], 0, pred=speaks)
        else:
            ptx.mbarrier.arrive(self.empty[state.index], pred=speaks)
        advance(state, self.depth)
        return granted

    # -- the scheduler -----------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Request clusters until a request is declined, in one thread of each CTA, which also reads the responses."""
        asks = State(reg.scalar(u32, init=0), reg.scalar(u32, init=1))
        reads, number = State(reg.scalar(u32, init=0), reg.scalar(u32, init=0)), self.first()
        leads = ptx.special.cluster_ctarank() == 0 if self.ctas > 1 else None
        with ptx.loop():
            if leads is None:
                self._ask(asks)
            else:
                ptx.mbarrier.arrive_expect_tx(self.full[asks.index], BYTES, pred=~leads)
                with ptx.if_(leads):
                    self._ask(asks)
            advance(asks, self.depth)
            ptx.break_(~self.take(reads, number))

    def _ask(self, state: State) -> None:
        scope = "cluster" if self.ctas > 1 else "cta"
        ptx.mbarrier.wait(self.empty[state.index], state.phase, scope=scope)
        ptx.mbarrier.arrive_expect_tx(self.full[state.index], BYTES)
        ptx.clusterlaunchcontrol.try_cancel(self.answers[state.index], self.full[state.index], multicast=self.ctas > 1)
