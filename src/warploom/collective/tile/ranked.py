"""The tiles of a result whose rows belong to several GPUs, in an order that gives each GPU its tiles in good time.

Part by part, for rows that come from the others: GPU r begins with its own and goes round, so that what it waits for
travels meanwhile.

    GPU 0 of 4     [its own] [rows of 1] [rows of 2] [rows of 3]
    GPU 1          [its own] [rows of 2] [rows of 3] [rows of 0]

In turns, for rows that go to the others: a row of tiles of GPU r + 1, one of r + 2, and so on, its own among them. The
links are busy from the first tile to the last, no two GPUs send to the same one at a time, and a tile is whole soon
after the first GPU has multiplied it: all are at the same rows of each part.

    GPU 0 of 4     [row 0 of 1][row 0 of 2][row 0 of 3][row 0 of its own] [row 1 of 1]...
    GPU 1          [row 0 of 2][row 0 of 3][row 0 of 0][row 0 of its own] [row 1 of 2]...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...lang import ptx
from ...lang.peers import wrapped
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
        order: of the tiles; see `raster`. Within a part, or, in turns, over the rows of all parts.
        in_turns: see above.
    """

    def __init__(
        self, rows: Register, columns: Register, tile: tuple[int, int], ranks: int, rank: Register, order: Order,
        *, in_turns: bool = False,
    ) -> None:  # fmt: skip
        self.tile, self.ranks, self.rank, self.order, self.in_turns = tile, ranks, rank, order, in_turns
        self.down = (rows + (tile[0] - 1)) // tile[0]
        self.across = (columns + (tile[1] - 1)) // tile[1]
        self.in_part = self.down * self.across

    def tiles(self) -> Iterator[RankedTile]:
        """This CTA's tiles of all parts."""
        for number in ptx.range(ptx.special.ctaid.x(), self.in_part * self.ranks, ptx.special.nctaid.x()):
            if self.in_turns:
                row, column = self.order(number, self.down * self.ranks, self.across)
                part, row = self.rank + row % self.ranks + 1, row // self.ranks
            else:
                row, column = self.order(number % self.in_part, self.down, self.across)
                part = self.rank + number // self.in_part
            yield self._tile(wrapped(part, self.ranks), row, column)

    def own(self, number: Register, order: Order) -> RankedTile:
        """A tile of this GPU's own part, by its number in an order of that part."""
        return self._tile(self.rank, *order(number, self.down, self.across))

    def _tile(self, owner: Register, row: Register, column: Register) -> RankedTile:
        return RankedTile(owner, row * self.tile[0], column * self.tile[1], row * self.across + column, row)
