"""A thread that has committed a bulk group and waits for all of its groups may rewrite the maps of its loads.

CUTLASS's grouped kernels have no other wait in front of tensormap.cp_fenceproxy.
"""

from __future__ import annotations

import pytest

from tests.sanitizer.running import SCHEDULES, rules
from warploom.sanitizer.rules import RULES, Example

BAD = RULES["tensor-map-in-use"].bad
REWRITE = "@%first tensormap.replace.tile.global_address.global.b1024.b64 [%d4], %d3;"
COMMIT, WAIT = "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;"


def rewritten(*before: str) -> Example:
    """The kernel whose first thread loads and rewrites the map of the load, with this in front of the second."""
    head, found, tail = BAD.body.rpartition(REWRITE)
    assert found
    return Example("\n".join((head, *before, found, tail)))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: f"{one[0]}-{one[1]}")
def test_the_wait_for_all_groups_covers_the_maps_of_loads(schedule):
    assert not {"tensor-map-in-use", "wait-by-another-thread"} & rules(rewritten(COMMIT, WAIT), *schedule)


@pytest.mark.parametrize("before", [(), (COMMIT,), (WAIT,), (COMMIT, WAIT.replace("0", "1"))])
def test_without_a_group_or_its_wait_it_is_an_error(before):
    assert "tensor-map-in-use" in rules(rewritten(*before))
