"""Reads of values that nothing has written, if nothing that the kernel stores depends on them.

Kernels read whole tiles whose last rows were never loaded, and never store the results of those rows. The upper lanes
of a reduction get values of inactive lanes. The values cannot show this while the kernel runs, so it runs again with
other bytes in their place. If the arrays are the same afterwards, they do not depend on those bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..errors import EmulationError

if TYPE_CHECKING:
    from ..emulator.diagnosis.report import Report

RULES = ("uninitialised-operand", "uninitialised-shared-read", "shuffle-from-absent-lane")
OTHER_BYTES = bytes.fromhex("3c3c3c3cbcbcbcbc")
"""Finite in every format, of both signs; by default all bits are set, which is NaN in every format."""


def settled(report: Report, again: Callable[[], Report]) -> Report:
    """The report without findings of `RULES` if nothing depends on what was read; `again` runs with OTHER_BYTES."""
    rest = [finding for finding in report.findings if finding.rule not in RULES]
    if len(rest) == len(report.findings):
        return report
    try:
        other = again()
    except EmulationError:
        return report
    if same_arrays(report, other):
        report.findings = rest
    return report


def same_arrays(first: Report, second: Report) -> bool:
    """True if two runs have left the same bytes."""
    return all(
        np.ascontiguousarray(mine).tobytes() == np.ascontiguousarray(theirs).tobytes()
        for mine, theirs in zip(first.outputs, second.outputs, strict=True)
    )
