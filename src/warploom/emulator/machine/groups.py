"""Groups of asynchronous operations: what a thread commits together and waits for. PTX ISA 9.7.9.25.1.1, 9.7.15.7.

Copies belong to threads, MMAs to warps; one data structure serves all of them. It keeps the lanes of each
operation as a 32-bit mask, and drops a group when waits have proven it to each of its lanes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from ...isa.instructions.table import GROUP_FAMILIES
from .async_operation import AsyncOperation
from .frame import Frame
from .machine import FULL, Cta
from .slots import Slot

Issued = tuple[AsyncOperation, int]
"""An operation and the lanes it belongs to."""


@dataclass(slots=True)
class Group:
    """Operations that some lanes committed together.

    `lanes`: those to which no wait has proven it complete; `unread`: those to which no wait has proven it read.
    """

    lanes: int
    operations: list[Issued]
    unread: int


@dataclass(eq=False)
class Groups:
    """The operations of one warp and one family: the uncommitted ones, and the groups, oldest first."""

    open: list[Issued] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def equals(self, other: Groups) -> bool:
        """True if two warps have the same operations in the same groups, as is usual in a warpgroup."""
        return self.open == other.open and self.groups == other.groups

    def add(self, operation: AsyncOperation, lanes: int) -> None:
        """Record an operation that these lanes have issued."""
        self.open.append((operation, lanes))

    def commit(self, lanes: int) -> list[Issued]:
        """Commit everything that these lanes have not committed to a group, which may be empty."""
        if not self.open:
            mine: list[Issued] = []
        elif lanes == FULL:
            mine, self.open = self.open, []
        else:
            mine = [(operation, held & lanes) for operation, held in self.open if held & lanes]
            self.open = [(operation, held & ~lanes) for operation, held in self.open if held & ~lanes]
        self.groups.append(Group(lanes, mine, lanes))
        return mine

    def pending(self, newest: int, lanes: int, reads_only: bool = False) -> list[AsyncOperation]:
        """The operations that must finish for each of these lanes to have at most `newest` unfinished groups."""
        return [
            operation
            for group, mine in self._older(newest, lanes)
            for operation, held in group.operations
            if held & mine and not (operation.read_done if reads_only else operation.done)
        ]

    def prove(self, newest: int, lanes: int, reads_only: bool = False) -> list[Issued]:
        """A wait has passed: the operations that it proves complete (`reads_only`: read) to these lanes."""
        proven = []
        for group, mine in self._older(newest, lanes):
            if reads_only:
                mine &= group.unread
                group.unread &= ~mine
            else:
                group.lanes &= ~mine
            if mine:
                proven += [(operation, held & mine) for operation, held in group.operations if held & mine]
        if not reads_only:
            self.groups = [group for group in self.groups if group.lanes]
        return proven

    def in_flight(self, lanes: int) -> list[AsyncOperation]:
        """All operations of these lanes that are not complete, committed or not."""
        every = [*self.open, *(one for group in self.groups for one in group.operations)]
        return [operation for operation, held in every if held & lanes and not operation.done]

    def _older(self, newest: int, lanes: int) -> list[tuple[Group, int]]:
        """The groups older than the `newest` of each of these lanes, and the lanes for which they are."""
        groups = self.groups
        if all(group.lanes & lanes == lanes for group in groups):
            return [(group, lanes) for group in groups[: max(len(groups) - newest, 0)]]
        seen = [0] * 32
        found = []
        for group in reversed(groups):
            mine = group.lanes & lanes
            older = 0
            for lane in range(32):
                if mine >> lane & 1:
                    if seen[lane] >= newest:
                        older |= 1 << lane
                    seen[lane] += 1
            if older:
                found.append((group, older))
        return found[::-1]

    def digest(self) -> Hashable:
        left = list(self.groups)
        while left and all(operation.done for operation, _ in left[0].operations):
            left.pop(0)
        return (_digests(self.open), tuple((group.lanes, _digests(group.operations)) for group in left))


def _digests(issued: list[Issued]) -> Hashable:
    return tuple((operation.digest(), lanes) for operation, lanes in issued)


class GroupStates:
    """The groups of one family in a CTA, by warp."""

    def __init__(self, cta: Cta) -> None:
        self.warps = [Groups() for _ in cta.warps]

    def digest(self) -> Hashable:
        return tuple(groups.digest() for groups in self.warps)


FAMILIES = {family: Slot(f"groups of {family}", GroupStates) for family in GROUP_FAMILIES}


def neighbours(family: str, frame: Frame) -> list[int]:
    """Number of leading warps of a frame that have the same operations in the same groups."""
    books = FAMILIES[family].of(frame.cta).warps[frame.first_warp : frame.first_warp + frame.warps]
    counts, first = [0], books[0]
    for book in books:
        if not book.equals(first):
            counts.append(0)
            first = book
        counts[-1] += 1
    return counts


def groups_of(family: str, cta: Cta, warp: int) -> Groups:
    """The groups of a warp; `family` as in the rows of the instruction table."""
    return FAMILIES[family].of(cta).warps[warp]
