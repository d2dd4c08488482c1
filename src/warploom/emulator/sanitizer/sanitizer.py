"""The whole sanitizer, as the machine's observer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report import Finding
from .findings import at
from .performance import Performance
from .undefined import undefined_reads

if TYPE_CHECKING:
    from ..machine import Machine


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
