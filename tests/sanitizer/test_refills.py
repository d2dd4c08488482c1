"""Bytes that a copy refills too early, and bytes that are read too early: which of the two is the cause."""

from __future__ import annotations

import pytest

from tests.sanitizer.pieces import INIT, READ, load, wait
from tests.sanitizer.running import run
from warploom.sanitizer.rules import Example

REFILL = {
    "the refill before the read": (load() + READ, "data-race"),
    "a read by one warp that the refill does not wait for": ("@!%first " + READ.strip().replace("\n", "\n@!%first ")
                                                            + load(), "data-race"),
    "a read, a barrier, the refill, and no second wait": (READ + "bar.sync 0;\n" + load() + READ, "stale-phase-wait"),
    "a read, a barrier, the refill, and a wait for the first phase": (
        READ + "bar.sync 0;\n" + load() + wait(0, "2") + READ, "stale-phase-wait",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFILL)
def test_a_refill_is_the_cause_if_the_reader_has_not_read_what_it_waited_for(case: str):
    """Only who gave the bytes up before has waited for too old a phase."""
    body, cause = REFILL[case]
    found = run(Example(INIT + load() + wait() + body + wait(1, "1"))).findings
    assert [one.rule for one in found if one.severity == "error"] == [cause]


def test_a_refill_is_one_finding_whichever_comes_first():
    body = INIT + load() + wait() + load() + READ + wait(1, "1")
    for schedule, seed in (("lazy", 0), ("random", 1), ("starve", 1), ("pct", 2)):
        assert [one.rule for one in run(Example(body), schedule, seed).findings] == ["data-race"]
