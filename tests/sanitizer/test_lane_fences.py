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
