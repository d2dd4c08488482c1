"""Three ways to distribute a product's work over CTAs, as timelines: data parallel, split-K, stream-K.

The unit of time is a k-tile of one output tile; loads, epilogues and reductions of partial sums take none.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ArgumentError


@dataclass(frozen=True)
class Piece:
    """K-tiles [first, last) of one output tile, which a CTA processes from `start` on."""

    tile: int
    first: int
    last: int
    start: int

    @property
    def end(self) -> int:
        return self.start + self.last - self.first


@dataclass(frozen=True)
class Schedule:
    """The work of each CTA, in order.

    Attributes:
        name; ctas: the pieces of each.
        k_tiles: of an output tile.
    """

    name: str
    ctas: tuple[tuple[Piece, ...], ...]
    k_tiles: int

    @property
    def time(self) -> int:
        """Time until the last CTA has finished."""
        return max((pieces[-1].end for pieces in self.ctas if pieces), default=0)

    @property
    def busy(self) -> float:
        """Share of the CTAs' time in which they work."""
        work = sum(piece.last - piece.first for pieces in self.ctas for piece in pieces)
        return work / (self.time * len(self.ctas)) if self.time else 0.0

    @property
    def partial(self) -> int:
        """Pieces that are not a whole tile, whose partial sums must be written and reduced."""
        return sum(piece.last - piece.first < self.k_tiles for pieces in self.ctas for piece in pieces)


def _queued(name: str, pieces: list[tuple[int, int, int]], ctas: int, k_tiles: int) -> Schedule:
    """Assign pieces one after the other to the CTA that is free first."""
    made: list[list[Piece]] = [[] for _ in range(ctas)]
    free = [0] * ctas
    for tile, first, last in pieces:
        cta = free.index(min(free))
        made[cta].append(Piece(tile, first, last, free[cta]))
        free[cta] += last - first
    return Schedule(name, tuple(map(tuple, made)), k_tiles)


def data_parallel(tiles: int, k_tiles: int, ctas: int) -> Schedule:
    """A CTA for each output tile."""
    _check(tiles, k_tiles, ctas)
    return _queued("data parallel", [(tile, 0, k_tiles) for tile in range(tiles)], ctas, k_tiles)


def split_k(tiles: int, k_tiles: int, ctas: int, parts: int) -> Schedule:
    """Each tile's K in `parts` splits, cut like `collective.tile.stream_k.SplitKSchedule`."""
    _check(tiles, k_tiles, ctas, parts)
    cut = [(k_tiles * part // parts, k_tiles * (part + 1) // parts) for part in range(parts)]
    pieces = [(tile, first, last) for tile in range(tiles) for first, last in cut if last > first]
    return _queued(f"split-K, {parts} splits", pieces, ctas, k_tiles)


def stream_k(tiles: int, k_tiles: int, ctas: int) -> Schedule:
    """All k-tiles in one row, in equal shares, cut like `collective.tile.stream_k.EqualShares`."""
    _check(tiles, k_tiles, ctas)
    total, made = tiles * k_tiles, []
    working = min(ctas, total)
    for cta in range(ctas):
        begin, end = (total * min(one, working) // working for one in (cta, cta + 1))
        pieces, start = [], 0
        while begin < end:
            tile, first = divmod(begin, k_tiles)
            last = min(k_tiles, first + end - begin)
            pieces.append(Piece(tile, first, last, start))
            start += last - first
            begin += last - first
        made.append(tuple(pieces))
    return Schedule("stream-K", tuple(made), k_tiles)


def _check(*counts: int) -> None:
    if any(count < 1 for count in counts):
        raise ArgumentError("a schedule needs tiles, k-tiles and CTAs", expected="at least 1 of each", got=counts)
