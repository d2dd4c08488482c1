"""Tiles that stay inside the tensor: the last one is moved back, and a box is no larger than the tensor.

    tensor   [ . . . . . . . . . . . . . . ]
    tiles    [-- 0 --][-- 1 --][-- 2 --]
                                  [-- 3 --]      moved: overlaps tile 2, and stores nothing of the overlap

A row of a TMA box outside the tensor costs about five times as much as one inside, so a tile that crosses the edge
takes longer than a whole tile. If the tensor is smaller, `Tile.wgmma_a(..., clipped=True)` shrinks the box.
"""

from __future__ import annotations

from ...lang import ptx
from ...lang.values import Register


def moved(own: Register, extent: Register, tile: int) -> Register:
    """The start of a tile whose own part begins at `own`, moved so that it ends inside `extent` as far as possible."""
    last = ptx.select(extent > tile, extent - tile, 0)
    return ptx.select(own < last, own, last)


def inside(extent: Register, tile: int) -> Register:
    """Rows of a box: those of the tile, or of a smaller tensor."""
    return least(extent, tile)


def least(value: Register, most: int) -> Register:
    """The smaller of the two."""
    return ptx.select(value < most, value, most)
