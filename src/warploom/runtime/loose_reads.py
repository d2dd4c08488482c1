"""Loads that race with a store, if no memory that the kernel leaves behind depends on the loaded value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import EmulationError
from .unwritten import same_arrays

if TYPE_CHECKING:
    from ..emulator.diagnosis.report import Report
    from ..sanitizer.loose_reads import Reads

RULES = ("global-data-race", "global-lane-race")
UNUSED = "further runs with other values there gave the same results: nothing that is stored depends on the value"


def unused_reads(report: Report, reads: Reads, again: Iterable[Report]) -> Report:
    """The report with warnings instead of errors for such loads.

    reads: empty if a race is not between a load and a store; again: runs with other values in these loads, each
    created when it is requested.
    """
    racing = [finding for finding in report.findings if finding.rule in RULES and finding.severity == "error"]
    if not racing or not reads:
        return report
    try:
        unused = all(same_arrays(report, other) for other in again)
    except EmulationError:
        return report
    if unused:
        milder = [replace(one, severity="warning", notes=(*one.notes, ("but", UNUSED))) for one in racing]
        rest = [finding for finding in report.findings if finding not in racing]
        errors = sum(finding.severity == "error" for finding in rest)
        report.findings = [*rest[:errors], *milder, *rest[errors:]]
    return report
