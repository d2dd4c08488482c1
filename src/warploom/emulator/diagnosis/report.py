"""The result of an emulation: counters, findings, outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...errors import EmulationError
from ...plural import counted
from ..machine.counters import Counters
from ..machine.finding import Finding


@dataclass(frozen=True)
class Interleavings:
    """The result of a search over interleavings.

    Attributes:
        complete: True if all were searched. A search that found an error, or reached its bound, is incomplete.
        count: the number of interleavings, if known.
        states, runs: the number of states with a choice that were visited, and of runs of the kernel.
        steps: the shortest bad interleaving, a line for each choice; findings: its findings.
    """

    complete: bool
    count: int | None
    states: int
    runs: int
    bound: int
    steps: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if self.findings:
            shown = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.steps, 1))
            choices = counted(len(self.steps), "choice")
            return f"a bad interleaving of {choices}, the shortest there is:\n{shown}" + (
                "" if self.complete else f"\n  (the shortest one seen in {self.runs} runs)"
            )
        runs = f"{self.states} states, {counted(self.runs, 'run')}"
        if not self.complete:
            return (
                f"the search is incomplete: no bad interleaving in {self.runs} runs, but the bound of {self.bound} was "
                "reached with others untried (use a larger bound, or a smaller grid and fewer steps)"
            )
        number = f"all {self.count:,} interleavings pass" if self.count != 1 else "the only interleaving passes"
        return f"{number} ({runs})" if self.count is not None else f"all interleavings pass ({runs})"


@dataclass
class Report:
    """The result of an emulation. It prints as one line, followed by a line for each finding.

    Attributes:
        outputs: the arrays passed as arguments, updated.
        findings: empty for a kernel that was clean under this schedule.
        schedule, seed: the schedule that ran; the same pair replays it.
        launch: grid, block, cluster.
        explored: with schedule "explore", the pairs that were run before this one was chosen.
        interleavings: with schedule "exhaustive", the result of the search.
        printed: what the kernel printed, one entry for each call.
    """

    entry: str
    outputs: tuple[np.ndarray, ...] = field(default=(), repr=False)
    findings: list[Finding] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    schedule: str = "lazy"
    seed: int = 0
    seconds: float = 0.0
    launch: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    explored: tuple[tuple[str, int], ...] = ()
    error: EmulationError | None = None
    interleavings: Interleavings | None = None
    printed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no finding has severity error."""
        return not any(finding.severity == "error" for finding in self.findings)

    def __str__(self) -> str:
        count = len(self.findings)
        found = counted(count, "finding") if count else "no findings"
        ctas, instructions = self.counters.ctas, self.counters.instructions
        first = (
            f"{self.entry}: {found}; {counted(ctas, 'CTA')}, {instructions} warp instructions, "
            f"schedule {self.schedule}, seed {self.seed}"
        )
        return "\n".join([first, *(f"  {finding}" for finding in self.findings)])

    def raise_on_findings(self) -> Report:
        """Raise the first error-level finding; return the report if there is none."""
        if self.error is not None:
            raise self.error
        for finding in self.findings:
            if finding.severity == "error":
                raise EmulationError(str(finding), where=finding.locations[0] if finding.locations else None)
        return self
