"""The cp.async copies of a warp that no wait has proven complete, with the lanes that issued and committed them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...emulator.machine.async_operation import AsyncOperation
from ...emulator.machine.registers import WARP


@dataclass(eq=False)
class Group:
    """Copies committed together by some lanes of a warp."""

    lanes: np.ndarray
    operations: tuple[AsyncOperation, ...]

    @property
    def done(self) -> bool:
        return all(operation.done for operation in self.operations)


@dataclass(eq=False)
class WarpCopies:
    """The copies of one warp that nobody has proven complete: not yet committed ones with their lanes, and groups."""

    open: list[tuple[AsyncOperation, np.ndarray]] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def commit(self, lanes: np.ndarray) -> None:
        """Make a group of what these lanes have not committed yet; it may be empty."""
        mine = tuple(operation for operation, issued in self.open if (issued & lanes).any())
        left = [(operation, issued & ~lanes) for operation, issued in self.open]
        self.open = [(operation, issued) for operation, issued in left if issued.any()]
        self.groups.append(Group(lanes.copy(), mine))

    def older_than(self, newest: int, lanes: np.ndarray) -> list[Group]:
        """The groups that must be complete for each of these lanes to have at most `newest` pending ones."""
        seen = np.zeros(WARP, np.int64)
        found = []
        for group in reversed(self.groups):
            if (group.lanes & lanes & (seen >= newest)).any():
                found.append(group)
            seen += group.lanes
        return found

    def forget(self) -> None:
        """Drop the oldest groups that are complete."""
        while self.groups and self.groups[0].done:
            self.groups.pop(0)

    def in_flight(self, lanes: np.ndarray) -> tuple[AsyncOperation, ...]:
        """All copies that these lanes issued and that are not done."""
        mine = [operation for operation, issued in self.open if (issued & lanes).any()]
        mine += [operation for group in self.groups if (group.lanes & lanes).any() for operation in group.operations]
        return tuple(operation for operation in mine if not operation.done)
