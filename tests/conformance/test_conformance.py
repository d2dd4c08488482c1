"""The emulator gives the same bits as an H200: one tiny kernel for each form of each instruction.

`tests/golden/conformance.npz` has the GPU's results (`record.py`). Without it, or for a case that has changed since, a
case must still run, give the same bits under another schedule, and fill its results.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from tests.conformance import cpu, record, recording, suite
from tests.conformance.known import KNOWN
from warploom import asm
from warploom.emulator.ops import HANDLERS
from warploom.isa.instructions import table

CASES = suite.cases()


@lru_cache(maxsize=1)
def recorded() -> recording.Recording | None:
    return recording.load()


@pytest.mark.sample(200, all=267)
@pytest.mark.parametrize("row, case", [pytest.param(case.rows[0], case, id=case.name) for case in CASES])
def test_the_emulator_gives_the_bits_of_the_gpu(row, case):
    """A sample holds as many rows as it can."""
    asm.check(cpu.parsed(case))
    found = cpu.run(case)
    again = cpu.run(case, schedule="random", seed=1)
    assert all(np.array_equal(found[key], again[key]) for key in found)
    assert not recording.untouched(case, found)
    stored = recorded()
    answer = stored.of(case) if stored is not None else None
    if answer is None:
        return
    wrong = recording.compare(case, found, answer)
    unexpected = [str(mismatch) for mismatch in wrong if (case.name, mismatch.label) not in KNOWN]
    assert not unexpected, "\n".join(unexpected)
    differing = {(mismatch.case, mismatch.label) for mismatch in wrong}
    agreeing = [key for key in KNOWN if key[0] == case.name and key not in differing]
    assert not agreeing, f"these agree now, take them off KNOWN: {agreeing}"


@pytest.mark.sample(13, all=24)
@pytest.mark.parametrize("case", [case for case in CASES if case.exact_bound], ids=lambda case: case.name)
def test_exact_numerics_stay_within_the_bound_of_the_hardware(case):
    exact, hardware = cpu.run(case, "exact"), cpu.run(case)
    for key in exact:
        wrong = recording.beyond(exact[key][0].reshape(-1), hardware[key][0].reshape(-1), case.exact_bound)
        assert not wrong.any()


def test_every_row_that_the_emulator_runs_has_a_case():
    shown = {row for case in CASES for row in case.rows}
    known = set(table.keys())
    assert shown <= known, f"cases name rows that do not exist: {sorted(shown - known)}"
    missing = [key for key in table.keys() if key in HANDLERS and key not in shown and key not in suite.WITHOUT]
    assert not missing
    assert not shown & set(suite.WITHOUT)


@pytest.mark.full
def test_the_recording_is_of_the_cases_as_they_are():
    stored = recorded()
    if stored is None:
        pytest.skip("nothing is recorded yet: run tests/conformance/record.py on a GPU")
    missing = [case.name for case in CASES if stored.of(case) is None]
    stale = [name for name in missing if not name.startswith(tuple(suite.PENDING))]
    pending = [name for name in missing if name not in stale]
    assert all(any(name.startswith(start) for name in pending) for start in suite.PENDING), "recorded: take it off"
    assert len(stale) <= len(CASES) // 20, f"record again: {len(stale)} cases are new or changed: {stale[:20]}"


@pytest.mark.gpu
def test_the_gpu_at_hand_agrees_with_the_emulator():
    outcome = record.run_on_gpu(CASES)
    assert not outcome.failed
    wrong, stopped = record.against_emulator(outcome, CASES)
    assert not stopped
    unexpected = [str(mismatch) for mismatch in wrong if (mismatch.case, mismatch.label) not in KNOWN]
    assert not unexpected, "\n".join(unexpected)
