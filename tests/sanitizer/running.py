"""Run small kernels with the sanitizer on."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from warploom import asm
from warploom.emulator import api
from warploom.emulator.diagnosis.report import Report
from warploom.emulator.machine.events import Observer
from warploom.emulator.machine.finding import Finding
from warploom.emulator.machine.machine import Machine
from warploom.emulator.program.code import Codes
from warploom.errors import EmulationError
from warploom.sanitizer import Sanitizer
from warploom.sanitizer.rules import Example
from warploom.sanitizer.rules.schema import DATA_BYTES

SCHEDULES = [("lazy", 0), ("eager", 0), ("random", 0), ("random", 1), ("random", 2), ("starve", 0), ("starve", 1)]


def fresh(text: str) -> Codes:
    """The kernel of an example, not run yet."""
    return Codes(asm.parse(text, name="example.ptx"))


kept = lru_cache(maxsize=256)(fresh)
"""The same for run after run."""


def run(
    example: Example, schedule: str = "lazy", seed: int = 0, ready: Codes | None = None,
    watch: Callable[[Machine], Observer] = Sanitizer,
) -> Report:  # fmt: skip
    """Emulate an example with checking, or with another observer."""
    data = np.arange(DATA_BYTES // 4, dtype=np.uint32)
    mine, *others = ([data, *([] if example.devices == 1 else [np.uint32(gpu)])] for gpu in range(example.devices))
    return api.run(
        ready or kept(example.text()), "k", mine, others=others, owners={id(data): 0}, calls=example.calls,
        grid=(example.grid or example.cluster, 1, 1), block=(example.threads, 1, 1), cluster=(example.cluster, 1, 1),
        detailed=True, watch=[watch], schedule=schedule, seed=seed,
    )  # fmt: skip


def findings(example: Example, schedule: str = "lazy", seed: int = 0) -> list[Finding]:
    """What is found, also where the machine then stops with an error of its own."""
    try:
        return run(example, schedule, seed).findings
    except EmulationError as error:
        return list(error.findings)  # type: ignore[arg-type]


def rules(example: Example, schedule: str = "lazy", seed: int = 0) -> set[str]:
    return {finding.rule for finding in findings(example, schedule, seed)}
