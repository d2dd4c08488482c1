"""Clusters: meeting before the first remote access and after the last, and loads that the CTAs share by multicast.

A tile that all CTAs of a cluster need is cut into slices of rows, one for each CTA. Each CTA loads its slice and
multicasts it, so every CTA has the whole tile after one slice's worth of traffic. Every full barrier gets the bytes of
all slices.

`load_tile`, `Multicast` and `load_slices` are called alike, so a producer chooses one of them for an operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ...lang import ptx
from ...lang.operand_tile import TileSlice
from ...lang.predicate import Predicate
from ...lang.smem import BarrierAddress, SharedAddress
from ...lang.tile import ArrayHandle
from ...lang.values import Register

Coordinates: TypeAlias = Sequence[Register | int]
"""Of a tile's first element in its array, innermost dimension first."""


def meet() -> None:
    """All threads of the cluster meet, after `fence.mbarrier_init`: barriers may be used from other CTAs.

    The arrival is relaxed: the fence has ordered the initialisation, and a releasing arrival would be a memory barrier
    of the whole GPU.
    """
    ptx.cluster.arrive(relaxed=True)
    ptx.cluster.wait()


def leave() -> None:
    """All threads of the cluster meet before they end: none of them writes to a CTA that has exited."""
    ptx.cluster.sync()


def load_tile(tile: TileSlice, array: ArrayHandle, coordinates: Coordinates, full: BarrierAddress) -> None:
    """Load a tile for this CTA: a box of the array's tensor map for each panel."""
    ptx.tma.load(tile, array.tma_desc(), coordinates, full)


class Multicast:
    """Loads this CTA's slice of a tile for all `ctas` CTAs of its cluster.

    K-major: the map's box is as high as a slice (`Tile.wgmma_b(..., tile_n=rows // ctas)`), and the tile is `ctas`
    times as high. MN-major: a slice is every `ctas`-th panel of the tile, and the map's box is a panel.
    """

    def __init__(self, ctas: int) -> None:
        self.ctas, self.rank = ctas, ptx.special.cluster_ctarank()

    def __call__(self, tile: TileSlice, array: ArrayHandle, coordinates: Coordinates, full: BarrierAddress) -> None:
        """Load and multicast the slice; `coordinates` are those of the whole tile."""
        everyone = (1 << self.ctas) - 1
        if tile.layout.major == "MN":
            for index, box in enumerate(tile.layout.boxes):
                mine = self.rank == index % self.ctas
                _copy(tile + box.offset, array, coordinates, box.coordinates, full, everyone, mine)
            return
        rows = tile.rows_count // self.ctas
        first = self.rank * rows
        _copy(tile.rows(first, rows), array, coordinates, (0, first), full, everyone)


def load_slices(ctas: int, tile: TileSlice, array: ArrayHandle, coordinates: Coordinates, full: BarrierAddress) -> None:
    """Load all slices of a tile, for this CTA alone: the same boxes as `Multicast`, where CTAs read different tiles."""
    if tile.layout.major == "MN":
        load_tile(tile, array, coordinates, full)
        return
    rows = tile.rows_count // ctas
    for first in range(0, tile.rows_count, rows):
        _copy(tile.rows(first, rows), array, coordinates, (0, first), full)


def _copy(
    target: SharedAddress, array: ArrayHandle, coordinates: Coordinates, steps: Coordinates, full: BarrierAddress,
    multicast: int | None = None, pred: Predicate | None = None,
) -> None:  # fmt: skip
    """One box, `steps` further than the tile's coordinates."""
    tensor_map = array.tma_desc()
    ptx.cp.async_.bulk.tensor(target, tensor_map, tensor_map.moved(coordinates, steps), full, multicast, pred=pred)
