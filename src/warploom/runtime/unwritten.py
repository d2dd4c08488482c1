"""Reads of values that nothing has written, if nothing that the kernel stores depends on them.

Kernels read whole tiles whose last rows were never loaded, and never store the results of those rows. The upper lanes
of a reduction get values of inactive lanes. The values cannot show this while the kernel runs, so it runs again with
other bytes in their place. If the arrays are the same afterwards, they do not depend on those bytes. A maximum ignores
NaN and all that is smaller, a minimum all that is larger, so each value is large once and once large and negative.
If the arrays differ, the result is undefined, and the finding is an error.
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
OTHERS = (bytes.fromhex("7b7b7b7bfbfbfbfb"), bytes.fromhex("fbfbfbfb7b7b7b7b"))
"""Finite and large in every format, of both signs; by default all bits are set, which is NaN in every format."""


USED = "with other bytes there the kernel leaves other arrays"


def settled(report: Report, again: Callable[[bytes], Report]) -> Report:
    """The report without findings of `RULES` if nothing depends on what was read, else with them as errors.

    again: runs with other bytes.
    """
    rest = [finding for finding in report.findings if finding.rule not in RULES]
    if len(rest) == len(report.findings):
        return report
    try:
        unused = all(same_arrays(report, again(other)) for other in OTHERS)
    except EmulationError:
        unused = False
    report.findings = rest if unused else sorted(map(_used, report.findings), key=lambda one: one.severity != "error")
    return report


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
