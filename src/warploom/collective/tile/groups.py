"""Tiles of many products in one launch: groups of rows, each multiplied by its own matrix.

Group g has rows begins[g] to ends[g] of A and D. Tiles are numbered group by group, along the rows of a group first, so
that tiles that read the same part of its matrix run at the same time:

    group 0, 3 rows of tiles    0  3  6        group 1, 1 row    9 10 11        group 2, empty
                                1  4  7
                                2  5  8

At the start, one warp adds up the numbers of row tiles before each group, in shared memory. A role finds the group of a
tile by searching forward from the group of its previous tile.
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
    """A tile: its coordinates in D, the end of its group's rows, and its group."""

    row: Register
    column: Register
    end: Register
    group: Register


class Limits(Protocol):
    """The row range of each group."""

    @property
    def count(self) -> Register:
        """The number of groups, at most `MOST_GROUPS`."""

    def of(self, group: Register) -> tuple[Register, Register]:
        """First row of a group and the row after its last, s32, not checked."""


class Sized(Protocol):
    """A result of which only the sizes are used."""

    @property
    def shape(self) -> Any:
        """Rows and columns."""


@dataclass
class Bounds:
    """Row ranges given by `begins` and `ends`, s32, one entry per group."""

    begins: ArrayHandle
    ends: ArrayHandle

    @property
    def count(self) -> Register:
        """The number of groups."""
        return self.begins.shape[0]

    def of(self, group: Register) -> tuple[Register, Register]:
        """The group's entries in both arrays."""
        return _entry(self.begins, group), _entry(self.ends, group)


@dataclass
class Offsets:
    """Consecutive groups: `ends` (s32) has the end of each."""

    ends: ArrayHandle

    @property
    def count(self) -> Register:
        """The number of groups."""
        return self.ends.shape[0]

    def of(self, group: Register) -> tuple[Register, Register]:
        """From the end of the previous group to its own."""
        before = _entry(self.ends, ptx.select(group == 0, 0, group - 1))
        return ptx.select(group == 0, 0, before), _entry(self.ends, group)


@dataclass
class Sizes:
    """Groups of the same capacity, `rows` / groups; the first `sizes` (s32) rows of each are filled."""

    sizes: ArrayHandle
    rows: Register

    @property
    def count(self) -> Register:
        """The number of groups."""
        return self.sizes.shape[0]

    @property
    def capacity(self) -> Register:
        """Capacity of each group, in rows."""
        return self.rows // self.count

    def of(self, group: Register) -> tuple[Register, Register]:
        """The filled rows of a group, at most its capacity."""
        capacity, filled = self.capacity, _entry(self.sizes, group)
        most = capacity.view(s32)
        begin = (group * capacity).view(s32)
        return begin, begin + ptx.select(filled < most, filled, most)


def _entry(array: ArrayHandle, group: Register) -> Register:
    return ptx.load(s32, ptx.addr(array.pointer() + group.to(u64) * s32.bytes))


def running_sums(
    sums: smem.SharedArray, count: Register, of: Callable[[Register], Register], at_once: int = 1
) -> None:  # fmt: skip
    """Prefix sums by one whole warp: sums[0] is 0, sums[i + 1] = sums[i] + of(i). `of` must return 0 from `count` on,
    and is called by all lanes, for `at_once` times 32 groups before these are added up."""
    lane, total = ptx.special.tid.x(), reg.scalar(u32, init=0)
    with ptx.if_(lane == 0):
        ptx.store(sums[0], total)
    for first in ptx.range(0, count, at_once * WARP):
        groups = [first + lane + chunk * WARP if chunk else first + lane for chunk in range(at_once)]
        for group, sum_ in [(group, of(group)) for group in groups]:
            for step in (1, 2, 4, 8, 16):
                below = reg.scalar(u32)
                ptx.inst.shfl.sync.up.b32(below, sum_, step, 0, -1)
                sum_ += ptx.select(lane >= step, below, 0)
            sum_ += total
            with ptx.if_(group < count):
                ptx.store(sums[group + 1], sum_)
            ptx.inst.shfl.sync.idx.b32(total, sum_, WARP - 1, WARP - 1, -1)


class Groups:
    """The tiles of all groups; see the module's docstring.

    Args:
        limits: the row range of each group in A and D.
        D: its columns are those of every group.
        tile: (m, n) of a CTA.
        at_once: with limits in global memory, read those of so many times 32 groups before adding up any.
    """

    at_once = 1

    def __init__(self, limits: Limits, D: Sized, tile: tuple[int, int], at_once: int = 1) -> None:
        self.limits, self.tile, self.at_once, self.height = limits, tile, at_once, D.shape[0].view(s32)
        self.count = limits.count
        self.columns = (D.shape[1] + (tile[1] - 1)) // tile[1]
        self.before = smem.array(u32, MOST_GROUPS + 1, name="rows_before")

    def initialise(self) -> None:
        """Add up the row tiles in warp 0; the CTA must synchronise before `tiles`."""
        with ptx.if_(ptx.special.tid.x() < WARP):
            running_sums(self.before, self.count, self._rows, self.at_once)

    def _rows(self, group: Register) -> Register:
        """The number of row tiles of a group; 0 after the last group."""
        if self.at_once > 1:  # without a branch, so that nothing waits for a load before the next one
            inside = group < self.count
            return ptx.select(inside, self._tiles_of(ptx.select(inside, group, 0)), 0)
        rows = reg.scalar(u32, init=0)
        with ptx.if_(group < self.count):
            rows.set(self._tiles_of(group))
        return rows

    def _tiles_of(self, group: Register) -> Register:
        begin, end = self._bounds(group)
        length = ptx.select(end > begin, end - begin, 0)
        return (length.view(u32) + (self.tile[0] - 1)) // self.tile[0]

    def _bounds(self, group: Register) -> tuple[Register, Register]:
        """A group's rows, clamped to D."""
        begin, end = self.limits.of(group)
        return ptx.select(begin > 0, begin, 0), ptx.select(end < self.height, end, self.height)

    def holding(self, row: Register) -> Register:
        """The group that contains row tile `row`, by binary search."""
        low, high = reg.scalar(u32, init=0), self.count.copy()
        with ptx.while_(lambda: high - low > 1):
            middle = (low + high) >> 1
            beyond = ptx.load(u32, self.before[middle]) > row
            high.set(ptx.select(beyond, middle, high))
            low.set(ptx.select(beyond, low, middle))
        return low

    def tiles(self, first: int = 0, every: int = 1) -> Iterator[GroupTileCoord]:
        """This CTA's tiles: every n-th of all tiles; of these, every `every`-th from the tile `first`."""
        group, before = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
        total = ptx.load(u32, self.before[self.count]) * self.columns
        start, step = ptx.special.ctaid.x(), ptx.special.nctaid.x()
        if every > 1:
            start, step = start + first * step, every * step
        for number in ptx.range(start, total, step):
            after = self._walk(group, before, number)
            rows, inside = after - before, number - before * self.columns
            begin, end = self._bounds(group)
            row = begin.view(u32) + inside % rows * self.tile[0]
            yield GroupTileCoord(row, inside // rows * self.tile[1], end.view(u32), group)

    def _walk(self, group: Register, before: Register, number: Register) -> Register:
        """Move `group` forward to the group of tile `number`. Returns the row tiles up to its end; `before` becomes
        those before it."""
        after = ptx.load(u32, self.before[group + 1])
        with ptx.while_(lambda: after * self.columns <= number):
            before.set(after)
            group += 1
            after.set(ptx.load(u32, self.before[group + 1]))
        return after
