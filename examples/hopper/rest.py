"""Tiles in whole waves, and three ways to divide the partial wave.

    data_parallel   one CTA per tile: a further wave in which many CTAs are idle
    split_k         the CTAs are divided among the remaining tiles, and those of a tile divide its K
    stream_k        the k-tiles of the partial wave and of one whole wave form a sequence, cut into equal parts per CTA

Shared work comes first. Then every CTA has the same number of whole tiles, so the CTA that adds up sums does not finish
last. The sequence of shared tiles, with 5 tiles for 4 CTAs and with 1:

    stream_k   tiles [--- 0 ---][--- 1 ---][--- 2 ---][--- 3 ---][--- 4 ---]      split_k   tiles [--- 0 ---]
               CTAs  [---- 0 -----][---- 1 -----][---- 2 -----][---- 3 -----]               CTAs  [0][1][2][3]

M. Osama, D. Merrill, C. Cecka, M. Garland, J. Owens, Stream-K, arXiv 2301.03598, has the second and third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from warploom.collective.reduce.split_k import StreamKFixup
from warploom.collective.tile.raster import Order
from warploom.collective.tile.scheduler import TileCoord
from warploom.collective.tile.stream_k import Segment
from warploom.isa.dtypes import u32
from warploom.lang import ptx, reg
from warploom.lang.tile import ArrayHandle
from warploom.lang.values import Register

WAYS = ("data_parallel", "split_k", "stream_k")


@dataclass(kw_only=True)
class Share(Segment):
    """Consecutive k-tiles of one tile.

    Attributes:
        tile: index among the shared tiles; meaningless if `whole` is true.
        first: the first k-tile.
        place: the tile's first element in C.
    """

    first: Register
    place: TileCoord


class Rest:
    """The work of one CTA; see the module's docstring.

    Args:
        array: C.
        tile: (m, n) of a CTA.
        num_k_tiles: k-tiles of a tile, at least 1.
        order: the order of the tiles.
        way: one of `WAYS`.

    Attributes:
        cta, tiles: index of this CTA, and number of shared tiles, for `StreamKFixup`.
    """

    def __init__(
        self, array: ArrayHandle, tile: tuple[int, int], num_k_tiles: Register, order: Order, way: str
    ) -> None:
        self.tile, self.order, self.way, self.k_tiles = tile, order, way, num_k_tiles
        rows, columns = array.shape
        self.rows, self.columns = (rows + (tile[0] - 1)) // tile[0], (columns + (tile[1] - 1)) // tile[1]
        self.cta, self.grid = ptx.special.ctaid.x(), ptx.special.nctaid.x()
        count = self.rows * self.columns
        self.tiles = self._shared(count)
        self.whole = count - self.tiles
        """Tiles that one CTA computes alone: those with the lowest numbers."""
        self._divide()

    # -- the row of what is shared ---------------------------------------------------------------------------------

    def _shared(self, count: Register) -> Register:
        """The number of shared tiles."""
        if self.way == "data_parallel":
            return reg.scalar(u32, init=0)
        rest = count % self.grid
        if self.way == "split_k":
            return rest
        return ptx.select(rest == 0, 0, ptx.select(count < self.grid, count, rest + self.grid))

    def _divide(self) -> None:
        """Compute the sizes that `_begin` and `owners` need, and this CTA's part of the sequence."""
        row = self.tiles * self.k_tiles
        if self.way == "split_k":
            parts = self.grid // ptx.select(self.tiles == 0, 1, self.tiles)
            self.parts = ptx.select(parts < self.k_tiles, parts, self.k_tiles)
            self.ctas = self.tiles * self.parts
        else:
            self.ctas = ptx.select(row == 0, 1, ptx.select(self.grid < row, self.grid, row))
        self.row = row
        self.begin, self.end = self._begin(self.cta), self._begin(self.cta + 1)

    def _begin(self, cta: Register) -> Register:
        """The start of a CTA's part; the end of the sequence for CTAs without one."""
        if self.way == "split_k":
            tile, part = cta // self.parts, cta % self.parts
            begin = tile * self.k_tiles + part * self.k_tiles // self.parts
        else:
            begin = self.row * cta // self.ctas
        return ptx.select(begin < self.row, begin, self.row)

    def owners(self, tile: Register) -> tuple[Register, Register]:
        """The first and the last CTA with k-tiles of a shared tile."""
        if self.way == "split_k":
            first = tile * self.parts
            return first, first + (self.parts - 1)
        begins = tile * self.k_tiles
        return self._owner(begins), self._owner(begins + (self.k_tiles - 1))

    def _owner(self, position: Register) -> Register:
        return ((position + 1) * self.ctas - 1) // self.row

    # -- everything ------------------------------------------------------------------------------------------------

    def shares(self) -> Iterator[Share]:
        """This CTA's shared work, tile by tile, then its whole tiles, in one run-time loop."""
        shared = self.end - self.begin
        alone = (self.whole + (self.grid - 1) - self.cta) // self.grid
        total, done = shared + alone * self.k_tiles, reg.scalar(u32, init=0)
        with ptx.while_(lambda: done < total):
            streamed = done < shared
            position = self.begin + done
            tile = position // self.k_tiles
            begins = tile * self.k_tiles
            after = begins + self.k_tiles
            left = ptx.select(after < self.end, after, self.end) - position
            count = ptx.select(streamed, left, self.k_tiles)
            mine = self.cta + (done - shared) // self.k_tiles * self.grid
            number = ptx.select(streamed, self.whole + tile, mine)
            row, column = self.order(number, self.rows, self.columns)
            place = TileCoord(row * self.tile[0], column * self.tile[1])
            first = ptx.select(streamed, position - begins, 0)
            yield Share(tile=tile, num_k_tiles=count, whole=count == self.k_tiles, first=first, place=place)
            done += count


class RestFixup(StreamKFixup):
    """A fixup in which the last CTA does not read its own sums back if they are the first or the second in the order of
    k. Addition of two numbers commutes, so the bits are the same."""

    def add_up(self, first: Register, last: Register, read: Callable[[Register, bool], None]) -> None:
        """Add up the partial sums of CTAs `first` to `last`."""
        with ptx.if_(self.work.cta <= first + 1):
            for cta in ptx.range(first, last + 1):
                with ptx.if_(cta != self.work.cta):
                    read(cta, True)
        with ptx.else_():
            super().add_up(first, last, read)
