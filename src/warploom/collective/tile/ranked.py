"""The tiles of a result whose rows belong to several GPUs, in an order that gives each GPU its tiles in good time.

GPU r begins with the rows of GPU r + 1, goes round, and ends with its own: what has to travel is under way while the
rest is multiplied, and no two GPUs send to the same one at a time.

    GPU 0 of 4     [rows of 1] [rows of 2] [rows of 3] [its own]
    GPU 1          [rows of 2] [rows of 3] [rows of 0] [its own]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...lang import ptx
from ...lang.values import Register
from .raster import Order


@dataclass
class RankedTile:
    """A tile: whose rows it is of, its place in them, in elements; its number and row among the owner's tiles."""

    owner: Register
    row: Register
    column: Register
    number: Register
    down: Register


class RankedTiles:
    """See the module's docstring; a persistent schedule, of which each role of a CTA calculates the same.

    Args:
        rows, columns: of one GPU's part of the result; tile: (m, n) of a CTA.
        ranks: GPUs of the group; rank: of this one.
        order: of the tiles within a part; see `raster`.
        own_first: begin with one's own part instead, for what has to come from the others.
    """

    def __init__(
        self, rows: Register, columns: Register, tile: tuple[int, int], ranks: int, rank: Register, order: Order,
        *, own_first: bool = False,
    ) -> None:  # fmt: skip
        self.begin = 0 if own_first else 1
        self.tile, self.ranks, self.rank, self.order = tile, ranks, rank, order
        self.down = (rows + (tile[0] - 1)) // tile[0]
        self.across = (columns + (tile[1] - 1)) // tile[1]
        self.in_part = self.down * self.across

    def tiles(self) -> Iterator[RankedTile]:
        """This CTA's tiles of all parts."""
        for number in ptx.range(ptx.special.ctaid.x(), self.in_part * self.ranks, ptx.special.nctaid.x()):
            part = self.rank + (number // self.in_part + self.begin)
            yield self._tile(ptx.select(part >= self.ranks, part - self.ranks, part), number % self.in_part)

    def own(self, first: int, every: int) -> Iterator[RankedTile]:
        """Tiles of this GPU's own part, for worker `first` of the `every` that each CTA has."""
        start = ptx.special.ctaid.x() * every + first
        for number in ptx.range(start, self.in_part, ptx.special.nctaid.x() * every):
            yield self._tile(self.rank, number)

    def _tile(self, owner: Register, number: Register) -> RankedTile:
        row, column = self.order(number, self.down, self.across)
        return RankedTile(owner, row * self.tile[0], column * self.tile[1], row * self.across + column, row)
