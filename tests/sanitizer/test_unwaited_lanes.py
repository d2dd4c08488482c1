"""Lanes that access shared memory for which only other lanes of their warp have waited."""

from __future__ import annotations

import pytest

from tests.sanitizer.pieces import INIT, READ, load, wait
from tests.sanitizer.running import rules
from warploom.sanitizer.rules import Example

COMPLETE = INIT + load() + wait(scope=".relaxed.cluster")
"""A copy, and a wait that shows when it is complete and makes nothing known."""
SOME = "and.b32 %r4, %idx, 31;\nsetp.lt.u32 %p3, %r4, {lanes};\n"
WAIT = """
wait_{name}:
@{guard}%p3 mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra wait_{name};
"""


def waits(lanes: int, others: str = "") -> str:
    """These first lanes of each warp wait for the copy, and perhaps the others for something else."""
    return COMPLETE + SOME.format(lanes=lanes) + WAIT.format(name="some", guard="") + others + READ


@pytest.mark.parametrize("lanes", [1, 16, 31])
def test_lanes_that_go_round_the_wait_do_not_know_of_the_copy(lanes: int):
    assert "lane-not-waited" in rules(Example(waits(lanes)))


def test_all_lanes_wait():
    assert rules(Example(waits(32))) == set()


def test_lanes_that_wait_apart_have_all_waited():
    assert rules(Example(waits(16, WAIT.format(name="others", guard="!")))) == set()


def test_lanes_that_have_met_one_that_waited_know_what_it_knows():
    assert rules(Example(waits(1, "bar.warp.sync 0xffffffff;\n"))) == set()
    assert rules(Example(waits(1, "bar.sync 0;\n"))) == set()


def test_a_meeting_of_some_lanes_tells_those():
    met = "setp.lt.u32 %p2, %r4, {lanes};\n@%p2 bar.warp.sync 0xffff;\n"
    some = waits(1, met.format(lanes=16)).replace("\nld.shared", "\n@%p2 ld.shared")
    assert "lane-not-waited" not in rules(Example(some))
    assert "lane-not-waited" in rules(Example(waits(1, met.format(lanes=16))))


def test_a_stage_is_filled_again_by_a_lane_that_has_not_waited_for_its_reader():
    read = (
        "setp.ge.u32 %p2, %idx, 32;\n@%p2 ld.shared.u32 %r2, [tile];\n@%p2 mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    )
    fill = "setp.eq.u32 %p2, %idx, {lane};\n@%p2 st.shared.u32 [tile], %idx;\n"
    body = (
        "@%first st.shared.u32 [tile], %idx;\n" + INIT.replace(", 1;", ", 96;") + read + wait(scope=".relaxed.cluster")
        + SOME.format(lanes=1) + WAIT.format(name="some", guard="") + fill
    )  # fmt: skip
    assert "lane-not-waited" in rules(Example(body.format(lane=5)))
    assert rules(Example(body.format(lane=0))) == set()


GLOBAL = """
mov.u32 %r6, %ctaid.x;
shl.b32 %r0, %idx, 2;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
setp.ne.u32 %p2, %r6, 0;
@%p2 bra reader;
st.global.u32 [%d2], %idx;
bar.warp.sync -1;
@%first st.release.gpu.global.u32 [%data+512], 77;
bra done;
reader:
@!{who} bra over;
waiting:
ld.acquire.gpu.global.u32 %r2, [%data+512];
setp.ne.u32 %p3, %r2, 77;
@%p3 bra waiting;
over:
{then}
{touch}
done:
"""
EXCHANGE = "setp.lt.u32 %p4, %idx, 16;\nselp.b32 %r5, MASKS, %p4;\nshfl.sync.bfly.b32 %r3, %r2, 1, 31, %r5;\n"
TOUCHES = ["ld.global.u32 %r3, [%d2];", "st.global.u32 [%d2], 5;"]


@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize(
    "who, then, found",
    [
        ("%first", "", {"lane-not-waited"}),
        ("%first", "bar.warp.sync -1;", set()),
        ("%first", "bar.sync 0;", set()),
        ("%first", "@!%first bra done;", set()),
        ("%first", "shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;", set()),
        ("%first", EXCHANGE.replace("MASKS", "-1, 0xffffffff"), set()),
        ("%first", EXCHANGE.replace("MASKS", "0xffff, 0xffff0000"), {"lane-not-waited"}),
        ("%first", EXCHANGE.replace("MASKS", "0xffff, 0xffff0000") + "@!%p4 bra done;", set()),
        ("%p2", "", set()),
    ],
)
def test_a_flag_in_global_memory_is_known_to_the_lanes_that_acquired_it(who, then, touch, found):
    body = GLOBAL.format(who=who, then=then, touch=touch)
    assert rules(Example(body, grid=2, threads=32)) == found


def test_lanes_that_pass_a_barrier_apart_know_what_the_one_that_waited_brought():
    """barrier.sync: thread 0 comes from its wait when the others have long been there."""
    then = "barrier.sync 0;"
    assert rules(Example(GLOBAL.format(who="%first", then=then, touch=TOUCHES[0]), grid=2, threads=32)) == set()
    others = waits(1, "barrier.sync 0;\n")
    assert rules(Example(others)) == set()
