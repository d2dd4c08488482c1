"""Schedules: priorities that change, and the search for the simplest pair that fails."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.sanitizer.pieces import FILL
from tests.sanitizer.running import findings, run
from warploom.emulator.diagnosis.report import Report
from warploom.emulator.machine.finding import Finding
from warploom.errors import DeadlockError
from warploom.kernels import walkthrough
from warploom.runtime import emulate
from warploom.sanitizer import EXPLORED, RULES, explore
from warploom.sanitizer.rules import Example

FAILED = Report("k", findings=[Finding("data-race", "two warps")])
PASSED = Report("k")


def test_the_simplest_failing_pair_is_given_and_nothing_is_run_behind_it():
    found = explore(lambda schedule, seed: FAILED if schedule == "starve" and seed == 1 else PASSED)
    assert found.failing == ("starve", 1)
    assert found.tried == EXPLORED[: EXPLORED.index(("starve", 1)) + 1]


def test_an_error_of_the_machine_is_a_failure():
    def stops(schedule: str, seed: int) -> Report:
        raise DeadlockError("nobody comes")

    assert explore(stops).failing == EXPLORED[0]


def test_a_kernel_without_faults_runs_under_all_pairs_and_gives_its_result():
    a, b = (np.ones(shape, ml_dtypes.bfloat16) for shape in ((64, 32), (32, 64)))
    report = emulate(walkthrough.build_gemm_m64n64(64, 64, 32), a, b, schedule="explore")
    assert report.explored == EXPLORED and report.ok
    assert (np.asarray(report.outputs[0]) == 32).all()


@pytest.mark.parametrize("seed", range(3))
def test_priorities_replay(seed: int):
    first, second = (run(RULES["operand-overwritten"].bad, "pct", seed) for _ in range(2))
    assert first.counters == second.counters
    assert [str(finding) for finding in first.findings] == [str(finding) for finding in second.findings]


def test_priorities_let_a_late_warp_overtake():
    """Warps 1 to 3 use the barrier of warp 0: only where one of them runs first is it an error."""
    example = Example("@%first mbarrier.init.shared::cta.b64 [bar], 128;\nmbarrier.arrive.shared::cta.b64 %d0, [bar];")
    stopped = 0
    for seed in range(8):
        try:
            run(example, "pct", seed)
        except Exception:  # noqa: BLE001 - whatever the machine says
            stopped += 1
    assert 0 < stopped < 8


def test_races_do_not_depend_on_the_schedule():
    bad = Example(FILL + "bar.sync 0;\nst.shared.u32 [%r1], 0;\nld.shared.u32 %r2, [tile+256];")
    for schedule, seed in EXPLORED:
        assert "data-race" in {finding.rule for finding in findings(bad, schedule, seed)}
