"""The whole sanitizer, as an observer of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..emulator.machine.events import Observer
from .checkers import CHECKERS
from .context import Context
from .happens_before.entry import Entry
from .happens_before.order import Order

if TYPE_CHECKING:
    from ..emulator.machine.finding import Finding
    from ..emulator.machine.image import Image
    from ..emulator.machine.machine import Machine
    from .loose_reads import Reads


class Sanitizer(Observer):
    """Watches one emulation; see the package's docstring. Call `report()` when it has finished.

    Args:
        machine: the machine to watch.
        checkers: the checkers, in order; each is made from a `Context`. One with `only_with` is left out if no
            instruction begins with that word.
        strict: see `Context`.
    """

    def __init__(self, machine: Machine, checkers: Sequence[type] = CHECKERS, strict: bool = False) -> None:
        self.context = Context(machine, strict)
        used = machine.code.fact("opcodes", lambda: _opcodes(machine.code))
        self.checkers = [checker(self.context) for checker in checkers if getattr(checker, "only_with", "") in used]

    def listeners(self) -> Iterable[Observer]:
        heard = (checker for checker in self.checkers if not getattr(checker, "idle", False))
        return (Entry(self.context), *heard, Order(self.context))

    def loose_reads(self) -> Reads:
        """The loads of global memory that race with a store; none if another race was found."""
        return self.context.loose.reads()

    def report(self) -> list[Finding]:
        """All findings, errors first."""
        for checker in self.checkers:
            checker.report()
        return self.context.findings.as_list()


def _opcodes(code: Image) -> frozenset[str]:
    """The first words of a kernel's opcodes, and "" for checkers of every kernel."""
    return frozenset({"", *(operation.instruction.opcode.split(".")[0] for operation in code.operations)})
