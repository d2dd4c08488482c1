"""A thread that has committed a bulk group and waits for all of its groups may rewrite the maps of its loads.

CUTLASS's grouped kernels have no other wait in front of tensormap.cp_fenceproxy.
"""

from __future__ import annotations

import pytest

from tests.sanitizer.running import SCHEDULES, rules, run
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


MADE_IN_SHARED_MEMORY = """
mov.u32 %r1, tile;
mad.lo.u32 %r2, %idx, 4, %r1;
st.shared.u32 [%r2], 0;
CLEARED
@%first tensormap.replace.tile.rank.shared::cta.b1024.b32 [tile], 0;
@%first tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [tile], 0, 16;
REPLACED
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%data], [tile], 128;
"""
MEET = "bar.warp.sync 0xffffffff;"


@pytest.mark.parametrize(
    ("cleared", "replaced", "found"), [(MEET, MEET, set()), (MEET, "", {"lane-race"}), ("", MEET, {"lane-race"})]
)
def test_a_warp_copies_the_map_that_one_of_its_lanes_has_replaced_after_meeting_it(cleared, replaced, found):
    body = MADE_IN_SHARED_MEMORY.replace("CLEARED", cleared).replace("REPLACED", replaced)
    assert rules(Example(body, threads=32)) == found


def test_another_warp_copies_it_after_a_barrier():
    other = "setp.lt.u32 %p2, %idx, 32;\n@%p2 bra done;\n"
    body = (
        MADE_IN_SHARED_MEMORY.replace("CLEARED", "bar.sync 0;").replace("tensormap.cp", other + "tensormap.cp")
        + "done:"
    )
    assert rules(Example(body.replace("REPLACED", "bar.sync 0;"), threads=64)) == set()
    assert rules(Example(body.replace("REPLACED", ""), threads=64)) == {"data-race"}


STORED_BY_A_WARP = (
    "add.u64 %d4, %data, 1024;\n"
    + BAD.body[: BAD.body.index("mbarrier.arrive.expect_tx")].replace("bra done", "bra made")
    + """made:
bar.warp.sync 0xffffffff;
fence.proxy.tensormap::generic.acquire.gpu [%d4], 128;
WHO cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%d4, {0}], [tile];
WAITS
bar.warp.sync 0xffffffff;
"""
    + REWRITE
)


@pytest.mark.parametrize(("who", "waits", "severity"), [
    ("", "", "error"), ("", f"@%first {COMMIT}\n@%first {WAIT}", "warning"), ("", f"{COMMIT}\n{WAIT}", None),
    ("@%first", f"@%first {COMMIT}\n@%first {WAIT}", None), ("@!%first", f"@%first {COMMIT}\n@%first {WAIT}", "error"),
], ids=["nobody", "one lane", "every lane", "the one that stores", "one that does not store"])  # fmt: skip
def test_one_lane_may_wait_for_the_copy_that_all_lanes_of_its_warp_have_made(who, waits, severity):
    """CuTe DSL's grouped kernel: 32 equal stores, of which ptxas makes one, and a wait by an elected lane."""
    body = STORED_BY_A_WARP.replace("WHO", who).replace("WAITS", waits)
    found = run(Example(body, threads=32), "lazy", 0).findings
    assert {one.severity for one in found if one.rule == "tensor-map-in-use"} == ({severity} if severity else set())
