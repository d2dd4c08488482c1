"""What an emulation gives back: counters, findings, outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...errors import EmulationError
from ..machine.counters import Counters
from ..machine.finding import Finding


@dataclass(frozen=True)
class Interleavings:
    """What a search found.

    Attributes:
        complete: whether all was searched; a search that found something bad, or reached its bound, is not.
        count: how many interleavings there are, where that is known.
        states, runs: states with a choice that were seen, and runs of the kernel.
        steps: the shortest bad interleaving, a line for each choice; findings: what is bad in it.
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
            choices = f"{len(self.steps)} choice{'s' if len(self.steps) != 1 else ''}"
            return f"a bad interleaving of {choices}, the shortest there is:\n{shown}" + (
                "" if self.complete else f"\n  (the shortest of those that {self.runs} runs met)"
            )
        runs = f"{self.states} states, {self.runs} run{'s' if self.runs != 1 else ''}"
        if not self.complete:
            return (
                f"the search is incomplete: no bad interleaving in {self.runs} runs, but the bound of {self.bound} was "
                "reached and others are left to try (a larger bound, or a smaller grid and fewer steps)"
            )
        number = f"all {self.count:,} interleavings pass" if self.count != 1 else "the only interleaving passes"
        return f"{number} ({runs})" if self.count is not None else f"all interleavings pass ({runs})"


@dataclass
class Report:
    """The result of an emulation; printed, it is one line and a line for each finding.

    Attributes:
        outputs: the arrays passed as arguments, updated.
        findings: empty for a kernel that was clean under this schedule.
        schedule, seed: with which it ran; the same pair replays it.
        launch: grid, block, cluster.
        explored: the pairs that were run before this one was chosen, with schedule "explore".
        interleavings: what a search of all of them found, with schedule "exhaustive".
        printed: what the kernel printed, call by call.
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
        """Whether there is no finding of severity error."""
        return not any(finding.severity == "error" for finding in self.findings)

    def __str__(self) -> str:
        count = len(self.findings)
        found = f"{count} finding{'s' if count != 1 else ''}" if count else "no findings"
        ctas, instructions = self.counters.ctas, self.counters.instructions
        first = (
            f"{self.entry}: {found}; {ctas} CTA{'s' if ctas != 1 else ''}, {instructions} warp instructions, "
            f"schedule {self.schedule}, seed {self.seed}"
        )
        return "\n".join([first, *(f"  {finding}" for finding in self.findings)])

    def raise_on_findings(self) -> Report:
        """Raise the first error-level finding; give back the report where there is none."""
        if self.error is not None:
            raise self.error
        for finding in self.findings:
            if finding.severity == "error":
                raise EmulationError(str(finding), where=finding.locations[0] if finding.locations else None)
        return self
