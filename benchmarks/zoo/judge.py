"""Judge whether a finding in a mutant identifies the bug: the right rule, at the right place.

The place is right if it is the changed instruction or one that depends on it; `sites` determines these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from warploom.errors import EmulationError

from .equivalents import reason
from .kernels import Subject
from .mutate import Mutant
from .sites import Sites

SCHEDULES = (
    ("lazy", 0), ("random", 0), ("starve", 1), ("eager", 0), ("starve", 4), ("random", 1), ("pct", 0), ("pct", 1),
)  # fmt: skip
"""The schedules under which a mutant is run until a right finding appears; the most effective come first."""
DEADLOCK = "DeadlockError"
UNORDERED = {"data-race", "generic-write-before-async-read", "generic-write-before-wgmma-read"}
ENTRY = {"operand-overwritten", "copy-not-waited", "overlapping-copies", "stale-phase-wait", "surplus-arrival"}
"""A stage that two users access at once, seen from either side."""
PROTOCOL = {DEADLOCK, "byte-count-mismatch", "bytes-in-later-phase", "phase-not-observed", *ENTRY}
"""Consequences of a barrier whose counts do not add up."""
TURN = {DEADLOCK, "InvalidOperandError"}
"""Consequences for a named barrier at which some arrive and one that should wait does not: they arrive twice."""
GLOBAL = {"global-data-race", "global-hand-off"}
MEETING = {"mbarrier-init-not-visible", "cta-may-not-have-started", "cta-may-have-exited", "data-race"}
"""Consequences if CTAs of a cluster do not synchronise before they access each other, or before they exit."""
RIGHT: dict[str, set[str]] = {
    "drop-proxy-fence": UNORDERED - {"data-race"} | {"generic-access-before-async-write", "cp-async-before-wgmma"},
    "drop-init-fence": {"mbarrier-init-not-visible"},
    "drop-wgmma-fence": {"missing-wgmma-fence"},
    "drop-fence": {"data-race"},
    "drop-commit": {"operand-overwritten", "wgmma-register-in-flight", "exit-with-pending-work",
                    "store-source-overwritten", "cp-async-not-waited"},
    "drop-wgmma-wait": {"operand-overwritten", "wgmma-register-in-flight", "exit-with-pending-work"},
    "drop-copy-wait": {"cp-async-not-waited", "exit-with-pending-work"},
    "drop-store-wait": {"store-source-overwritten", "exit-with-pending-work"},
    "drop-barrier": {*UNORDERED, *GLOBAL, "mbarrier-init-not-visible", "store-source-overwritten",
                     "operand-overwritten", "cp-async-not-waited", "warp-synchronous", "lane-race"},
    "drop-turn": {DEADLOCK},
    "drop-cluster-arrival": {DEADLOCK, "InvalidOperandError"},
    "drop-cluster-wait": {*MEETING, "InvalidOperandError"},
    "drop-cluster-barrier": {*MEETING, "InvalidOperandError"},
    "drop-grid-wait": {"before-grid-wait"},
    "drop-arrival": {DEADLOCK},
    "drop-expect": {"byte-count-mismatch"},
    "drop-wait": {*ENTRY, "data-race", "store-source-overwritten", "phase-not-observed"},
    "drop-wait-loop": {*ENTRY, "data-race", "store-source-overwritten", "phase-not-observed"},
    "flip-phase": {*ENTRY, "data-race", DEADLOCK},
    "change-bytes": {"byte-count-mismatch", "bytes-in-later-phase"},
    "change-count": {DEADLOCK, "phase-not-observed", *ENTRY},
    "wait-for-less": {"operand-overwritten", "wgmma-register-in-flight", "store-source-overwritten",
                      "exit-with-pending-work", "cp-async-not-waited"},
    "wait-for-reads-only": {"copy-to-global-not-complete"},
    "narrow-scope": {"hand-off-scope", "remote-arrival-scope"},
    "change-mask": {DEADLOCK, "byte-count-mismatch", "InvalidOperandError", "cta-may-have-exited"},
    "change-swizzle": {"layout-mismatch", "InvalidOperandError"},
    "next-stage": {*PROTOCOL, *UNORDERED, "OutOfBoundsError", "InvalidOperandError", "mbarrier-bytes-accessed",
                   "uninitialised-operand", "uninitialised-shared-read", "cp-async-not-waited",
                   "mbarrier-init-not-visible", "layout-mismatch"},
    "ring-length": {*PROTOCOL, *UNORDERED, "OutOfBoundsError", "InvalidOperandError", "mbarrier-bytes-accessed",
                    "uninitialised-operand", "uninitialised-shared-read", "cp-async-not-waited",
                    "mbarrier-init-not-visible", "layout-mismatch"},
    "release-before-wait": {"operand-overwritten", "exit-with-pending-work"},
    "wait-before-commit": {"operand-overwritten", "wgmma-register-in-flight"},
    "commit-too-early": {"operand-overwritten", "wgmma-register-in-flight", "exit-with-pending-work",
                         "store-source-overwritten", "cp-async-not-waited"},
}  # fmt: skip
"""The rules that correctly identify each mutation."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a mutant.

    Attributes:
        outcome: "found" by a right rule at a right place, "equivalent", or "missed".
        rule, schedule: the rule that found it, and the (schedule, seed).
        reason: for an equivalent mutant, the edge that makes it so.
        seen: for a missed mutant, what was found instead, with its places.
    """

    kernel: str
    kind: str
    site: str
    variant: int
    place: str
    what: str
    outcome: str
    rule: str = ""
    schedule: tuple[str, int] | None = None
    reason: str = ""
    seen: tuple[str, ...] = ()


class Healthy:
    """The unchanged kernel under each schedule: the findings, as (rule, lines), and the number of instructions."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.steps = 1000
        self._known: dict[tuple[str, int, int], frozenset[tuple[str, frozenset[int]]]] = {}

    def known(self, schedule: str, seed: int, problem: int) -> frozenset[tuple[str, frozenset[int]]]:
        """The kernel's findings under a schedule: only warnings, because it has no errors."""
        if (schedule, seed, problem) not in self._known:
            report = self.subject.run(schedule, seed, problem=problem)
            self.steps = max(self.steps, report.counters.instructions)
            found = {(finding.rule, _lines(self.subject, finding)) for finding in report.findings}
            self._known[schedule, seed, problem] = frozenset(found)
        return self._known[schedule, seed, problem]


def judge(subject: Subject, mutant: Mutant, sites: Sites, healthy: Healthy) -> Verdict:
    """Run a mutant under one schedule after the other until it is found."""
    right, places = RIGHT[mutant.kind], sites.of(mutant)
    turns = sites.turns(mutant) if mutant.kind == "drop-barrier" else set()
    line = mutant.instruction.ptx_line
    head = (subject.name, mutant.kind, mutant.site, mutant.variant, subject.lines.get(line, ""), mutant.what)
    seen: dict[str, None] = {}
    for (schedule, seed), problem in product(SCHEDULES, subject.problems):
        known = healthy.known(schedule, seed, problem)
        for rule, lines in _findings(subject, mutant, schedule, seed, problem, 40 * healthy.steps):
            if (rule, lines) in known:
                continue
            if rule in right and lines & places or rule in TURN and lines & turns:
                return Verdict(*head, "found", rule, (schedule, seed))
            seen[f"{rule} at {sorted(lines)}"] = None
    why = reason(subject.name, mutant)
    if why and not seen:
        return Verdict(*head, "equivalent", reason=why)
    return Verdict(*head, "missed", seen=tuple(seen))


def _findings(
    subject: Subject, mutant: Mutant, schedule: str, seed: int, problem: int, steps: int
) -> list[tuple[str, frozenset[int]]]:
    """(rule or error, PTX lines it names), without rules about speed."""
    stopped: list[tuple[str, frozenset[int]]] = []
    try:
        findings: Sequence[Any] = subject.run(schedule, seed, mutant.module, problem, max_steps=steps).findings
    except EmulationError as error:
        findings = error.findings
        stopped = [(type(error).__name__, lines_of(subject.name, str(error)))]
    return [
        (finding.rule, _lines(subject, finding)) for finding in findings if finding.severity != "performance"
    ] + stopped


def _lines(subject: Subject, finding: Any) -> frozenset[int]:
    return lines_of(subject.name, " ".join(map(str, finding.locations)))


def lines_of(name: str, text: str) -> frozenset[int]:
    """The PTX lines that a message names."""
    return frozenset(int(number) for number in re.findall(rf"{re.escape(name)}:(\d+)", text))
