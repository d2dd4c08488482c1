"""The whole sanitizer, as the machine's observer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..emulator.diagnosis.report import Finding
from .checkers.performance import Performance
from .checkers.uninitialised import undefined_reads
from .report.findings import at

if TYPE_CHECKING:
    from ..emulator.machine.machine import Machine


class Sanitizer(Performance):
    """Watches one emulation; see the package's docstring. `report()` when it is over."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        for code, name in undefined_reads(machine.code):
            self.findings.add(
                "uninitialised-register",
                f"{at(code)} reads {name}, and no instruction in front of it writes that register, whichever way the "
                "kernel takes",
                (code,),
            )

    def report(self) -> list[Finding]:
        """All findings, errors first."""
        self.judge_performance()
        return self.findings.as_list()
