"""The texts nvcc made of the CUDA C++ in `nvcc/`, and how a test runs one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.foreign.compile_cuda import FOLDER, TARGETS
from warploom.emulator.diagnosis.report import Report
from warploom.runtime import emulate


def text(name: str, target: str) -> str:
    return (FOLDER / f"{name}_{target.replace('_', '')}.ptx").read_text()


def targets_of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("target", TARGETS[name])


def run(
    name: str,
    target: str,
    entry: str,
    *arguments: Any,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: int = 32,
    known: frozenset[str] = frozenset(),
    **options: Any,
) -> Report:
    """Emulate one kernel of a text; Python integers go by value as s32, arrays are written in place.

    The sanitizer is on and may report only the rules in `known`.
    """
    values = [np.int32(value) if isinstance(value, int) else value for value in arguments]
    report = emulate(text(name, target), *values, entry=entry, grid=grid, block=(block, 1, 1), check=True, **options)
    found = [finding for finding in report.findings if finding.severity != "performance"]
    assert {finding.rule for finding in found} == known, "\n".join(map(str, found))
    return report
