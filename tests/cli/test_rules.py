"""`warploom rules`: what the sanitizer checks, explained."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest

from tests.command_line import run
from warploom import asm
from warploom.error_codes import CODES
from warploom.sanitizer.rules import RULES


@lru_cache
def listed(page: str) -> str:
    return (Path(__file__).resolve().parents[2] / page).read_text()


def test_all_rules_are_listed_with_their_severity() -> None:
    lines, rest = run("rules").stdout.split("\n\n")
    assert all(code in rest for code in CODES)
    for line, rule in zip(lines.splitlines(), RULES.values(), strict=True):
        assert f"{rule.id} ({rule.severity})" in line and rule.title in line


@pytest.mark.parametrize("name", list(RULES))
def test_every_rule_says_why_with_the_section_what_to_do_and_its_numbers(name: str) -> None:
    rule, said = RULES[name], run("rules", name).stdout
    assert said.strip().startswith(f"{rule.severity}[{name}]: {rule.title}")
    for part in (rule.why, rule.section, rule.fix):
        assert part in said
    if rule.numbers:
        page = "docs/sanitizer-coverage.md"
        assert f"coverage list  {rule.numbers} ({page})" in said
        assert all(f"| {number} |" in listed(page) for number in rule.numbers.split(", "))


def test_the_line_that_makes_the_difference_is_marked() -> None:
    said = run("rules", "generic-write-before-async-read").stdout
    good = said.split("a kernel that follows it")[1]
    assert "    + fence.proxy.async;" in good.splitlines()
    assert sum(line.startswith("    +") for line in good.splitlines()) == 1


def test_a_number_of_the_list_of_misuses_names_its_rules() -> None:
    said = run("rules", "r2").stdout
    assert "generic-write-before-wgmma-read" in said and "cp-async-before-wgmma" in said


def test_json_has_the_whole_texts_of_both_kernels() -> None:
    (rule,) = json.loads(run("rules", "data-race", "--json").stdout)
    assert rule["id"] == "data-race" and rule["severity"] == "error"
    for example in (rule["bad"], rule["good"]):
        assert asm.verify(asm.parse(example["text"])) == []


def test_an_unknown_rule_is_a_sentence_with_the_nearest_one() -> None:
    result = run("rules", "data-rase")
    assert result.exit_code == 2
    assert "unknown rule 'data-rase'" in result.stderr and "did you mean data-race?" in result.stderr


def test_an_error_that_ended_a_check_is_explained_too() -> None:
    assert "error[deadlock]" in run("rules", "DeadlockError").stdout
