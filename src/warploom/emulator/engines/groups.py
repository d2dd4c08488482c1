"""The groups in which a thread waits for its bulk stores. PTX ISA 9.7.9.25.1.1, 9.7.9.27.2.

A group belongs to one thread. Threads that never issued a bulk store have no groups and wait for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..machine.machine import Cta
from .engine import AsyncOperation


@dataclass(eq=False)
class ThreadGroups:
    """The bulk stores of one thread: those not committed yet, and the groups, oldest first."""

    open: list[AsyncOperation] = field(default_factory=list)
    groups: list[tuple[AsyncOperation, ...]] = field(default_factory=list)

    def commit(self) -> None:
        """Make a group of all that is not committed; it may be empty."""
        self.groups.append(tuple(self.open))
        self.open = []

    def needed(self, newest: int, reads_only: bool) -> list[AsyncOperation]:
        """What must still finish for at most the `newest` latest groups to be pending."""
        older = self.groups[: len(self.groups) - newest] if newest else self.groups
        return [
            operation
            for group in older
            for operation in group
            if not (operation.read_done if reads_only else operation.done)
        ]

    def forget(self) -> None:
        """Drop the oldest groups that are done."""
        while self.groups and all(operation.done for operation in self.groups[0]):
            self.groups.pop(0)


def groups_of(cta: Cta) -> dict[int, ThreadGroups]:
    """The book of each thread of a CTA that issued a bulk store, by linear thread number."""
    return cta.state.setdefault("bulk groups", {})  # type: ignore[return-value]


def note_store(cta: Cta, thread: int, operation: AsyncOperation) -> None:
    """Add a bulk store to the thread's open group."""
    groups_of(cta).setdefault(thread, ThreadGroups()).open.append(operation)
