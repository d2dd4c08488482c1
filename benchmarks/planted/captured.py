"""Bugs planted in launches that a program made on the mock runtime (`tests/outside/captured.py --keep FOLDER`).

The expected result is the memory that the unchanged text leaves under the same schedule. Different bytes are a wrong
result, unless the unchanged text itself leaves other bytes than under the first schedule: its atomics then determine
the order. Errors of the unchanged text do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tests.outside.captured import TEXTS
from tests.outside.captured_launch import STEPS, Launch, after_front, runs, text_of
from warploom import asm
from warploom.asm.nodes import Module
from warploom.emulator.diagnosis.report import Report
from warploom.emulator.machine.finding import Finding
from warploom.errors import EmulationError
from warploom.sanitizer.explore import EXPLORED
from warploom.testing import Checked
from warploom.testing.wrong_result import RULE as WRONG

EXPLORE = "explore"


@dataclass(frozen=True)
class CapturedText:
    """Like `texts.Text`, for one launch. path: its folder; source: the name of its program."""

    source: str
    name: str
    path: Path

    @cached_property
    def launch(self) -> Launch:
        return after_front(Launch.read(self.path), self.path, self._paths)

    @cached_property
    def _paths(self) -> list[Path]:
        return [Path(line) for line in self.path.with_name(TEXTS).read_text().splitlines()]

    @cached_property
    def module(self) -> Module:
        """The kernel alone."""
        return asm.parse(text_of(self.launch.entry, self._paths), name="text.ptx")

    def check(
        self, folder: Path, module: Module, schedule: str = "lazy", max_steps: int = STEPS, seed: int = 0
    ) -> Checked:
        """Run a changed text like `warploom check`."""
        checked = Checked(self.launch.entry, "emulated")
        for pair in EXPLORED if schedule == EXPLORE else [(schedule, seed)]:
            report, checked.findings = self._run(module, *pair, max_steps)
            checked.schedule, checked.seed = pair
            if report is not None:
                checked.counters = {"instructions": report.counters.instructions}
            if module is self.module:
                break
            known, right = self._itself(*pair)
            checked.findings = [one for one in checked.findings if one.severity != "error" or one.rule not in known]
            steady = right == self._itself(*EXPLORED[0])[1]
            if report is not None and steady and right != _memory(report):
                checked.findings.append(Finding(WRONG, "other bytes in memory than without the change"))
            if checked.errors:
                break
        return checked

    def _run(self, module: Module, schedule: str, seed: int, max_steps: int) -> tuple[Report | None, list[Any]]:
        try:
            report = runs(self.launch, module.to_text(), True, max_steps)(schedule, seed)
        except EmulationError as error:
            return None, [*error.findings, Finding.of_error(error)]
        return report, list(report.findings)

    @cache  # noqa: B019 - a few texts, each for a whole run
    def _itself(self, schedule: str, seed: int) -> tuple[frozenset[str], bytes]:
        """The rules of the unchanged text's errors, and the memory that it leaves."""
        report, findings = self._run(self.module, schedule, seed, STEPS)
        assert report is not None, f"{self.name} does not end by itself"
        return frozenset(one.rule for one in findings if one.severity == "error"), _memory(report)


def launches_of(folder: Path) -> Iterator[CapturedText]:
    """The launches in a program's folder, the first of each kernel."""
    seen: set[str] = set()
    for path in sorted(folder.glob("L[0-9]*")):
        entry = Launch.read(path).entry
        if entry not in seen:
            seen.add(entry)
            yield CapturedText(folder.parent.name, f"{path.name} {asm.demangle.readable(entry)}"[:90], path)


def _memory(report: Report) -> bytes:
    return b"".join(array.tobytes() for array in report.outputs)
