"""Legal but slow code: bank conflicts, requests that access too many sectors, fences that order nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.machine.counters import Site
from ...emulator.machine.events import Observer
from ...emulator.machine.finding import Finding
from ...isa.effects import Fences
from ...plural import counted
from ..report.findings import at

if TYPE_CHECKING:
    import numpy as np

    from ...emulator.machine.frame import Frame
    from ...emulator.machine.operation import Operation
    from ..context import Context

CONFLICTS = 0.5
"""Extra passes for each request from which bank conflicts of an instruction are reported."""
SECTORS = 2.0
"""Multiple of the fewest possible sectors from which a global access is reported."""
FEWEST = 8
"""Requests below which an instruction is not reported."""


class Performance(Observer):
    """See the module's docstring."""

    rules = ("bank-conflict", "uncoalesced-access", "redundant-proxy-fence")

    def __init__(self, context: Context) -> None:
        self.context = context
        self._fences: dict[Operation, tuple[int, int]] = {}

    def fenced(self, frame: Frame, places: np.ndarray | None) -> None:
        for effect in frame.operation.effects:
            if not isinstance(effect, Fences) or effect.kind != "proxy:async" or effect.spaces == "global":
                continue
            for clock, mask in self.context.state(frame.cta).active(frame):
                seen, idle = self._fences.get(frame.operation, (0, 0))
                self._fences[frame.operation] = (seen + 1, idle + (not clock.has_news(mask)))

    def report(self) -> list[Finding]:
        """Turn the counts into findings, one for each line of the user's text."""
        by_line: dict[object, tuple[Operation, Site]] = {}
        for pc, site in self.context.machine.counters.sites.items():
            code = self.context.machine.code.operations[pc]
            key = (code.instruction.location or pc, code.instruction.opcode)
            _, total = by_line.setdefault(key, (code, Site()))
            total.add(site)
        for code, site in by_line.values():
            self._judge(code, site)
        for code, (seen, idle) in self._fences.items():
            if idle == seen:
                self.context.findings.add(
                    "redundant-proxy-fence",
                    f"{at(code)} was executed by {counted(seen, 'warp')} and ordered nothing: there was no "
                    "memory access since the previous fence",
                    (code,),
                )
        return []

    def _judge(self, code: Operation, site: Site) -> None:
        if site.requests < FEWEST:
            return
        extra = site.conflicts / site.requests
        if extra >= CONFLICTS:
            self.context.findings.add(
                "bank-conflict",
                f"{at(code)} takes {site.conflicts} extra passes in {site.requests} requests of a warp, "
                f"{extra:.1f} each",
                (code,),
            )
        fewest = max(-(-site.bytes // 32), site.requests)  # a request of one lane accesses a sector too
        if site.sectors > SECTORS * fewest:
            self.context.findings.add(
                "uncoalesced-access",
                f"{at(code)} accesses {counted(site.sectors, 'sector')} of 32 bytes for {site.bytes} bytes, "
                f"{site.sectors / site.requests:.1f} in each of {site.requests} requests of a warp; "
                f"{fewest} would suffice",
                (code,),
            )
