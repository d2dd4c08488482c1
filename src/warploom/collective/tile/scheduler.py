"""Schedules: the tiles of C that a CTA computes, one after the other.

Each role of a CTA iterates over a schedule by itself: `for here in work.tiles():` yields the coordinates of the same
tiles in the same order to all of them, computed from the CTA's index.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...lang import ptx
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .raster import Order
from .sizes import cluster_tile


@dataclass
class TileCoord:
    """Coordinates of a tile in C, in elements."""

    row: Register
    column: Register


class Persistent:
    """As many CTAs as the GPU holds, each of which takes every n-th tile.

    Args:
        array: C.
        tile: (m, n) of a CTA.
        order: the order of the tiles; see `raster`.
        ctas: CTAs per cluster, whose tiles are scheduled as one.
        multicast: the operand that they share: with "b" their tiles are adjacent along M, with "a" along N.
        split_tail: if the tiles after the last full wave fit into half a wave, with one tile per cluster and a split of
            K per CTA, `tiles` leaves them to `tail`. For clusters of two.
    """

    def __init__(
        self, array: ArrayHandle, tile: tuple[int, int], order: Order, ctas: int = 1, multicast: str = "b",
        *, split_tail: bool = False,
    ) -> None:  # fmt: skip
        self.tile, self.order, self.ctas, self.multicast = tile, order, ctas, multicast
        rows, columns = array.shape
        height, width = cluster_tile(tile, ctas, multicast)
        self.rows = (rows + (height - 1)) // height
        self.columns = (columns + (width - 1)) // width
        self.count = self.rows * self.columns
        self.whole = self.count - self._rest() if split_tail else self.count

    def _rest(self) -> Register:
        """The number of cluster tiles after the last full wave if it is at most half of a wave; else 0."""
        total = ptx.special.nctaid.x() // self.ctas
        rest = self.count % total
        return ptx.select(rest * self.ctas <= total, rest, 0)

    def tiles(self, first: int = 0, every: int = 1) -> Iterator[TileCoord]:
        """This CTA's tiles, or every n-th of them from the `first`; a run-time loop."""
        cta, stride = self.first(), self.step()
        start = cta + stride * first if first else cta
        step = stride * every if every > 1 else stride
        for number in ptx.range(start, self.whole, step):
            yield self.coordinates(number)

    def first(self) -> Register:
        """Number of this cluster's first tile; the cluster has one if that is less than `whole`."""
        cta = ptx.special.ctaid.x()
        return cta // self.ctas if self.ctas > 1 else cta

    def step(self) -> Register:
        """The distance from one of its tiles to the next."""
        grid = ptx.special.nctaid.x()
        return grid // self.ctas if self.ctas > 1 else grid

    def coordinates(self, number: Register) -> TileCoord:
        """The coordinates of this CTA's tile of cluster tile `number`."""
        return self._place(number, ptx.special.cluster_ctarank() if self.ctas > 1 else None)

    @contextmanager
    def tail(self) -> Iterator[TileCoord]:
        """The tile that this cluster computes after its last whole one; skipped if it has none.

        Everything is recomputed here, because the main loop cannot spare registers to keep it.
        """
        unit = ptx.special.ctaid.x() // self.ctas
        number = self.whole + unit // self.ctas
        with ptx.if_(number < self.count):
            yield self._place(number, unit % self.ctas)

    def _place(self, number: Register, part: Register | None) -> TileCoord:
        """The coordinates of the tile of one CTA of a cluster."""
        row, column = self.order(number, self.rows, self.columns)
        if part is not None and self.multicast == "b":
            row = row * self.ctas + part
        elif part is not None:
            column = column * self.ctas + part
        return TileCoord(row * self.tile[0], column * self.tile[1])
