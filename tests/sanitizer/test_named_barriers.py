"""Named barriers whose counts are those of one group, and at which each thread comes twice."""

from __future__ import annotations

import pytest

from tests.sanitizer.pieces import FILL
from tests.sanitizer.running import SCHEDULES, findings
from warploom.sanitizer.rules import Example

TURNED = """
xor.b32 %r0, %idx, 64;
shl.b32 %r0, %r0, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r2, [%r1];
"""
"""Each thread reads a word that the other two warps have written."""


def errors(body: str, schedule: str, seed: int) -> set[str]:
    return {finding.rule for finding in findings(Example(body), schedule, seed) if finding.severity == "error"}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_group_that_arrives_before_it_waits_is_counted_twice(schedule: tuple[str, int]):
    """FlashInfer's epilogue for Hopper: two warps of four that do both complete the barrier by themselves."""
    both = FILL + "bar.arrive 1, 128;\nbar.sync 1, 128;\n" + TURNED
    assert "barrier-reused-too-early" in errors(both, *schedule)
    assert errors(both.replace("bar.arrive 1, 128;\n", ""), *schedule) == set()


def test_such_a_group_reads_what_the_others_have_not_written():
    both = FILL + "bar.arrive 1, 128;\nbar.sync 1, 128;\n" + TURNED
    assert any("data-race" in errors(both, "random", seed) for seed in range(8))
