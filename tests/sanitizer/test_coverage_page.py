"""The coverage page names every rule and every misuse, and no rule that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from warploom.sanitizer import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "sanitizer-coverage.md").read_text()
MISUSES = [*(f"R{n}" for n in range(1, 24)), *(f"M{n}" for n in range(1, 18)), *(f"L{n}" for n in range(1, 14))]


def named() -> set[str]:
    """Words in backticks that look like rules."""
    return {word for word in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE)}


def test_every_rule_is_on_the_page_and_every_rule_on_the_page_exists():
    assert named() == set(RULES)


def test_every_misuse_has_a_line():
    lines = [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| ")]
    assert [number for number in MISUSES if lines.count(number) != 1] == []


def test_a_rule_stands_in_the_line_of_each_misuse_it_says_it_finds():
    lines = {line.split("|")[1].strip(): line for line in PAGE.splitlines() if line.startswith("| ")}
    for rule in RULES.values():
        for number in rule.numbers.split(", "):
            if number in MISUSES:
                assert f"`{rule.id}`" in lines[number], (rule.id, number)
