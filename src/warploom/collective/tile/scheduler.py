"""Which tiles of C a CTA computes, one after the other for as long as there are any.

A schedule is iterated by each role of a CTA on its own: `for here in work.tiles():` gives the places of the same
tiles in the same order to all of them, calculated from the CTA's number.
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
    """Where a tile begins in C, in elements."""

    row: Register
    column: Register


class Persistent:
    """As many CTAs as the machine holds, each taking every n-th tile.

    Args:
        array: C.
        tile: (m, n) of a CTA.
        order: of the tiles; see `raster`.
        ctas: of a cluster, whose tiles are scheduled as one.
        multicast: the operand they share: with "b" their tiles stand below each other, with "a" side by side.
        split_tail: what is left after the last full wave is not part of `tiles` where it can be computed in half a
            wave, one tile by each cluster, every CTA a part of K: `tail`. Clusters of two.
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
        """How many cluster tiles are left after the last full wave, if that is not more than half of one; else 0."""
        total = ptx.special.nctaid.x() // self.ctas
        rest = self.count % total
        return ptx.select(rest * self.ctas <= total, rest, 0)

    def tiles(self, first: int = 0, every: int = 1) -> Iterator[TileCoord]:
        """This CTA's tiles, or of these every n-th from the `first`; a run-time loop."""
        cta, stride = self.first(), self.step()
        start = cta + stride * first if first else cta
        step = stride * every if every > 1 else stride
        for number in ptx.range(start, self.whole, step):
            yield self.place(number)

    def first(self) -> Register:
        """Number of this cluster's first tile; it has one if that is less than `whole`."""
        cta = ptx.special.ctaid.x()
        return cta // self.ctas if self.ctas > 1 else cta

    def step(self) -> Register:
        """From one of its tiles to the next."""
        grid = ptx.special.nctaid.x()
        return grid // self.ctas if self.ctas > 1 else grid

    def place(self, number: Register) -> TileCoord:
        """Where this CTA's tile of cluster tile `number` begins."""
        return self._place(number, ptx.special.cluster_ctarank() if self.ctas > 1 else None)

    @contextmanager
    def tail(self) -> Iterator[TileCoord]:
        """The tile that this cluster computes after its last whole one; skipped if it has none.

        Everything is calculated anew here: registers that lived through the main loop would be missing there.
        """
        unit = ptx.special.ctaid.x() // self.ctas
        number = self.whole + unit // self.ctas
        with ptx.if_(number < self.count):
            yield self._place(number, unit % self.ctas)

    def _place(self, number: Register, part: Register | None) -> TileCoord:
        """Where the tile of one CTA of a cluster begins."""
        row, column = self.order(number, self.rows, self.columns)
        if part is not None and self.multicast == "b":
            row = row * self.ctas + part
        elif part is not None:
            column = column * self.ctas + part
        return TileCoord(row * self.tile[0], column * self.tile[1])
