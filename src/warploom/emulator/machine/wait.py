"""Why threads are stalled, and what lets them continue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False, slots=True)
class Wait:
    """Threads wait after an instruction has started, or (`parked`) before it.

    Warps that execute an instruction as one (`Operation.together`) have one wait, and `resume` or `timeout` runs once
    for all of them that are adjacent then.

    Attributes:
        kind: what they wait for, in one word.
        ready: True if they may continue; called again only after the machine made progress.
        describe: one sentence for the deadlock report: what they wait for, what has arrived, what is missing.
        resume: called when they continue, with the frame and mask of the blocked instruction.
        timeout: for waits that hardware ends after a while (try_wait): called instead of `resume` when nothing else in
            the machine can run.
        about: the barriers they wait for, each with the parity they name or None, for the deadlock report.
        parked: the instruction has not been executed: threads that reach it later join them.
        spins: they read something repeatedly, so a plain store may end the wait.
    """

    kind: str
    ready: Callable[[], bool]
    describe: Callable[[], str]
    resume: Callable[[Any], None] | None = None
    timeout: Callable[[Any], None] | None = None
    about: Callable[[], list[tuple[object, int | None]]] | None = None
    parked: bool = False
    spins: bool = False

    @property
    def joins(self) -> bool:
        """True if threads that reach the same instruction join those that wait."""
        return self.parked and not self.spins
