"""Orders of the tiles of C in which concurrent tiles share rows of A and of B.

An order is a function from a tile's number to its row and column in the grid of tiles, computed by the threads. The
tiles that run concurrently are an interval of numbers. Along a row of tiles, they need one block of A and all of B; in
a compact patch, they need the square root's worth of each.

    along rows        0  1  2  3         grouped, 2 rows    0  2  4  6        Hilbert    0  3  4  5
                      4  5  6  7                            1  3  5  7                   1  2  7  6
                      8  9 10 11                           14 12 10  8                  14 13  8  9
                     12 13 14 15                           15 13 11  9                  15 12 11 10
"""

from __future__ import annotations

from collections.abc import Callable

from ...isa.dtypes import u32
from ...lang import ptx, reg
from ...lang.values import Register

Order = Callable[[Register, Register, Register], tuple[Register, Register]]
"""(number of the tile, rows and columns of the grid of tiles) -> (row, column)."""


def along_rows(number: Register, rows: Register, columns: Register) -> tuple[Register, Register]:
    """Row by row."""
    return number // columns, number % columns


def grouped(group: int) -> Order:
    """Bands of `group` rows, traversed column by column; every other band backwards, so that B stays in the cache."""

    def order(number: Register, rows: Register, columns: Register) -> tuple[Register, Register]:
        band, inside, first, height = _band(number, rows, columns, group)
        column = inside // height
        return first + inside % height, _serpentine(band, column, columns)

    return order


def hilbert(bits: int) -> Order:
    """Bands of squares with sides of 2^bits, each filled along a Hilbert curve; the rest of a band by columns.

    The curve is built from the finest square up: a square of twice the side is four of them, the first reflected in its
    diagonal, the last in the other diagonal (D. Hilbert 1891). Consecutive numbers are adjacent tiles, and any interval
    of them is compact.
    """
    side = 1 << bits

    def order(number: Register, rows: Register, columns: Register) -> tuple[Register, Register]:
        band, inside, first, height = _band(number, rows, columns, side)
        row, column = inside % height, inside // height
        square = column >> bits
        whole = (height == side) & ((square + 1) << bits <= columns)
        along, across = _curve(inside & (side * side - 1), bits)
        row = ptx.select(whole, along, row)
        column = ptx.select(whole, (square << bits) + across, column)
        return first + row, column

    return order


def _band(
    number: Register, rows: Register, columns: Register, group: int
) -> tuple[Register, Register, Register, Register]:
    """The band of `group` rows that contains a tile, the tile's number in it, the band's first row, and its height."""
    per_band = columns * group
    band, inside = number // per_band, number % per_band
    first = band * group
    height = reg.scalar(u32)
    ptx.inst.min.u32(height, rows - first, group)
    return band, inside, first, height


def _serpentine(band: Register, column: Register, columns: Register) -> Register:
    return ptx.select((band & 1) == 0, column, columns - 1 - column)


def _curve(distance: Register, bits: int) -> tuple[Register, Register]:
    """The point at a distance along the Hilbert curve that fills a square of side 2^bits."""
    x, y = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
    for level in range(bits):
        right = (distance >> (2 * level + 1)) & 1
        upper = ((distance >> (2 * level)) ^ right) & 1
        # A quadrant on the near side is the curve reflected in the diagonal; at the far end, in the other diagonal.
        last = (1 << level) - 1
        turned, around = upper == 0, right == 1
        flipped_x, flipped_y = ptx.select(around, last - x, x), ptx.select(around, last - y, y)
        x, y = (
            ptx.select(turned, flipped_y, x) + (right << level),
            ptx.select(turned, flipped_x, y) + (upper << level),
        )
    return x, y
