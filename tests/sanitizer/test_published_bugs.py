"""Bugs that others have published are found, each by the rule that names it; their fixes are clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sanitizer.published_bugs import BUGS, Bug
from tests.sanitizer.running import SCHEDULES, findings, run
from warploom import asm
from warploom.sanitizer import RULES

PAGE = Path(__file__).parents[2] / "docs" / "published-bugs.md"
bugs = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])


@schedules
@bugs
def test_a_published_bug_is_found_by_its_rule(bug: Bug, schedule: str, seed: int):
    found = {finding.rule: finding.severity for finding in findings(bug.bad, schedule, seed)}
    if schedule == "random" and bug.mirrored in found:
        assert found[bug.mirrored] == bug.severity
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
