"""One lane raises a flag in global memory for its warp: the lanes must have synchronised, or released themselves."""

from __future__ import annotations

import pytest

from tests.sanitizer.running import SCHEDULES, findings, rules
from warploom.sanitizer.happens_before.divergent_lanes import EVERYTHING, DivergentLanes, record_access
from warploom.sanitizer.rules import Example

FULL = 0xFFFFFFFF
RULE = "warp-synchronous"
SYNC = "bar.warp.sync -1;\n"
STORE = "st.global.u32 [%d2], %idx;\n"
RAISE = "@%first st.release.sys.global.u32 [%data+512], 77;\n"
COUNT = "@%first red.release.sys.global.add.u32 [%data+512], -51;\n"
"""The word is 128 before."""
READ = "ld.global.u32 %r3, [%data+4];\n"
COPY = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
fence.proxy.async;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 %d0, [bar], 128;
@%first cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%data], 128, [bar];
copied:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra copied;
"""


def hand_over(write: str, read: str = READ, again: str = "", devices: int = 2) -> Example:
    """The first warp of a GPU (or of a CTA) writes words; one thread of the other waits for word 128, then reads."""
    who = "%gpu" if devices == 2 else "%r6"
    return Example(
        f"""
        mov.u32 %r6, %ctaid.x;
        shl.b32 %r0, %idx, 2;
        cvt.u64.u32 %d2, %r0;
        add.u64 %d2, %d2, %data;
        setp.eq.u32 %p2, {who}, 0;
        @!%p2 bra reader;
        {write}
        bra done;
        reader:
        @!%first bra done;
        waiting:
        ld.acquire.sys.global.u32 %r2, [%data+512];
        setp.ne.u32 %p3, %r2, 77;
        @%p3 bra waiting;
        {again}
        {read}
        done:
        """,
        devices=devices,
        grid=1 if devices == 2 else 2,
        threads=32,
    )


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES[:4])
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("read", [READ, COPY, "st.global.u32 [%data+4], 5;\n"], ids=["load", "copy", "store"])
@pytest.mark.parametrize("flag", [RAISE, COUNT], ids=["store", "addition"])
def test_a_flag_for_lanes_that_have_not_met_is_found_in_every_schedule(flag, read, devices, schedule, seed):
    assert RULE in rules(hand_over(STORE + flag, read, devices=devices), schedule, seed)
    assert rules(hand_over(STORE + SYNC + flag, read, devices=devices), schedule, seed) == set()


@pytest.mark.parametrize(
    "kept, severity", [("", "error"), ("-1, 0xffffffff", "warning"), ("0x0000ffff, 0xffff0000", "error")]
)
def test_a_shuffle_of_all_lanes_before_an_acknowledgement_makes_it_a_warning(kept: str, severity: str):
    shuffle = PARTS.replace("SIZE", "16").replace("MASKS", kept) if kept else ""
    body = hand_over("ld.global.u32 %r3, [%d2];\n" + shuffle + RAISE, "st.global.u32 [%data+4], 5;\n", devices=1)
    assert {one.severity for one in findings(body) if one.rule == RULE} == {severity}


def test_a_read_that_is_acknowledged_for_other_lanes_is_found():
    """The lanes read; one of them says so, and the other GPU writes again."""
    acknowledge = "ld.global.u32 %r3, [%d2];\n"
    assert RULE in rules(hand_over(acknowledge + RAISE, "st.global.u32 [%data+4], 5;\n"))
    assert rules(hand_over(acknowledge + SYNC + RAISE, "st.global.u32 [%data+4], 5;\n")) == set()


CLEAN = {
    "the lane's own store": "@%first st.global.u32 [%data+4], 7;\n" + RAISE,
    "a barrier of the CTA": STORE + "bar.sync 0;\n" + RAISE,
    "a fence of each lane": STORE + "fence.acq_rel.sys;\n@%first st.relaxed.sys.global.u32 [%data+512], 77;\n",
    "a release of each lane": STORE + "st.release.sys.global.u32 [%d2+1024], 1;\n" + RAISE,
    "what came before the lanes met": STORE + SYNC + "st.global.u32 [%d2+2048], %idx;\n" + RAISE,
}


@pytest.mark.parametrize("write", CLEAN.values(), ids=CLEAN)
def test_lanes_that_have_met_or_spoken_for_themselves_are_in_order(write: str):
    assert rules(hand_over(write)) == set()


def test_who_waits_for_a_flag_behind_the_meeting_knows_all():
    later = "@%first st.release.sys.global.u32 [%data+640], 55;\n"
    wait = """
    later:
    ld.acquire.sys.global.u32 %r2, [%data+640];
    setp.ne.u32 %p3, %r2, 55;
    @%p3 bra later;
    """
    assert rules(hand_over(STORE + RAISE + SYNC + later, again=wait)) == set()
    assert RULE in rules(hand_over(STORE + RAISE + later, again=wait))


def test_an_access_is_covered_when_the_last_of_its_lanes_has_released():
    apart = DivergentLanes()
    record_access(apart.left, FULL, epoch=3, pc=7)
    apart.cover(1, epoch=3)
    assert apart.speak(1, until=3, pc=9)
    assert apart.uncovered(3, 7, known=3) and not apart.uncovered(3, 7, known=EVERYTHING)
    assert not apart.uncovered(2, 7, known=3)
    apart.cover(FULL, epoch=5)
    assert apart.uncovered(3, 7, known=4) and not apart.uncovered(3, 7, known=5)
    assert not apart.speak(1, until=9, pc=9)


LOAD, PUT = "ld.shared.u32 %r2, [%r1];\n", "st.shared.u32 [%r1], %idx;\n"
SHUFFLE = "shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;\n"
PARTS = """
and.b32 %r4, %idx, SIZE;
setp.eq.u32 %p6, %r4, 0;
selp.b32 %r5, MASKS, %p6;
shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r5;
"""
HALVES = PARTS.replace("SIZE", "16").replace("MASKS", "0x0000ffff, 0xffff0000")
"""A shuffle in the lower and in the upper half of each warp."""
ALL = PARTS.replace("SIZE", "16").replace("MASKS", "-1, 0xffffffff")
"""A shuffle of all lanes, whose mask only a run shows."""


@pytest.mark.parametrize(
    "first, then, severity",
    [
        (PUT, LOAD, "error"),
        (PUT + SHUFFLE, LOAD, "error"),
        (LOAD, PUT, "error"),
        (LOAD + SHUFFLE, PUT, "warning"),
        (SHUFFLE + LOAD, PUT, "error"),
        (LOAD + ALL, PUT, "warning"),
        (ALL + LOAD, PUT, "error"),
        (LOAD + HALVES, PUT, "error"),
        ("@%p5 " + LOAD + HALVES, "@%p5 " + PUT, "warning"),
        (LOAD + "@%p7 bra over;\n" + SHUFFLE + "over:\n", PUT, "warning"),
        ("@%first " + LOAD, PUT, None),
        (LOAD + SYNC, PUT, None),
    ],
)
def test_one_thread_speaks_for_what_others_of_its_warp_wrote_or_read(
    first: str, then: str, severity: str | None
) -> None:
    """A release by the first lane of each warp; another warp then touches the words of all its lanes. What was only
    read is a warning where an instruction of the whole warp, or of all lanes that read it, stands in between."""
    first = "setp.ne.u32 %p7, %idx, %idx;\nand.b32 %r4, %idx, 16;\nsetp.eq.u32 %p5, %r4, 0;\n" + first
    body = f"""
@%first mbarrier.init.shared::cta.b64 [bar], 4;
bar.sync 0;
shl.b32 %r0, %idx, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
{first}
and.b32 %r4, %idx, 31;
setp.eq.u32 %p2, %r4, 0;
@%p2 mbarrier.arrive.shared::cta.b64 %d0, [bar];
wait_0:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra wait_0;
xor.b32 %r0, %r0, 256;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
{then}
"""
    found = {(finding.rule, finding.severity) for finding in findings(Example(body)) if finding.rule == RULE}
    assert found == ({(RULE, severity)} if severity else set())


ACROSS = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
shl.b32 %r0, %idx, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
st.shared.u32 [%r1], %idx;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
setp.eq.u32 %p2, %rank, 0;
@%p2 bra writer;
ld.shared.u32 %r2, [%r1];
BETWEEN
mov.u32 %r3, bar;
mapa.shared::cluster.u32 %r3, %r3, 0;
@%first mbarrier.arrive.SEM.cluster.shared::cluster.b64 _, [%r3];
bra done;
writer:
wait_0:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra wait_0;
mapa.shared::cluster.u32 %r3, %r1, 1;
st.shared::cluster.u32 [%r3], %idx;
done:
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
"""


@pytest.mark.parametrize(
    "between, sem, found",
    [
        (SYNC, "release", set()),
        ("", "release", {(RULE, "error")}),
        (SHUFFLE, "release", {("hand-off-scope", "warning")}),
        (SYNC, "relaxed", {("hand-off-scope", "warning"), ("remote-arrival-scope", "warning")}),
    ],
)
def test_one_lane_tells_another_cta_for_its_warp(between: str, sem: str, found: set[tuple[str, str]]) -> None:
    body = ACROSS.replace("BETWEEN", between).replace("SEM", sem)
    assert {(one.rule, one.severity) for one in findings(Example(body, threads=32, cluster=2))} == found


LEAVES = "and.b32 %r3, %idx, 16;\nsetp.ne.u32 %p1, %r3, 0;\n@%p1 exit;\n"
"""The upper half of each warp ends."""
MINE = """
shl.b32 %r0, %idx, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
st.shared.u32 [%r1], %idx;
"""


def other(distance: int) -> str:
    """Each thread reads what one so many threads away has written, and stores it."""
    return f"""
    xor.b32 %r4, %r0, {4 * distance};
    mov.u32 %r1, tile;
    add.u32 %r1, %r1, %r4;
    ld.shared.u32 %r2, [%r1];
    cvt.u64.u32 %d0, %r0;
    add.u64 %d0, %d0, %data;
    st.global.u32 [%d0], %r2;
    """


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync 0;", "bar.sync 1, 128;"])
@pytest.mark.parametrize(("distance", "rule"), [(16, "lane-race"), (48, "warp-synchronous")])
def test_a_barrier_does_not_order_what_threads_did_that_exited_in_front_of_it(barrier: str, distance: int, rule: str):
    """PTX ISA 9.7.12.7, 9.7.13.1: it does not wait for them, and speaks only for those that pass it."""
    assert rules(Example(MINE + LEAVES + barrier + other(distance))) == {rule}
    assert rules(Example(MINE + barrier + LEAVES + barrier + other(distance))) == set()


def test_threads_may_exit_in_front_of_a_barrier_that_the_others_pass():
    """A barrier that part of a warp skips on its way out is no finding in itself: the ISA releases it."""
    assert rules(Example(LEAVES + MINE + "bar.sync 0;\n" + other(4))) == set()
    assert rules(Example(LEAVES + MINE + other(4))) == {"lane-race"}


@pytest.mark.parametrize("distance", [4, 36])
def test_the_threads_that_stay_are_ordered_by_later_barriers(distance: int):
    body = MINE + LEAVES + "bar.sync 0;\n" + MINE + "bar.sync 0;\n" + other(distance)
    assert rules(Example(body)) == set()
