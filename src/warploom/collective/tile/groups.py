"""Tiles of many products in one launch: groups of rows, each multiplied by a matrix of its own.

Group g has rows begins[g] to ends[g] of A and D. Its tiles are numbered after those of the groups before it, the rows
of a group first, so that the tiles that read the same part of its matrix run at one time:

    group 0, 3 rows of tiles    0  3  6        group 1, 1 row    9 10 11        group 2, empty
                                1  4  7
                                2  5  8

How many rows of tiles stand before each group is added up at the start by one warp, into shared memory. A role finds
the group of a tile by walking on from that of the tile before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ...isa.dtypes import s32, u32, u64
from ...lang import ptx, reg, smem
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .sizes import MOST_GROUPS

WARP = 32


@dataclass
class GroupTileCoord:
    """A tile: where it begins in D, where its group's rows end, and which group that is."""

    row: Register
    column: Register
    end: Register
    group: Register


class Limits(Protocol):
    """Which rows are whose."""

    @property
    def count(self) -> Register:
        """Groups; at most `MOST_GROUPS`."""

    def of(self, group: Register) -> tuple[Register, Register]:
        """First row of a group and the row after its last, s32, not checked."""


class Sized(Protocol):
    """A result, of which only the sizes are asked."""

    @property
    def shape(self) -> Any:
        """Rows and columns."""


@dataclass
class Bounds:
    """Both are told: `begins` and `ends`, s32, one entry for each group."""

    begins: ArrayHandle
    ends: ArrayHandle

    @property
    def count(self) -> Register:
        """Groups."""
        return self.begins.shape[0]

    def of(self, group: Register) -> tuple[Register, Register]:
        """As told."""
        return _entry(self.begins, group), _entry(self.ends, group)


@dataclass
class Offsets:
    """Consecutive groups: `ends` (s32) says where each ends."""

    ends: ArrayHandle

    @property
    def count(self) -> Register:
        """Groups."""
        return self.ends.shape[0]

    def of(self, group: Register) -> tuple[Register, Register]:
        """From the end of the group before."""
        before = _entry(self.ends, ptx.select(group == 0, 0, group - 1))
        return ptx.select(group == 0, 0, before), _entry(self.ends, group)


@dataclass
class Sizes:
    """Every group has the same room of `rows` / groups; the first `sizes` (s32) rows of it are filled."""

    sizes: ArrayHandle
    rows: Register

    @property
    def count(self) -> Register:
        """Groups."""
        return self.sizes.shape[0]

    @property
    def room(self) -> Register:
        """Rows of each group."""
        return self.rows // self.count

    def of(self, group: Register) -> tuple[Register, Register]:
        """As much as is filled, and no more than there is room."""
        room, filled = self.room, _entry(self.sizes, group)
        most = room.view(s32)
        begin = (group * room).view(s32)
        return begin, begin + ptx.select(filled < most, filled, most)


def _entry(array: ArrayHandle, group: Register) -> Register:
    return ptx.load(s32, ptx.addr(array.pointer() + group.to(u64) * s32.bytes))


def running_sums(sums: smem.SharedArray, count: Register, of: Callable[[Register], Register]) -> None:
    """By one whole warp: sums[0] is 0, sums[i + 1] = sums[i] + of(i); `of` gives 0 from `count` on, and is called by
    all lanes."""
    lane, total = ptx.special.tid.x(), reg.scalar(u32, init=0)
    with ptx.if_(lane == 0):
        ptx.store(sums[0], total)
    for first in ptx.range(0, count, WARP):
        group = first + lane
        sum_ = of(group)
        for step in (1, 2, 4, 8, 16):
            below = reg.scalar(u32)
            ptx.inst.shfl.sync.up.b32(below, sum_, step, 0, -1)
            sum_ += ptx.select(lane >= step, below, 0)
        sum_ += total
        with ptx.if_(group < count):
            ptx.store(sums[group + 1], sum_)
        ptx.inst.shfl.sync.idx.b32(total, sum_, WARP - 1, WARP - 1, -1)


class Groups:
    """See the module's docstring.

    Args:
        limits: which rows of A and D are whose.
        D: its columns are those of every group.
        tile: (m, n) of a CTA.
    """

    def __init__(self, limits: Limits, D: Sized, tile: tuple[int, int]) -> None:
        self.limits, self.tile, self.height = limits, tile, D.shape[0].view(s32)
        self.count = limits.count
        self.columns = (D.shape[1] + (tile[1] - 1)) // tile[1]
        self.before = smem.array(u32, MOST_GROUPS + 1, name="rows_before")

    def initialise(self) -> None:
        """Warp 0 adds up the rows of tiles; the CTA meets before `tiles`."""
        with ptx.if_(ptx.special.tid.x() < WARP):
            running_sums(self.before, self.count, self._rows)

    def _rows(self, group: Register) -> Register:
        """Rows of tiles of a group; 0 after the last group."""
        rows = reg.scalar(u32, init=0)
        with ptx.if_(group < self.count):
            begin, end = self._bounds(group)
            length = ptx.select(end > begin, end - begin, 0)
            rows.set((length.view(u32) + (self.tile[0] - 1)) // self.tile[0])
        return rows

    def _bounds(self, group: Register) -> tuple[Register, Register]:
        """A group's rows, none of them outside of D."""
        begin, end = self.limits.of(group)
        return ptx.select(begin > 0, begin, 0), ptx.select(end < self.height, end, self.height)

    def holding(self, row: Register) -> Register:
        """The group that has row of tiles number `row`: halves the groups that may have it, until one is left."""
        low, high = reg.scalar(u32, init=0), self.count.copy()
        with ptx.while_(lambda: high - low > 1):
            middle = (low + high) >> 1
            beyond = ptx.load(u32, self.before[middle]) > row
            high.set(ptx.select(beyond, middle, high))
            low.set(ptx.select(beyond, low, middle))
        return low

    def tiles(self) -> Iterator[GroupTileCoord]:
        """This CTA's tiles, every n-th of them all."""
        group, before = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
        total = ptx.load(u32, self.before[self.count]) * self.columns
        for number in ptx.range(ptx.special.ctaid.x(), total, ptx.special.nctaid.x()):
            after = self._walk(group, before, number)
            rows, inside = after - before, number - before * self.columns
            begin, end = self._bounds(group)
            row = begin.view(u32) + inside % rows * self.tile[0]
            yield GroupTileCoord(row, inside // rows * self.tile[1], end.view(u32), group)

    def _walk(self, group: Register, before: Register, number: Register) -> Register:
        """Move `group` on to the one tile `number` is in; gives the rows of tiles up to its end, `before` those
        before it."""
        after = ptx.load(u32, self.before[group + 1])
        with ptx.while_(lambda: after * self.columns <= number):
            before.set(after)
            group += 1
            after.set(ptx.load(u32, self.before[group + 1]))
        return after
