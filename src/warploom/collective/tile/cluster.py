"""Clusters: synchronisation before the first remote access and after the last, and loads shared by multicast.

A tile that all CTAs of a cluster need is divided into slices of rows, one per CTA. Each CTA loads its slice and
multicasts it, so every CTA has the whole tile after one slice's worth of traffic. Every full barrier counts the bytes
of all slices.

`load_tile`, `Multicast` and `load_slices` are called alike, so a producer chooses one of them per operand.
`MulticastSlices` does the same for tiles of any multiple of 8 rows, and can prefetch them into L2, as can `WholeTiles`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...isa.dtypes import u16, u32
from ...lang import ptx, reg
from ...lang.operand_tile import TileSlice
from ...lang.predicate import Predicate
from ...lang.smem import BarrierAddress, SharedAddress
from ...lang.tile import ArrayHandle
from ...lang.values import Register

Coordinates: TypeAlias = Sequence[Register | int]
"""Coordinates of a tile's first element in its array, innermost dimension first."""


SLICE_ROWS = 8
"""Rows after which the pattern of a swizzle repeats."""


def sync_after_init() -> None:
    """Synchronise the cluster after `fence.mbarrier_init`, so that other CTAs may use this CTA's barriers.

    The arrival is relaxed: the fence has ordered the initialisation, and a releasing arrival would be a memory barrier
    for the whole GPU.
    """
    ptx.cluster.arrive(relaxed=True)
    ptx.cluster.wait()


def leave() -> None:
    """Synchronise the cluster before its CTAs exit, so that none of them writes to a CTA that has exited."""
    ptx.cluster.sync()


def load_tile(tile: TileSlice, array: ArrayHandle, coordinates: Coordinates, full: BarrierAddress) -> None:
    """Load a tile for this CTA: one box of the array's tensor map per panel."""
    ptx.tma.load(tile, array.tma_desc(), coordinates, full)


class Multicast:
    """Loads this CTA's slice of a tile for all `ctas` CTAs of its cluster.

    K-major: the tensor map's box is as high as a slice (`Tile.wgmma_b(..., tile_n=rows // ctas)`), and the tile is
    `ctas` times as high. MN-major: a slice is every `ctas`-th panel of the tile, and the map's box is a panel.
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


def slice_boxes(ctas: int, array: ArrayHandle) -> list[tuple[int, int]]:
    """The boxes of `MulticastSlices`, the higher one first if there are two."""
    assert array.spec.box is not None
    width, rows = array.spec.box[0], _rows(array)
    least, more = divmod(rows // SLICE_ROWS, ctas)
    if not least:
        raise array.trace.error(f"{ctas} CTAs cannot share the tile of {array.name}",
                                expected=f"{SLICE_ROWS * ctas} rows or more", got=rows)  # fmt: skip
    return [(width, (least + larger) * SLICE_ROWS) for larger in ((1, 0) if more else (0,))]


def _rows(array: ArrayHandle) -> int:
    assert array.spec.box is not None
    return int(array.spec.box[1])


@dataclass(frozen=True)
class MulticastGroup:
    """CTAs of a cluster that share a tile.

    Attributes:
        ctas: the number of CTAs.
        ranks: their mask in the cluster, to be shifted by `first` if that is a register.
        position: index of this CTA among them; its rank if they are the whole cluster.
    """

    ctas: int
    ranks: int
    position: Register | None = None
    first: Register | None = None

    @staticmethod
    def all(ctas: int) -> MulticastGroup:
        """All CTAs of a cluster of `ctas` CTAs."""
        return MulticastGroup(ctas, (1 << ctas) - 1)

    def index(self) -> Register:
        """The index of this CTA among them."""
        return ptx.special.cluster_ctarank() if self.position is None else self.position

    def mask(self) -> int | Register:
        """The multicast mask of these CTAs."""
        return self.ranks if self.first is None else (reg.scalar(u32, init=self.ranks) << self.first).to(u16)


class ClusterGrid:
    """The CTAs of a cluster in rows and columns: CTAs of a row share one operand, CTAs of a column the other.

            column 0    1    2
    row 0   [ rank 0 |  1 |  2 ]      CTA 4 shares the operand of its row with 3 and 5, and that of its column with 1.
    row 1   [      3 |  4 |  5 ]      They fill its stages, and it fills theirs: its multicast peers
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        rank = ptx.special.cluster_ctarank()
        self.row, self.column = rank // columns, rank % columns
        self.first_of_row = self.row * columns

    @property
    def multicast_peers(self) -> int:
        """The number of CTAs that share an operand with this one, which counts as well."""
        return self.rows + self.columns - 1

    def multicast_peer(self, number: Register) -> Register:
        """The rank of a multicast peer: first those of the row, then the others of the column."""
        below = (self.row + 1 + number - self.columns) % self.rows
        return ptx.select(number < self.columns, self.first_of_row + number, below * self.columns + self.column)

    def of_row(self) -> MulticastGroup:
        """The CTAs of this CTA's row."""
        return MulticastGroup(self.columns, (1 << self.columns) - 1, self.column, self.first_of_row)

    def of_column(self) -> MulticastGroup:
        """The CTAs of this CTA's column."""
        ranks = sum(1 << row * self.columns for row in range(self.rows))
        return MulticastGroup(self.rows, ranks, self.row, self.column)


class WholeTiles:
    """Loads of an operand's tiles for this CTA alone, with the interface of `MulticastSlices`."""

    def __init__(self, array: ArrayHandle) -> None:
        self.array = array

    def load(
        self, tile: TileSlice, coordinates: Coordinates, full: BarrierAddress, cache_hint: Register | None = None
    ) -> None:
        """Load a tile."""
        ptx.tma.load(tile, self.array.tma_desc(), coordinates, full, cache_hint=cache_hint)

    def prefetch(self, tile: TileSlice, coordinates: Coordinates) -> None:
        """Prefetch into L2 what `load` with the same arguments reads."""
        ptx.tma.prefetch(tile, self.array.tma_desc(), coordinates)


class MulticastSlices:
    """This CTA's slice of a tile, which it loads for all CTAs that share the tile.

    Slices are rows of the tile's boxes, rows of k if it is MN-major: multiples of 8, the pattern of the swizzle, and as
    equal as this allows: 80 and 72 of 152. Each size has its own tensor map.

    Args:
        group: the CTAs that share the tile.
        array: the operand, whose Tile's box is as high as the whole tile, and not clipped.

    Raises TraceError if a CTA would have no rows.
    """

    def __init__(self, group: MulticastGroup, array: ArrayHandle) -> None:
        ctas, rank = group.ctas, group.index()
        self.everyone, self.array, boxes = group.mask(), array, slice_boxes(ctas, array)
        width, least = boxes[-1]
        self.first = rank * least
        self.boxes: list[tuple[tuple[int, int], Predicate | None]] = [(boxes[-1], None)]
        if len(boxes) > 1:
            more = (_rows(array) - ctas * least) // SLICE_ROWS
            larger = rank < more
            self.first = self.first + ptx.select(larger, rank, more) * SLICE_ROWS
            self.boxes = [(boxes[0], larger), ((width, least), ~larger)]

    def load(
        self, tile: TileSlice, coordinates: Coordinates, full: BarrierAddress, cache_hint: Register | None = None
    ) -> None:
        """Load and multicast the slice; `coordinates` are those of the whole tile."""
        mine = tile + self.first * tile.layout.swizzle.span
        for size, pred in self.boxes:
            map_ = self.array.tma_desc(size)
            for panel in tile.layout.boxes:
                corner = map_.moved(coordinates, (panel.coordinates[0], self.first))
                ptx.cp.async_.bulk.tensor(mine + panel.offset, map_, corner, full, self.everyone, cache_hint, pred=pred)

    def prefetch(self, tile: TileSlice, coordinates: Coordinates) -> None:
        """Prefetch into L2 what `load` with the same arguments reads."""
        for size, pred in self.boxes:
            map_ = self.array.tma_desc(size)
            ptx.tma.prefetch(tile, map_, map_.moved(coordinates, (0, self.first)), pred=pred)


def load_slices(ctas: int, tile: TileSlice, array: ArrayHandle, coordinates: Coordinates, full: BarrierAddress) -> None:
    """Load all slices of a tile for this CTA alone, in the boxes of `Multicast`, if CTAs read different tiles."""
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
    """Load one box, `steps` further than the tile's coordinates."""
    tensor_map = array.tma_desc()
    ptx.cp.async_.bulk.tensor(target, tensor_map, tensor_map.moved(coordinates, steps), full, multicast, pred=pred)
