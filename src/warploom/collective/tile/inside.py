"""Tiles that stay inside the tensor: the last one is moved back, and a box is no larger than the tensor.

    tensor   [ . . . . . . . . . . . . . . ]
    tiles    [-- 0 --][-- 1 --][-- 2 --]
                                  [-- 3 --]      moved: overlaps tile 2, of whose part it stores nothing

A row of a TMA box that is outside costs about five times as much as one inside, so a tile that hangs over the edge
takes longer than a whole one. The box is cut by `Tile.wgmma_a(..., clipped=True)` where the tensor is smaller.
"""

from __future__ import annotations

from ...lang import ptx
from ...lang.values import Register


def moved(own: Register, extent: Register, tile: int) -> Register:
    """The start of a tile whose own part begins at `own`, moved so that it ends inside `extent`, as far as it can."""
    last = ptx.select(extent > tile, extent - tile, 0)
    return ptx.select(own < last, own, last)


def inside(extent: Register, tile: int) -> Register:
    """Rows of a box: all of the tile, or of a tensor that is smaller."""
    return least(extent, tile)


def least(value: Register, most: int) -> Register:
    """The smaller of both."""
    return ptx.select(value < most, value, most)
