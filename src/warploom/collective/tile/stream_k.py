"""The stages of K, of one or several tiles, that a CTA multiplies.

    SplitKSchedule    one tile; all of K, or one of several equal splits of it, which adjacent CTAs take; or clusters,
                      whose CTAs have one tile each and share operands
    StreamKSchedule   the stages of all tiles form one sequence, divided into equal pieces, one per CTA: every CTA
                      reads as much as every other, for any number of tiles

                        tiles   [----- 0 -----][----- 1 -----][----- 2 -----]
                        CTAs    [-- 0 --][-- 1 --][-- 2 --][-- 3 --][-- 4 --]

Grid x counts tiles along the rows of the first operand, grid y tiles of the second operand. A producer calls
`coordinates(number)` for its CTA's n-th stage; a consumer iterates over `segments()`, each a piece of one tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...isa.dtypes import u32
from ...lang import ptx, reg
from ...lang.predicate import Predicate
from ...lang.values import Register


@dataclass
class Segment:
    """Consecutive stages of one tile.

    Attributes:
        tile: its number along grid x.
        num_k_tiles: the number of stages.
        whole: whether they are all of the tile's stages, if that is only known at run time.
    """

    tile: Register
    num_k_tiles: Register
    whole: Predicate | None = None


class SplitKSchedule:
    """One tile and one split of K, of a number of `splits`. A split may be empty.

    Attributes:
        tile: number of the tile, or of a cluster's tiles.
        split: number of the split.
        tiles: number of tiles along grid x.
        first, total: the stages of K of the split.

    stages: stages of all of K. cluster: CTAs of a cluster, each with its own tile and all with the same split.
    """

    def __init__(self, stages: Register, splits: int, cluster: int = 1) -> None:
        cta = ptx.special.ctaid.x()
        self.splits, self.cluster = splits, cluster
        unit = cta if cluster == 1 else cta // cluster
        self.tile, self.split = unit // splits, unit % splits
        self.tiles = ptx.special.nctaid.x() // splits
        self.first = stages * self.split // splits
        self.total = stages * (self.split + 1) // splits - self.first

    def output(self) -> Register:
        """The number of this CTA's own tile."""
        if self.cluster == 1:
            return self.tile
        return self.tile * self.cluster + ptx.special.ctaid.x() % self.cluster

    def coordinates(self, number: Register) -> tuple[Register, Register]:
        """Tile and stage of K of the n-th stage of this CTA."""
        return self.tile, self.first + number

    def segments(self) -> Iterator[Segment]:
        """The only segment."""
        yield Segment(self.tile, self.total)


class EqualShares:
    """A sequence of pieces of work, divided into as many equal shares as there are CTAs along grid x.

    CTA i has the pieces from floor(all * i / CTAs). If there are fewer pieces than CTAs, the last CTAs have none and do
    not count. `all` times CTAs must be below 2^32.

    Args:
        all_: the number of pieces, at least one.
        several: if there are few pieces, the number that a CTA should have before another CTA gets any.
        ctas: CTAs that share the pieces; None: all.
    """

    def __init__(self, all_: Register, several: int = 1, ctas: Register | None = None) -> None:
        self.all = all_
        launched, self.cta = ptx.special.nctaid.x() if ctas is None else ctas, ptx.special.ctaid.x()
        most = self.all if several == 1 else (self.all + (several - 1)) // several
        self.ctas = ptx.select(launched < most, launched, most)
        self.begin, self.end = self._begin(self.cta), self._begin(self.cta + 1)
        self.total = self.end - self.begin

    def _begin(self, cta: Register) -> Register:
        begin = self.all * cta // self.ctas
        return ptx.select(begin < self.all, begin, self.all)

    def owner(self, position: Register) -> Register:
        """The CTA that has the piece at a position."""
        return ((position + 1) * self.ctas - 1) // self.all

    def block(self, cta: Register, first: Register) -> Register:
        """Index of a CTA's memory for a shared item that CTA `first` begins. A CTA begins at most one item that it does
        not finish, and finishes at most one that it did not begin."""
        return cta * 2 + ptx.select(cta == first, reg.scalar(u32, init=1), 0)


class StreamKSchedule(EqualShares):
    """The stream-K schedule. `stages`: stages of all of K; `tiles`: tiles along grid x. stages * tiles * CTAs < 2^32.

    The CTA that adds a tile up waits for every CTA between the tile's first and last.
    """

    def __init__(self, stages: Register, tiles: Register) -> None:
        self.stages, self.tiles = stages, tiles
        super().__init__(stages * tiles)

    def coordinates(self, number: Register) -> tuple[Register, Register]:
        """Tile and stage of K of the n-th stage of this CTA."""
        position = self.begin + number
        tile = position // self.stages
        return tile, position - tile * self.stages

    def segments(self) -> Iterator[Segment]:
        """One segment for each tile with stages in this CTA; a run-time loop."""
        position = reg.scalar(u32, init=self.begin)
        with ptx.while_(lambda: position < self.end):
            tile = position // self.stages
            ends = (tile + 1) * self.stages
            count = ptx.select(ends < self.end, ends, self.end) - position
            yield Segment(tile, count, count == self.stages)
            position += count

    def owners(self, tile: Register) -> tuple[Register, Register]:
        """The first and the last CTA with stages of a tile."""
        begins = tile * self.stages
        return self.owner(begins), self.owner(begins + (self.stages - 1))
