"""`assert_clean`: a test fails, with the report, if a kernel does anything wrong under the test's arguments.

`exhaustive`: checks a small kernel under all interleavings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..emulator.diagnosis.report import Interleavings
from ..emulator.schedule.exhaustive import BOUND
from ..errors import ArgumentError
from ..runtime import emulate, program_of
from ..sanitizer.report.rendering import Sources
from .checked import Checked, check_emulated

SEVERITIES = ("error", "warning", "performance")


def exhaustive(kernel: Any, *arguments: Any, bound: int = BOUND, **options: Any) -> Interleavings:
    """Try all interleavings of a small kernel, in at most `bound` runs; arguments and options as in `assert_clean`.

    For skeletons of a protocol: barriers and asynchronous operations, a few tiles, one warp for each role. Data do not
    matter. The result is `ok`, and `complete` if nothing was left to try; it prints as "all N interleavings pass", or
    shows the shortest failing one. Interleavings differ only in what threads can observe: they run alone up to their
    next barrier, wait, atomic or strong access, and warps at one instruction move together.
    """
    report = emulate(kernel, *arguments, schedule="exhaustive", bound=bound, **options)
    assert report.interleavings is not None
    return report.interleavings


def assert_clean(
    kernel: Any,
    *arguments: Any,
    explore: bool = False,
    least: str = "error",
    allow: tuple[str, ...] = (),
    **options: Any,
) -> Checked:
    """Emulate a kernel with all checks on, and raise AssertionError with the whole report if there are findings.

    Args:
        kernel: a kernel, a Program, PTX text or the path of a file.
        arguments: as in `warploom.emulate`.
        explore: try several schedules, the simplest first, instead of only the default one.
        least: the lowest severity that fails: "error", "warning" or "performance".
        allow: ids of rules that do not fail.
        options: grid, block, schedule, seed, machine, … as in `warploom.emulate`.

    The outputs are written as usual; the result has counters, schedule and less severe findings.
    """
    __tracebackhide__ = True
    if least not in SEVERITIES:
        raise ArgumentError(f"unknown severity {least!r}", expected=", ".join(SEVERITIES), code="unknown-name")
    if explore:
        options.setdefault("schedule", "explore")
    program = program_of(kernel, entry=options.get("entry"))
    checked = check_emulated(kernel, program, arguments, **options)
    failing = SEVERITIES[: SEVERITIES.index(least) + 1]
    bad = [one for one in checked.findings if one.severity in failing and one.rule not in allow]
    if bad:
        checked.findings = bad
        file = getattr(getattr(kernel, "function", None), "__code__", None)
        folders = [Path(file.co_filename).parent] if file is not None else []
        sources = Sources(folders, {program.title: program.text})
        again = f'schedule="{checked.schedule}", seed={checked.seed}'
        raise AssertionError(f"{program.title} is not clean\n\n{checked.text(sources)}\n  to reproduce it: {again}")
    return checked
