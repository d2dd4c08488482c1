"""Tiles of a result whose rows belong to several GPUs, in an order that overlaps multiplication and transfer.

Part by part, for rows that come from other GPUs: GPU r begins with its own part and continues in ring order, so that
the other parts are transferred in the meantime.

    GPU 0 of 4     [its own] [rows of 1] [rows of 2] [rows of 3]
    GPU 1          [its own] [rows of 2] [rows of 3] [rows of 0]

In turns, for rows that go to other GPUs: a row of tiles of GPU r + 1, one of r + 2, and so on, its own included. The
links are busy from the first tile to the last, and no two GPUs send to the same GPU at the same time. A tile is
complete soon after the first GPU has multiplied it, because all GPUs are at the same rows of each part.

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
    """A tile: the owner of its rows, its coordinates in the owner's part, its index and its row among the owner's
    tiles."""

    owner: Register
    row: Register
    column: Register
    number: Register
    down: Register


class RankedTiles:
    """A persistent schedule, which each role of a CTA computes by itself; see the module's docstring.

    Args:
        rows, columns: size of one GPU's part of the result; tile: (m, n) of a CTA.
        ranks: GPUs of the group; rank: index of this GPU.
        order: the order of the tiles, see `raster`: within a part or, in turns, over the rows of all parts.
        in_turns: see the module's docstring.
        ctas: CTAs per cluster, which take adjacent rows of tiles in turns; the number of rows of all parts must be a
            multiple of it.
    """

    def __init__(
        self, rows: Register, columns: Register, tile: tuple[int, int], ranks: int, rank: Register, order: Order,
        *, in_turns: bool = False, ctas: int = 1,
    ) -> None:  # fmt: skip
        self.tile, self.ranks, self.rank, self.order, self.in_turns = tile, ranks, rank, order, in_turns
        self.ctas = ctas
        self.down = (rows + (tile[0] - 1)) // tile[0]
        self.across = (columns + (tile[1] - 1)) // tile[1]
        self.in_part = self.down * self.across

    def tiles(self) -> Iterator[RankedTile]:
        """This CTA's tiles of all parts."""
        first, count, step = ptx.special.ctaid.x(), self.in_part * self.ranks, ptx.special.nctaid.x()
        if self.ctas > 1:
            first, count, step = first // self.ctas, count // self.ctas, step // self.ctas
        for number in ptx.range(first, count, step):
            if self.in_turns:
                rows = self.down * self.ranks
                row, column = self.order(number, rows if self.ctas == 1 else rows // self.ctas, self.across)
                if self.ctas > 1:
                    row = row * self.ctas + ptx.special.cluster_ctarank()
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
