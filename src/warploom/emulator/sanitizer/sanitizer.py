"""The whole sanitizer, as the machine's observer."""

from __future__ import annotations

from ..report import Finding
from .performance import Performance


class Sanitizer(Performance):
    """Watches one emulation; see the package's docstring. `report()` when it is over."""

    def report(self) -> list[Finding]:
        """All findings, errors first."""
        self.judge_performance()
        return self.findings.as_list()
