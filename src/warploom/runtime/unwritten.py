"""Reads of values that nothing has written, if nothing that the kernel stores depends on them.

Kernels read whole tiles whose last rows were never loaded, and never store the results of those rows. The upper lanes
of a reduction get values of inactive lanes. A compiler moves the first turn of a loop in front of it, with its load of
tensor memory, which no product has written where the loop makes no turn. The values cannot show this while the kernel
runs, so it runs again with other bytes in their place. If the arrays are the same afterwards, they do not depend on
those bytes. A maximum ignores NaN and all that is smaller, a minimum all that is larger, so each value is large once
and once large and negative. If the arrays differ, the result is undefined, and the finding is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import EmulationError

if TYPE_CHECKING:
    from ..emulator.diagnosis.report import Report
    from ..emulator.machine.finding import Finding

RULES = ("uninitialised-operand", "uninitialised-shared-read", "shuffle-from-absent-lane")
SOFTENED = {"tensor-memory-uninitialised": "tcgen05.ld"}
"""Errors of the first run that become warnings if nothing depends on them, except in strict mode; and of which
instructions. Of a scale factor that is missing in a quarter of the lanes the emulator's products do not depend."""
OTHERS = (bytes.fromhex("7b7b7b7bfbfbfbfb"), bytes.fromhex("fbfbfbfb7b7b7b7b"))
"""Finite and large in every format, of both signs; by default all bits are set, which is NaN in every format."""

USED = "a second run with other bytes there gave other results"
UNUSED = "a second run with other bytes there gave the same results: nothing that is stored depends on the value"


def settled(report: Report, again: Callable[[bytes], Report], strict: bool = False) -> Report:
    """The report without findings of `RULES` if nothing depends on what was read, else with them as errors.

    Those of `SOFTENED` are warnings if nothing depends on them, unless `strict`. again: runs with other bytes.
    """
    if not any(_is_open(finding, strict) for finding in report.findings):
        return report
    try:
        unused = all(same_arrays(report, again(other)) for other in OTHERS)
    except EmulationError:
        unused = False
    if unused:
        rest = (finding for finding in report.findings if finding.rule not in RULES)
        found = [_milder(finding) if _is_open(finding, strict) else finding for finding in rest]
    else:
        found = [_used(finding) for finding in report.findings]
    report.findings = sorted(found, key=lambda one: one.severity != "error")
    return report


def _is_open(finding: Finding, strict: bool) -> bool:
    """True if a second run decides about the finding."""
    if finding.rule in RULES:
        return True
    opcode = SOFTENED.get(finding.rule)
    if opcode is None or finding.severity != "error" or strict:
        return False
    return any(opcode in side.text for side in finding.sides)


def _milder(finding: Finding) -> Finding:
    return replace(finding, severity="warning", notes=(*finding.notes, ("but", UNUSED)))


def _used(finding: Finding) -> Finding:
    """The finding as an error, if it is of `RULES`."""
    if finding.rule not in RULES or finding.severity == "error":
        return finding
    return replace(finding, severity="error", notes=(*finding.notes, ("shows", USED)))


def same_arrays(first: Report, second: Report) -> bool:
    """True if two runs have left the same bytes."""
    return all(
        np.ascontiguousarray(mine).tobytes() == np.ascontiguousarray(theirs).tobytes()
        for mine, theirs in zip(first.outputs, second.outputs, strict=True)
    )
