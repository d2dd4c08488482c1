"""Each misuse of tcgen05 is found by `warploom check` with its defaults; each text without it is clean."""

from __future__ import annotations

import pytest

from tests.sanitizer.misuse_blackwell import MARK, PAGE, Case, cases, checked

CASES = list(cases())
each = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}: {case.what}")
MISUSES = {f"T{number}" for number in range(1, 31)}
ELSEWHERE = {"T15": "in strict mode alone, see test_tensor_memory"}


@each
def test_a_misuse_is_found(case: Case):
    assert (case.expected, case.severity) in {(one.rule, one.severity) for one in checked(case, case.bad).findings}


@each
def test_the_text_without_it_is_clean(case: Case):
    assert [str(one) for one in checked(case, case.good).findings if one.severity != "performance"] == []


@each
def test_the_page_says_so(case: Case):
    (line,) = [line for line in PAGE.read_text().partition(MARK)[2].splitlines() if f"| {case.what} |" in line]
    _, number, _, said, severity, *_ = (part.strip() for part in line.split("|"))
    assert (number, said, severity) == (case.number, f"`{case.expected}`", case.severity)


def test_every_number_has_a_case():
    assert {case.number for case in CASES} >= MISUSES - set(ELSEWHERE)
