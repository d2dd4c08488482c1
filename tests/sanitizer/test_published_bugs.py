"""Bugs that others have published are found, each by the rule that names it; their fixes are clean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sanitizer import published_bugs as hopper
from tests.sanitizer import published_bugs_blackwell as blackwell
from tests.sanitizer.published_bugs import Bug
from tests.sanitizer.running import SCHEDULES, findings, rules, run
from warploom import asm
from warploom.errors import DeadlockError, InvalidOperandError
from warploom.sanitizer import RULES

PAGE = Path(__file__).parents[2] / "docs" / "published-bugs.md"
bugs = pytest.mark.parametrize("bug", hopper.BUGS + blackwell.BUGS, ids=lambda bug: bug.name)
schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])


@schedules
@bugs
def test_a_published_bug_is_found_by_its_rule(bug: Bug, schedule: str, seed: int):
    found = {finding.rule: finding.severity for finding in findings(bug.bad, schedule, seed)}
    if schedule == "random" and bug.mirrored in found:
        assert found[bug.mirrored] == bug.severity
    elif bug.or_hangs and bug.rule not in found:
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


@bugs
def test_the_page_lists_it_with_its_rule_and_its_sources(bug: Bug):
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {bug.name} |")]
    assert f"`{bug.rule}`" in line and bug.rule in RULES
    for source in bug.sources:
        assert source.split()[0] in line


@pytest.mark.parametrize("name", blackwell.STOPS)
def test_what_the_machine_refuses_ends_the_run(name: str):
    example, words = blackwell.STOPS[name]
    with pytest.raises(InvalidOperandError) as caught:
        run(example)
    assert words in caught.value.what


def test_the_suite_that_pins_48_has_both_of_its_races_found_and_gives_64_once_they_are_mended():
    assert {"tensor-memory-race", "generic-write-before-async-read"} <= rules(blackwell.RACE)
    (data,) = run(blackwell.accumulate()).outputs
    assert data.view(np.float32)[:128].tolist() == [64.0] * 128
