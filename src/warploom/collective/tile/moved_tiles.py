"""Tiles of D = A Bᵀ that stay inside the tensors: the last one is moved back, and a box is no larger than the tensor.

    tensor   [ . . . . . . . . . . . . . . ]
    tiles    [-- 0 --][-- 1 --][-- 2 --]
                                  [-- 3 --]      moved: overlaps tile 2, and stores nothing of the overlap

A row of a TMA box outside the tensor costs about five times as much as one inside, so a tile that crosses the edge
takes longer than a whole tile. If the tensor is smaller, `Tile.wgmma_a(..., clipped=True)` shrinks the box.

    not clustered           consecutive tiles follow the rows of D, in bands if there are any
    clustered, not shared   along the rows; the cluster only keeps CTAs close together
    sharing B               along the rows: the tiles of a cluster have the same columns, each CTA loads a slice of B
    sharing A               along the columns: likewise
    sharing both            along both: pairs along the rows share B; pairs are stacked along the columns, and CTAs at
                            the same position of their pairs share A

                  rows ->                     if the last cluster has a CTA too many, this CTA multiplies the last
    columns   [ 0 | 1 ][ 2 | 2'][             tile again, because its peers need the slice that it loads. It stores
       |      [ 0 | 1 ][ 2 | 2'][             nothing: its own region begins past the end of the tensor
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...lang import ptx
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .cluster import ClusterGrid, MulticastGroup
from .raster import grouped
from .stream_k import SplitKSchedule

BOX_START = 16
"""Bytes of which the start of a TMA box in the innermost dimension is a multiple (docs/measured-facts.md)."""


def moved(own: Register, extent: Register, tile: int, step: int = 1) -> Register:
    """The start of a tile whose own part begins at `own`, moved so that it ends inside `extent` as far as possible.
    step: starts are multiples of it, as those of boxes in the innermost dimension."""
    larger, last = extent > tile, extent - tile
    if step > 1:
        last = (last + (step - 1)) // step * step
    last = ptx.select(larger, last, 0)
    return ptx.select(own < last, own, last)


def at_most(value: Register, most: int) -> Register:
    """The smaller of the two, as for the rows of a box: those of the tile, or of a smaller tensor."""
    return ptx.select(value < most, value, most)


def _transposed(operand: ArrayHandle) -> bool:
    return operand.spec.layout is not None and operand.spec.layout.major == "MN"


def _rows(operand: ArrayHandle) -> Register:
    """Rows of A or of B, whether it is K-major or transposed."""
    extent: Register = operand.shape[_transposed(operand)]
    return extent


def _step(operand: ArrayHandle) -> int:
    """Rows of which a tile's start is a multiple: a box of a transposed operand starts at a multiple of 16 bytes of a
    row in memory."""
    return BOX_START // operand.dtype.bytes if _transposed(operand) else 1


@dataclass
class MovedTile:
    """A tile's first row and column in D, moved inside it, and the first ones that it stores."""

    row: Register
    column: Register
    own_row: Register
    own_column: Register


@dataclass
class MovedTiles:
    """The tiles of a CTA; see the module's docstring.

    Attributes:
        A, B: (M, K) and (N, K), or transposed.
        tile: its rows and columns.
        k: the CTA's split of K and its first tile, or its cluster's if operands are shared.
        persistent: the CTA loops over tiles.
        cluster: CTAs of a cluster that have different tiles.
        shared: the operands whose tiles they share: "", "a", "b" or "ab"; with both, `grid` arranges the CTAs.
        group: height of a band in tiles; 0 for none.
    """

    A: ArrayHandle
    B: ArrayHandle
    tile: tuple[int, int]
    k: SplitKSchedule
    persistent: bool = False
    cluster: int = 1
    shared: str = ""
    grid: ClusterGrid | None = None
    group: int = 0

    def sharing(self, operand: str) -> MulticastGroup | None:
        """The CTAs that share the operand "a" or "b" with this one; None if none do."""
        if self.grid is not None:
            return self.grid.of_row() if operand == "b" else self.grid.of_column()
        return MulticastGroup.all(self.cluster) if operand in self.shared else None

    def _along(self, extent: Register, tile: int, shared: str) -> Register:
        """The number of tiles along an axis, or of clusters if the CTAs that share the operand are adjacent there."""
        count, group = (extent + (tile - 1)) // tile, self.sharing(shared)
        return count if group is None else (count + (group.ctas - 1)) // group.ctas

    def along_rows(self) -> Register:
        """The number of tiles, or of clusters that share B, along the rows."""
        return self._along(_rows(self.A), self.tile[0], "b")

    def along_columns(self) -> Register:
        """The number of tiles, or of clusters that share A, along the columns."""
        return self._along(_rows(self.B), self.tile[1], "a")

    def tiles(self) -> Iterator[Register]:
        """The numbers of this CTA's tiles: a run-time loop if it can have several, a branch if it may have none. CTAs
        that share an operand have the same number of tiles and the same numbers."""
        tiles = self.along_rows() * self.along_columns()
        first, step = self.k.tile, self.cluster if self.shared else 1
        if self.persistent:
            ctas = ptx.special.nctaid.x()
            yield from ptx.range(first, tiles, ctas if step == 1 else ctas // step, unroll=False)
        elif self.cluster > 1 and not self.shared:
            with ptx.if_(first < tiles):
                yield first
        else:
            yield first

    def coordinates(self, tile: Register) -> MovedTile:
        """The coordinates of a tile; the last tile is moved to end with the tensor. Each role computes them by itself,
        a consumer after its main loop, because registers are scarce."""
        rows = self.along_rows()
        row, column = grouped(self.group)(tile, rows, self.along_columns()) if self.group else (None, None)
        own_row = self._of_cluster(tile % rows if row is None else row, "b") * self.tile[0]
        own_column = self._of_cluster(tile // rows if column is None else column, "a") * self.tile[1]
        return MovedTile(
            moved(own_row, _rows(self.A), self.tile[0], _step(self.A)),
            moved(own_column, _rows(self.B), self.tile[1], _step(self.B)), own_row, own_column,
        )  # fmt: skip

    def _of_cluster(self, index: Register, shared: str) -> Register:
        """A tile's index along the axis on which the CTAs that share the operand are adjacent."""
        group = self.sharing(shared)
        return index if group is None else index * group.ctas + group.index()
