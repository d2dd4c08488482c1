"""Published bugs of Blackwell kernels are found; their fixes are clean. See `test_published_bugs`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sanitizer.published_bugs import Bug
from tests.sanitizer.published_bugs_blackwell import BUGS, RACE, STOPS, accumulate
from tests.sanitizer.running import SCHEDULES, findings, rules, run
from warploom import asm
from warploom.errors import DeadlockError, InvalidOperandError
from warploom.sanitizer import RULES

PAGE = Path(__file__).parents[2] / "docs" / "published-bugs.md"
bugs = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])


@schedules
@bugs
def test_a_published_bug_is_found_by_its_rule(bug: Bug, schedule: str, seed: int):
    found = {found.rule: found.severity for found in findings(bug.bad, schedule, seed)}
    if bug.rule not in found and "parity" in bug.name:  # all is done at issue: then that phase is over, and it hangs
        with pytest.raises(DeadlockError):
            run(bug.bad, schedule, seed)
    else:
        assert found.get(bug.rule) == bug.severity


@schedules
@bugs
def test_its_fix_is_clean(bug: Bug, schedule: str, seed: int):
    assert [found for found in run(bug.fixed, schedule, seed).findings if found.severity != "performance"] == []


@bugs
def test_both_are_legal_texts(bug: Bug):
    for example in (bug.bad, bug.fixed):
        assert asm.verify(asm.parse(example.text())) == []


@pytest.mark.parametrize("name", STOPS)
def test_what_the_machine_refuses_ends_the_run(name: str):
    example, words = STOPS[name]
    with pytest.raises(InvalidOperandError) as caught:
        run(example)
    assert words in caught.value.what


def test_the_suite_that_pins_48_has_both_of_its_races_found_and_gives_64_once_they_are_mended():
    assert {"tensor-memory-race", "generic-write-before-async-read"} <= rules(RACE)
    (data,) = run(accumulate()).outputs
    assert data.view(np.float32)[:128].tolist() == [64.0] * 128


@bugs
def test_the_page_lists_it_with_its_rule_and_its_sources(bug: Bug):
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {bug.name} |")]
    assert f"`{bug.rule}`" in line and bug.rule in RULES
    for source in bug.sources:
        assert source.split()[0] in line
