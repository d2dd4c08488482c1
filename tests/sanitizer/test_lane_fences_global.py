"""What one lane of a warp does for the others in global memory: a proxy fence, a signal, or a wait for a copy. It
covers those that have synchronised with it, before or after."""

from __future__ import annotations

import pytest

from tests.sanitizer.running import findings, rules
from warploom.sanitizer.rules import Example

START = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.init.shared::cta.b64 [bar+8], COUNT;
fence.proxy.async;
bar.sync 0;
shl.b32 %r0, %idx, 2;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
setp.lt.u32 %p6, %idx, 16;
selp.b32 %r5, 0x0000ffff, 0xffff0000, %p6;
setp.ge.u32 %p5, %idx, 32;
@%p5 bra other;
"""
"""Two warps; the first one continues here. %r5: the mask of a lane's half of it."""
WRITE, HALF, READ = "st.global.u32 [%d2], %idx;\n", "@%p6 st.global.u32 [%d2], %idx;\n", "ld.global.u32 %r3, [%d2];\n"
STRONG = "st.relaxed.gpu.global.u32 [%d2], %idx;\n"
ALL, HALVES = "bar.warp.sync -1;\n", "bar.warp.sync %r5;\n"
EACH = "fence.proxy.async;\n"


def by(lane: int, what: str) -> str:
    return f"setp.eq.u32 %p3, %idx, {lane};\n@%p3 {what}\n"


def fence(lane: int, space: str = "") -> str:
    return by(lane, f"fence.proxy.async{space};")


def copies(lane: int) -> str:
    """A lane copies the first 16 words, and waits."""
    return f"""
    setp.ne.u32 %p3, %idx, {lane};
    @%p3 bra over;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%data], 64, [bar];
    filled:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
    @!%p0 bra filled;
    over:
    """


def itself(text: str) -> Example:
    return Example(START.replace("COUNT", "1") + text + "other:\n", threads=64)


def tells(lane: int, then: str) -> str:
    """A lane arrives for its warp; the first lane of the other warp waits for that, and then does something."""
    return f"""
    setp.eq.u32 %p3, %idx, {lane};
    @%p3 mbarrier.arrive.shared::cta.b64 _, [bar+8];
    other:
    setp.ne.u32 %p3, %idx, 32;
    @%p3 bra done;
    waits:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar+8], 0;
    @!%p0 bra waits;
    {then}
    done:
    """


def another(text: str, lane: int, then: str) -> Example:
    return Example(START.replace("COUNT", "1") + text + tells(lane, then), threads=64)


FENCED, RACE, SYNCHRONOUS = "global-proxy-fence", "global-lane-race", "warp-synchronous"


@pytest.mark.parametrize("write", [WRITE, STRONG], ids=["weak", "strong"])
@pytest.mark.parametrize(
    "between, lane, missing",
    [
        (EACH + ALL, 5, set()),
        (ALL + fence(0), 0, set()),
        (ALL + fence(0, ".global"), 0, set()),
        (ALL + fence(0) + ALL, 5, set()),
        (ALL + fence(0) + HALVES, 5, set()),
        (fence(0) + ALL, 0, {FENCED}),  # lane 0 does not know of the others' writes when it fences
        (fence(0) + ALL + fence(5), 5, set()),
        (ALL + fence(0), 5, {FENCED}),  # lane 5 does not know of the fence
        (ALL + fence(0, ".shared::cta"), 0, {FENCED}),
        (ALL + fence(0) + HALVES, 20, {FENCED}),
    ],
)
def test_a_lane_carries_what_it_knows_of_to_the_async_proxy(write: str, between: str, lane: int, missing: set[str]):
    assert rules(itself(write + between + copies(lane))) == missing
    assert rules(another(write + between, lane, copies(32))) == missing


@pytest.mark.parametrize(
    "write, between, lane, missing, told",
    [
        (HALF, HALVES + fence(0), 0, set(), set()),
        (HALF, fence(0) + HALVES, 0, {FENCED}, {FENCED}),
        (HALF, HALVES + fence(0), 5, {FENCED}, {FENCED}),
        (HALF, HALVES + fence(0) + HALVES, 5, set(), set()),
        (WRITE, HALVES + fence(0), 0, set(), set()),  # the copy reads what its half of the warp wrote
        (WRITE, HALVES + fence(16), 16, {RACE, FENCED}, {SYNCHRONOUS}),
    ],
)
def test_lanes_that_meet_without_the_others_fence_for_each_other(write, between, lane, missing, told):
    assert rules(itself(write + between + copies(lane))) == missing
    assert rules(another(write + between, lane, copies(32))) == told


PHASE = """
mbarrier.arrive.shared::cta.b64 _, [bar+8];
phase:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar+8], 0;
@!%p0 bra phase;
"""


@pytest.mark.parametrize("between, missing", [(PHASE + fence(0), set()), (fence(0) + PHASE, {FENCED})])
def test_lanes_that_have_waited_for_each_other_know_of_each_other(between: str, missing: set[str]):
    """Each lane arrives on an mbarrier, and each waits for all."""
    body = START.replace("COUNT", "32") + WRITE + between + copies(0) + "other:\n"
    assert rules(Example(body, threads=64)) == missing


OWN, THEIRS = "ld.global.u32 %r3, [%data];", "ld.global.u32 %r3, [%data+20];"
AGAIN = "st.global.u32 [%data+20], 1;"


@pytest.mark.parametrize("access, then", [(WRITE, THEIRS), (READ, AGAIN), (WRITE, AGAIN)], ids=["RAW", "WAR", "WAW"])
@pytest.mark.parametrize(
    "between, lane, found",
    [
        ("", 0, True), ("", 5, False), (ALL, 0, False), (HALVES, 0, False), (HALVES, 5, False), (HALVES, 16, True),
        (HALVES + ALL, 16, False),
    ],
)  # fmt: skip
def test_an_arrival_of_one_lane_covers_global_memory_of_those_that_it_has_met(access, then, between, lane, found):
    """Lane 5 accesses a word, a lane arrives on an mbarrier, and a lane of another warp accesses that word."""
    assert rules(another(access + between, lane, then)) == ({SYNCHRONOUS} if found else set())


def test_a_lane_that_arrives_covers_its_own_word():
    assert rules(another(WRITE, 0, OWN)) == set()
    assert rules(Example(START.replace("COUNT", "32") + WRITE + PHASE + tells(99, THEIRS), threads=64)) == set()


STORES = """
st.shared.u32 [tile], 1;
fence.proxy.async;
bar.warp.sync -1;
@%first cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 16;
@%first cp.async.bulk.commit_group;
@%first cp.async.bulk.wait_group{} 0;
"""
COPIED, REUSED = "ld.global.u32 %r3, [%data+4];", "st.shared.u32 [tile], 5;"


@pytest.mark.parametrize("kind, then", [("", COPIED), (".read", REUSED)], ids=["reads-the-copy", "reuses-its-source"])
@pytest.mark.parametrize(
    "between, lane, found", [("", 0, False), ("", 5, True), (ALL, 5, False), (HALVES, 5, False), (HALVES, 20, True)]
)
def test_a_lane_that_waits_for_its_bulk_copies_waits_for_those_it_then_meets(kind, then, between, lane, found):
    example = itself(STORES.format(kind) + between + by(lane, then))
    errors = {one.rule for one in findings(example) if one.severity == "error"}
    assert errors == ({"lane-not-waited"} if found else set())
