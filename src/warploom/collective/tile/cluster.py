"""Clusters: which CTA am I, meeting before the first remote access and after the last, and sliced multicast.

A tile that all CTAs of a cluster need is cut into as many slices of rows: each CTA loads one slice and multicasts it,
so that each of them has the whole tile after one slice's worth of traffic. Every full barrier gets the bytes of all
slices.
"""

from __future__ import annotations

from ...lang import ptx
from ...lang.operand_tile import TileSlice
from ...lang.smem import BarrierAddress
from ...lang.tile import ArrayHandle
from ...lang.values import Register


def meet() -> None:
    """All threads of the cluster meet, after `fence.mbarrier_init`: barriers may be used from other CTAs.

    The arrival is relaxed: the fence has ordered the initialisation, and a releasing one would be a memory barrier of
    the whole GPU.
    """
    ptx.cluster.arrive(relaxed=True)
    ptx.cluster.wait()


def leave() -> None:
    """All threads of the cluster meet before they end: none of them writes to a CTA that is gone."""
    ptx.cluster.sync()


def everyone(ctas: int) -> int:
    """The multicast mask of the first `ctas` CTAs of a cluster."""
    return (1 << ctas) - 1


def load_slice(
    tile: TileSlice, array: ArrayHandle, k: Register, row: Register, rank: Register, ctas: int, full: BarrierAddress
) -> None:
    """Load slice `rank` of a tile and multicast it to all `ctas` CTAs of the cluster.

    K-major: the map's box is as high as a slice (`Tile.wgmma_b(..., tile_n=rows // ctas)`), the tile `ctas` times as
    high. MN-major: a slice is every `ctas`-th panel of the tile, and the map's box a panel.
    """
    mask = everyone(ctas)
    if tile.layout.major == "MN":
        for index, box in enumerate(tile.layout.boxes):
            place = tile.coordinates(row, k, box)
            mine = rank == index % ctas
            ptx.cp.async_.bulk.tensor_2d(tile + box.offset, array.tma_desc(), place, full, multicast=mask, pred=mine)
        return
    rows = tile.rows_count // ctas
    first = rank * rows
    ptx.cp.async_.bulk.tensor_2d(tile.rows(first, rows), array.tma_desc(), (k, row + first), full, multicast=mask)


def load_slices(
    tile: TileSlice, array: ArrayHandle, k: Register, row: Register, ctas: int, full: BarrierAddress
) -> None:
    """Load all slices of a tile for this CTA alone; else as `load_slice`."""
    if tile.layout.major == "MN":
        ptx.tma.load(tile, array.tma_desc(), tile.coordinates(row, k), full)
        return
    rows = tile.rows_count // ctas
    for first in range(0, tile.rows_count, rows):
        place = (k, row + first if first else row)
        ptx.cp.async_.bulk.tensor_2d(tile.rows(first, rows), array.tma_desc(), place, full)
