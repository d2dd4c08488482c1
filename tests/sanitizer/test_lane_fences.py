"""One lane of a warp accesses shared memory and executes the proxy fence, while its other lanes have accessed other
words and nothing has synchronised them with it."""

from __future__ import annotations

import pytest

from tests.sanitizer.running import findings
from warploom.sanitizer.rules import Example

START = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.init.shared::cta.b64 [bar+8], 1;
@%first st.shared.u32 [tile+512], 3;
@%first st.shared.v4.u32 [tile], {1, 2, 3, 4};
fence.proxy.async;
bar.sync 0;
ld.shared.u32 %r3, [tile+512];
"""
"""All lanes read one word."""
READ, WRITE = "@%first ld.shared.u32 %r4, [tile];\n", "@%first st.shared.u32 [tile], 5;\n"
FENCE, SYNC = "@%first fence.proxy.async;\n", "bar.warp.sync -1;\n"
FILL = """
@GUARD mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
@GUARD cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%data], 16, [bar];
filled:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra filled;
"""
STORE = """
@GUARD cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 16;
@GUARD cp.async.bulk.commit_group;
@GUARD cp.async.bulk.wait_group 0;
"""
ARRIVE = """
@%p3 mbarrier.arrive.shared::cta.b64 _, [bar+8];
setp.eq.u32 %p2, %idx, 32;
passed:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar+8], 0;
@!%p0 bra passed;
"""
CASES = {"write-read": (WRITE, STORE, "generic-write-before-async-read"),
         "read-write": (READ, FILL, "generic-access-before-async-write")}  # fmt: skip


def found(case: str, fence: str, sync: str, lane: int, other: bool) -> set[str]:
    """The rules. other: another warp makes the copy, after an arrival by that lane; else the lane itself."""
    access, copy, _ = CASES[case]
    last = ARRIVE + copy.replace("GUARD", "%p2") if other else copy.replace("GUARD", "%p3")
    example = Example(START + access + fence + sync + f"setp.eq.u32 %p3, %idx, {lane};\n" + last, threads=64)
    return {one.rule for one in findings(example) if one.severity != "performance"}


@pytest.mark.parametrize("other", [False, True], ids=["itself", "another-warp"])
@pytest.mark.parametrize("case", CASES)
def test_a_lane_carries_its_own_accesses_to_the_async_proxy(case: str, other: bool):
    rule = CASES[case][2]
    for sync, lane in (("", 0), (SYNC, 0), (SYNC, 1)):
        assert found(case, FENCE, sync, lane, other) == set()
        assert found(case, "", sync, lane, other) == {rule}


@pytest.mark.parametrize("case", CASES)
def test_another_lane_that_has_not_synchronised_carries_nothing(case: str):
    assert "lane-race" in found(case, FENCE, "", 1, other=False)
    assert found(case, FENCE, "", 1, other=True) == {"warp-synchronous"}


SOME = """
setp.lt.u32 %p2, %idx, 16;
mov.u32 %r4, 0xffff0000;
@%p2 mov.u32 %r4, 0xffff;
setp.ge.u32 %p2, %idx, WRITERS;
@%p2 bra done;
shl.b32 %r0, %idx, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
st.shared.u32 [%r1], %idx;
"""
"""The first lanes of a warp write a word each; %r4: the mask of a lane's half of the warp."""
MET, LATE = "bar.warp.sync %r4;\n", "mov.u32 %r3, 0;\n"
UNFENCED, RACE = "generic-write-before-async-read", "lane-race"


@pytest.mark.parametrize("writers", [16, 32], ids=["half", "both-halves"])
@pytest.mark.parametrize(
    "lane, before, between, fencing, missing",
    [
        (0, "", MET, 0, set()),
        (5, "", MET, 5, set()),
        (5, MET, MET, 5, set()),
        (5, "", MET, 0, {UNFENCED}),
        (0, "", LATE, 0, {RACE, UNFENCED}),
        (0, MET, LATE, 0, {UNFENCED}),
        (0, "", "", None, {RACE, UNFENCED}),
        (0, "", MET, None, {UNFENCED}),
    ],
)
def test_lanes_that_meet_without_the_others_know_of_each_other(
    lane: int, before: str, between: str, fencing: int | None, missing: set[str], writers: int
):
    """`__syncwarp(0xffff)`, then one lane fences for all that it has met, and starts the copy."""
    fence = f"setp.eq.u32 %p2, %idx, {fencing};\n@%p2 fence.proxy.async;\n"
    early, late = (fence, "") if between == LATE else ("", fence if fencing is not None else "")
    copy = f"setp.eq.u32 %p3, %idx, {lane};\n" + STORE.replace("GUARD", "%p3") + "done:\n"
    body = SOME.replace("WRITERS", str(writers)) + early + before + (MET if between == MET else "") + late
    assert {one.rule for one in findings(Example(START + body + copy, threads=64))} == missing


def test_a_lane_carries_nothing_of_the_other_half_of_its_warp():
    """Lane 16 copies what lanes 0 to 3 wrote; it has met its own half of the warp only."""
    fence = "setp.eq.u32 %p3, %idx, 16;\n@%p3 fence.proxy.async;\n"
    body = SOME.replace("WRITERS", "32") + MET + fence + STORE.replace("GUARD", "%p3") + "done:\n"
    assert {one.rule for one in findings(Example(START + body, threads=64))} == {RACE, UNFENCED}


@pytest.mark.parametrize("writers", [16, 32], ids=["half", "both-halves"])
@pytest.mark.parametrize("met", [True, False], ids=["met", "apart"])
def test_a_lane_releases_what_those_that_it_has_met_did(met: bool, writers: int):
    """Lanes 0 to 15 write and meet, lane 0 arrives for them, and a lane of another warp reads."""
    write = SOME.replace("WRITERS", str(writers)).replace("done", "passed")
    arrive = (MET if met else "") + "@%first mbarrier.arrive.shared::cta.b64 _, [bar+8];\n"
    wait = ARRIVE.split("setp", 1)[1]
    read = "setp.eq.u32 %p2, %idx, 32;\n@%p2 ld.shared.u32 %r3, [tile+20];\n"
    body = write + arrive + "setp" + wait + read
    found = {one.rule for one in findings(Example(START + body, threads=64))}
    assert found == (set() if met else {"warp-synchronous"})


ALL_WAIT = """
st.shared.u32 [%r1], %idx;
FIRST
mbarrier.arrive.shared::cta.b64 _, [bar];
all:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra all;
THEN
"""


@pytest.mark.parametrize("last", [31, 63])
def test_a_lane_fences_for_lanes_whose_arrivals_it_has_waited_for(last: int):
    """64 lanes write a word each, arrive on one mbarrier, and wait for it; one then fences for all, or arrives for all,
    and a copy reads the words."""
    init = "@%first mbarrier.init.shared::cta.b64 [bar], 64;\n@%first mbarrier.init.shared::cta.b64 [bar+8], 1;\n"
    address = "bar.sync 0;\nshl.b32 %r0, %idx, 2;\nmov.u32 %r1, tile;\nadd.u32 %r1, %r1, %r0;\n"
    copy = STORE.replace("GUARD", "%p3").replace(", 16;", f", {4 * last + 4};")
    for first, then, copier, missing in (
        ("", FENCE, 0, set()),
        (FENCE, "", 0, {UNFENCED}),
        ("", "", 0, {UNFENCED}),
        ("", FENCE + ARRIVE.replace("%p3", "%first"), 32, set()),
    ):
        body = init + address + ALL_WAIT.replace("FIRST", first).replace("THEN", then)
        found = findings(Example(body + f"setp.eq.u32 %p3, %idx, {copier};\n" + copy, threads=64))
        assert {one.rule for one in found} == missing
