"""Diverged threads of a warp: each fences and releases its own writes, and together they cover the warp."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.sanitizer.pieces import FILL, INIT, READ, STORE, STORED, load, wait
from tests.sanitizer.running import findings, rules
from warploom import asm
from warploom.emulator import api
from warploom.sanitizer import EXPLORED, Sanitizer
from warploom.sanitizer.rules import RULES, Example

APART = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.init.shared::cta.b64 [bar+8], 128;
bar.sync 0;
and.b32 %r8, %idx, 1;
setp.eq.u32 %p3, %r8, 0;
@%first mbarrier.arrive.shared::cta.b64 _, [bar];
@%p3 bra even;
odd:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra odd;
ODD
bra.uni meet;
even:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra even;
EVEN
meet:
"""
"""Even and odd threads leave a loop around a wait apart, and go different ways."""
PROXY = "fence.proxy.async;\n"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [bar+8];\n"
OTHERS = """
xor.b32 %r0, %r0, 256;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r2, [%r1];
"""
everywhere = pytest.mark.parametrize(("schedule", "seed"), EXPLORED, ids=lambda value: str(value))


def apart(odd: str, even: str, then: str) -> Example:
    return Example(APART.replace("ODD", odd).replace("EVEN", even) + then)


@everywhere
def test_each_half_of_a_warp_fences_its_own_writes(schedule: str, seed: int):
    stored = "bar.sync 0;\n" + STORE + STORED
    assert rules(apart(FILL + PROXY, FILL + PROXY, stored), schedule, seed) == set()
    for odd, even in ((FILL, FILL + PROXY), (FILL + PROXY, FILL), (FILL + PROXY, PROXY + FILL)):
        assert "generic-write-before-async-read" in rules(apart(odd, even, stored), schedule, seed)


@everywhere
def test_a_write_behind_the_own_fence_is_not_covered_by_the_others_fence(schedule: str, seed: int):
    late = FILL + PROXY + "st.shared.u32 [%r1], 0;\n"
    body = apart(late, FILL + PROXY, "bar.sync 0;\n" + STORE + STORED)
    assert "generic-write-before-async-read" in rules(body, schedule, seed)


@everywhere
def test_arrivals_of_both_halves_release_what_the_warp_wrote(schedule: str, seed: int):
    then = wait(0, "9", "bar+8") + OTHERS
    assert rules(apart(FILL + ARRIVE, FILL + ARRIVE, then), schedule, seed) == set()
    for odd, even in ((FILL + ARRIVE, ARRIVE + FILL), (ARRIVE + FILL, FILL + ARRIVE)):
        assert rules(apart(odd, even, then), schedule, seed) & {"warp-synchronous", "data-race"}


@everywhere
def test_one_thread_does_not_speak_for_its_warp_to_the_async_proxy_either(schedule: str, seed: int):
    """All fence, and only the first of each warp arrives."""
    body = (
        "@%first mbarrier.init.shared::cta.b64 [bar], 4;\nbar.sync 0;\n" + FILL + PROXY + "MEET"
        "and.b32 %r4, %idx, 31;\nsetp.eq.u32 %p2, %r4, 0;\n@%p2 mbarrier.arrive.shared::cta.b64 %d0, [bar];"
        + wait() + STORE + STORED
    )  # fmt: skip
    assert "warp-synchronous" in rules(Example(body.replace("MEET", "")), schedule, seed)
    assert rules(Example(body.replace("MEET", "bar.warp.sync -1;\n")), schedule, seed) == set()


# -- lanes that race with each other -----------------------------------------------------------------------------

OWN = """
and.b32 %r8, %idx, 31;
shl.b32 %r0, %idx, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
"""
PUT, GET_OTHER = "st.shared.u32 [%r1], %idx;\n", "xor.b32 %r2, %r1, 4;\nld.shared.u32 %r3, [%r2];\n"
SHUFFLE = "shfl.sync.bfly.b32 %r4, %r8, 1, 31, 0xffffffff;\n"
MEET, MEET_HALVES = (
    "bar.warp.sync 0xffffffff;\n",
    """
setp.lt.u32 %p2, %r8, 16;
selp.b32 %r5, 0x0000ffff, 0xffff0000, %p2;
bar.warp.sync %r5;
""",
)
OVER_A_PHASE = "mbarrier.arrive.shared::cta.b64 %d0, [bar];" + wait()
INITIALISED = "@%first mbarrier.init.shared::cta.b64 [bar], 32;\nbar.sync 0;\n"
ROWS = """
and.b32 %r2, %r8, 7;
shl.b32 %r2, %r2, 4;
mov.u32 %r3, tile;
add.u32 %r3, %r3, %r2;
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r8};
"""
CASES = {
    "read after write": (PUT + GET_OTHER, True),
    "write after read": (PUT + "bar.sync 0;\n" + GET_OTHER + PUT, True),
    "a shuffle orders no memory": (PUT + SHUFFLE + GET_OTHER, True),
    "a vote orders no memory": (PUT + "vote.sync.all.pred %p2, %p2, 0xffffffff;\n" + GET_OTHER, True),
    "the own word": (PUT + "ld.shared.u32 %r3, [%r1];\n", False),
    "met in between": (PUT + MEET + GET_OTHER, False),
    "met in between, in halves": (PUT + MEET_HALVES + GET_OTHER, False),
    "met in halves, and reads from the other half": (PUT + MEET_HALVES + GET_OTHER.replace("4;", "64;", 1), True),
    "a barrier of the CTA": (PUT + "bar.sync 0;\n" + GET_OTHER, False),
    "a phase that each lane completes": (INITIALISED + PUT + OVER_A_PHASE + GET_OTHER, False),
    "matrix rows of other lanes": (
        PUT + "and.b32 %r2, %r8, 7;\nshl.b32 %r2, %r2, 4;\nmov.u32 %r3, tile;\nadd.u32 %r3, %r3, %r2;\n"
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];\n", True,
    ),
    "rows that stmatrix stored, as FlashInfer's prefill reads O": (ROWS + GET_OTHER, True),
    "rows that stmatrix stored, met in between": (ROWS + MEET + GET_OTHER, False),
    "different values from one instruction": ("mov.u32 %r1, tile;\n" + PUT, True),
    "one value from one instruction": ("mov.u32 %r1, tile;\nst.shared.u32 [%r1], 7;\n", False),
}  # fmt: skip


@pytest.mark.parametrize(("schedule", "seed"), [("lazy", 0), ("random", 0), ("random", 1)])
@pytest.mark.parametrize("case", CASES)
def test_lanes_of_one_warp_race_unless_they_have_met(case: str, schedule: str, seed: int):
    body, races = CASES[case]
    assert ("lane-race" in rules(Example(OWN + body, threads=32), schedule, seed)) is races


COUNTED = """
mov.u32 %r4, bar;
@%first st.shared.u32 [%r4], 64;
@%first st.shared.u32 [%r4+4], 0;
bar.sync 0;
PUT
ATOMIC
setp.ne.u32 %p2, %r5, 1;
@%p2 bra wait;
ld.shared.u32 %r6, [tile];
st.shared.u32 [tile+512], %r6;
st.release.cta.shared.u32 [%r4+4], 1;
wait:
ld.acquire.cta.shared.u32 %r6, [%r4+4];
setp.eq.u32 %p2, %r6, 0;
@%p2 bra wait;
ld.shared.u32 %r6, [tile+512];
"""
ATOMIC = "atom.add.SEM.cta.shared.u32 %r5, [%r4], -1;\n"
"""Threads count down; the last thread reads what the first one wrote, and lets all go on."""


@everywhere
def test_the_last_lane_of_an_atomic_has_heard_of_those_before_it(schedule: str, seed: int):
    """libcu++'s cuda::barrier with a completion function does this."""
    body = OWN + COUNTED.replace("PUT", PUT).replace("ATOMIC", ATOMIC.replace("SEM", "acq_rel")) + GET_OTHER
    assert rules(Example(body, threads=64), schedule, seed) == set()


@everywhere
def test_what_lanes_do_behind_the_atomic_is_not_heard_of(schedule: str, seed: int):
    body = OWN + COUNTED.replace("PUT", "").replace("ATOMIC", ATOMIC.replace("SEM", "acq_rel") + PUT)
    assert rules(Example(body, threads=64), schedule, seed) & {"lane-race", "warp-synchronous", "data-race"}
    body = OWN + COUNTED.replace("PUT", PUT).replace("ATOMIC", ATOMIC.replace("SEM", "relaxed")) + GET_OTHER
    assert rules(Example(body, threads=64), schedule, seed) & {"lane-race", "warp-synchronous", "data-race"}


PASSED_ON = """
@%first mbarrier.init.shared::cta.b64 [bar], 32;
@%first mbarrier.init.shared::cta.b64 [bar+8], 1;
bar.sync 0;
setp.gt.u32 %p2, %idx, 31;
@%p2 bra other;
DEED
back:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar+8], 0;
@!%p0 bra back;
GET
bra end;
other:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra other;
setp.eq.u32 %p2, %r8, 0;
@%p2 mbarrier.arrive.shared::cta.b64 _, [bar+8];
end:
""".replace("GET", GET_OTHER)


@everywhere
@pytest.mark.parametrize(("late", "found"), [(False, set()), (True, {"lane-race"})])
def test_another_warp_may_pass_on_what_lanes_did(late: bool, found: set[str], schedule: str, seed: int):
    arrive = "mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    body = OWN + PASSED_ON.replace("DEED", arrive + PUT if late else PUT + arrive)
    assert rules(Example(body, threads=64), schedule, seed) == found


@pytest.mark.parametrize(
    ("body", "usual", "strict"),
    [(PUT + GET_OTHER, "error", "error"), (CASES["different values from one instruction"][0], "warning", "error")],
    ids=["two instructions", "one instruction"],
)
def test_a_lane_race_is_an_error_unless_one_instruction_makes_it(body: str, usual: str, strict: str):
    """Of the values that lanes store at once, one stays: code that does not mind is common."""
    example = Example(OWN + body, threads=32)
    for is_strict, severity in ((False, usual), (True, strict)):
        report = api.run(
            asm.parse(example.text(), name="example.ptx"), "k", [np.zeros(2048, np.uint32)], grid=(1, 1, 1),
            block=(32, 1, 1), watch=[partial(Sanitizer, strict=is_strict)],
        )  # fmt: skip
        (found,) = [finding for finding in report.findings if finding.rule == "lane-race"]
        assert found.severity == severity


@everywhere
def test_a_lane_that_publishes_its_own_word_need_not_meet_its_neighbours(schedule: str, seed: int):
    """Warp 0 writes, lane 0 arrives; warp 1 reads the word of lane 0, or that of lane 1, which has told nobody."""
    for reads, found in (("0", set()), ("4", {"warp-synchronous"})):
        body = (
            "@%first mbarrier.init.shared::cta.b64 [bar], 1;\nbar.sync 0;\nsetp.lt.u32 %p2, %idx, 32;\n" + OWN
            + "@%p2 st.shared.u32 [%r1], %idx;\n@%first mbarrier.arrive.shared::cta.b64 _, [bar];\n@%p2 bra done;\n"
            + wait() + f"ld.shared.u32 %r3, [tile+{reads}];\ndone:\n"
        )  # fmt: skip
        assert rules(Example(body, threads=64), schedule, seed) == found


CP_ASYNC_OF_EACH = """
shl.b32 %r0, %idx, 4;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
cp.async.cg.shared.global [%r1], [%d2], 16;
mov.u32 %r2, %laneid;
setp.ne.u32 %p1, %r2, 0;
COMMIT
WAIT
bar.sync 0;
xor.b32 %r0, %r0, 16;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r2, [%r1];
"""


@pytest.mark.parametrize(
    "commit, wait, rule",
    [
        ("cp.async.commit_group;", "cp.async.wait_group 0;", None),
        ("@%p1 cp.async.commit_group;", "cp.async.wait_group 0;", "cp-async-not-waited"),
        ("cp.async.commit_group;", "@%p1 cp.async.wait_group 0;", "cp-async-not-waited"),
        ("cp.async.commit_group;", "@%p1 cp.async.wait_group 0;\n@!%p1 cp.async.wait_group 0;", None),
    ],
)
def test_every_lane_waits_for_its_part_of_a_copy(commit, wait, rule):
    body = CP_ASYNC_OF_EACH.replace("COMMIT", commit).replace("WAIT", wait)
    errors = {one.rule for one in findings(Example(body)) if one.severity == "error"}
    assert errors == ({rule} if rule else set())


@pytest.mark.parametrize(
    "after, severity",
    [
        ("", "warning"),
        ("bar.sync 0;\nld.shared.u32 %r2, [tile];", "error"),
        ("bar.sync 0;\n@%first st.shared.u32 [tile], 0;\nbar.sync 0;\nld.shared.u32 %r2, [tile];", "warning"),
        ("bar.sync 0;\nld.shared.u32 %r2, [tile+4];", "warning"),
    ],
)
def test_a_value_of_which_nothing_says_whose_it_is_must_not_be_read(after, severity):
    body = "st.shared.u32 [tile+4], 0;\nsetp.lt.u32 %p1, %idx, 32;\nbar.sync 0;\n@%p1 st.shared.u32 [tile], %idx;\n"
    found = {one.severity for one in findings(Example(body + after)) if one.rule == "lane-race"}
    assert found == {severity}


@pytest.mark.parametrize(
    "after, severity",
    [
        ("", "error"),
        ("bar.sync 0;\n@%first st.global.u32 [%data], 0;\n", "warning"),
        ("bar.sync 0;\n@%first st.global.u32 [%data+4], 0;\n", "error"),
    ],
)
def test_a_value_of_which_nothing_says_whose_it_is_must_not_be_what_a_kernel_leaves(after, severity):
    body = "setp.lt.u32 %p1, %idx, 32;\n@%p1 st.global.u32 [%data], %idx;\n"
    assert {one.severity for one in findings(Example(body + after)) if one.rule == "lane-race"} == {severity}


def test_lanes_of_one_instruction_are_not_told_to_put_a_barrier_between_it_and_itself():
    """Two instructions are parted by a barrier; two lanes of one instruction are not."""
    body = "setp.lt.u32 %p1, %idx, 32;\n@%p1 st.shared.u32 [tile], %idx;\n"
    (found,) = [one for one in findings(Example(body)) if one.rule == "lane-race"]
    assert len(found.sides) == 1 and "bar.warp.sync" not in found.fix and found.fix in found.message
    (found,) = [one for one in findings(RULES["lane-race"].bad) if one.rule == "lane-race"]
    assert len(found.sides) == 2 and found.fix == RULES["lane-race"].fix


@pytest.mark.parametrize(
    "between, found",
    [("", {"lane-race"}), ("bar.warp.sync 0xffffffff;", set()), ("bar.sync 0;", set()),
     ("vote.sync.all.pred %p2, %p1, 0xffffffff;", {"lane-race"})],
)  # fmt: skip
def test_a_copy_is_waited_for_by_its_lane_alone(between: str, found: set[str]):
    """Behind cp.async.wait_group a lane sees what it copied itself (9.7.9.25.3.3)."""
    body = CP_ASYNC_OF_EACH.replace("COMMIT", "cp.async.commit_group;").replace("WAIT", "cp.async.wait_group 0;")
    assert rules(Example(body.replace("bar.sync 0;", between))) == found
    own = body.replace("bar.sync 0;\nxor.b32 %r0, %r0, 16;", "")
    assert rules(Example(own)) == set()


@pytest.mark.parametrize("schedule, seed", EXPLORED, ids=str)
@pytest.mark.parametrize("meet", [False, True])
def test_a_store_is_not_hidden_by_the_atomic_behind_it(meet: bool, schedule: str, seed: int):
    """The first thread clears a sum to which all then add; an atomic of its own covers the store."""
    body = "@%first st.shared.u32 [tile], 0;\n" + ("bar.sync 0;\n" if meet else "") + (
        "atom.shared.add.u32 %r2, [tile], 1;\nbar.sync 0;\nld.shared.u32 %r2, [tile];"
    )  # fmt: skip
    assert ("data-race" in rules(Example(body), schedule, seed)) is not meet


@pytest.mark.parametrize("schedule, seed", EXPLORED, ids=str)
@pytest.mark.parametrize("meeting, found", [("bar.warp.sync -1;", set()), ("", {"lane-race"})], ids=["meet", "do not"])
@pytest.mark.parametrize(
    "body",
    [
        "@%first st.shared.u32 [tile], 0;\nMEETING\natom.shared.add.u32 %r2, [tile], 1;",
        "@%first st.shared.u32 [tile], 0;\nbar.sync 0;\nred.shared.add.u32 [tile], 1;\nMEETING\n"
        "ld.shared.u32 %r2, [tile];",
    ],
    ids=["store, atomics", "atomics, load"],
)
def test_plain_accesses_and_atomics_of_other_lanes_race(
    body: str, meeting: str, found: set[str], schedule: str, seed: int
):
    """A warp clears a histogram in shared memory, counts, and reads the counts."""
    assert rules(Example(body.replace("MEETING", meeting), threads=32), schedule, seed) == found


SOME_LANES = "setp.lt.u32 %p3, %r8, 16;\nselp.b32 %r5, {}, %p3;\n"
HALVES, PAIRS = SOME_LANES.format("0x0000ffff, 0xffff0000"), "and.b32 %r5, %r8, 30;\nshl.b32 %r5, 3, %r5;\n"
"""%r5: the mask of a lane's half of the warp, and of its pair."""
IN_PARTS = (
    "shfl.sync.bfly.b32 %r4, %r8, 1, 31, %r5;\n",
    "vote.sync.ballot.b32 %r4, %p2, %r5;\n",
    "match.any.sync.b32 %r4, %r8, %r5;\n",
    "redux.sync.add.u32 %r4, %r8, %r5;\n",
    "elect.sync %r4|%p4, %r5;\n",
)


@pytest.mark.parametrize("exchange", IN_PARTS, ids=lambda text: text.split(".")[0])
def test_lanes_that_exchange_by_a_partial_mask_are_kept_together_as_by_a_whole_one(exchange: str):
    """An exchange orders no memory, whatever its mask. It ends a read, of its own lanes only."""
    whole = SOME_LANES.format("-1, 0xffffffff")
    some = ((HALVES, 1, "warning"), (HALVES, 16, "error"), (PAIRS, 1, "warning"), (PAIRS, 2, "error"))
    for masks, distance, read in (*some, (whole, 16, "warning")):
        get = GET_OTHER.replace("4;", f"{4 * distance};", 1)
        reads = OWN + PUT + "bar.sync 0;\nsetp.eq.u32 %p2, %idx, %idx;\n" + masks + get + exchange + PUT
        assert {(one.rule, one.severity) for one in findings(Example(reads, threads=32))} == {("lane-race", read)}
        writes = OWN + "setp.eq.u32 %p2, %idx, %idx;\n" + masks + PUT + exchange + get
        assert {(one.rule, one.severity) for one in findings(Example(writes, threads=32))} == {("lane-race", "error")}


def test_exchanges_one_after_the_other_keep_the_lanes_of_both_together():
    """Pairs and pairs of pairs, as in a reduction of four lanes; a barrier of the halves does not join them."""
    reads = OWN + PUT + "bar.sync 0;\n" + GET_OTHER.replace("4;", "12;", 1) + PAIRS + IN_PARTS[0]
    fours = "xor.b32 %r6, %r8, 2;\nand.b32 %r6, %r6, 30;\nshl.b32 %r6, 3, %r6;\nor.b32 %r5, %r5, %r6;\n"
    for body, severity in ((reads + PUT, "error"), (reads + fours + IN_PARTS[0] + PUT, "warning")):
        assert {one.severity for one in findings(Example(body, threads=32))} == {severity}
    across = OWN + PUT + "bar.sync 0;\n" + GET_OTHER.replace("4;", "64;", 1) + HALVES + "bar.warp.sync %r5;\n" + PUT
    assert {one.severity for one in findings(Example(across, threads=32))} == {"error"}


@pytest.mark.parametrize(("held", "usual"), [(SHUFFLE, "warning"), ("", "error"), ("@%p2 " + SHUFFLE, "error")],
                         ids=["held", "not held", "held by some"])  # fmt: skip
def test_a_read_may_end_at_a_shuffle_but_a_write_may_not(held: str, usual: str):
    """Cooperative groups read a word, combine what lanes have by redux.sync, and store the result into that word."""
    read_before = OWN + PUT + "bar.sync 0;\nsetp.eq.u32 %p2, %idx, %idx;\n" + GET_OTHER
    severities = {finding.severity for finding in findings(Example(read_before + held + PUT, threads=32))
                  if finding.rule == "lane-race"}  # fmt: skip
    assert severities == {usual}
    report = api.run(
        asm.parse(Example(read_before + held + PUT, threads=32).text(), name="example.ptx"), "k",
        [np.zeros(2048, np.uint32)], grid=(1, 1, 1), block=(32, 1, 1), watch=[partial(Sanitizer, strict=True)],
    )  # fmt: skip
    assert {finding.severity for finding in report.findings if finding.rule == "lane-race"} == {"error"}
    written = findings(Example(OWN + PUT + held + GET_OTHER, threads=32))
    assert {finding.severity for finding in written if finding.rule == "lane-race"} == {"error"}


DROPPED = """
@%first mbarrier.init.shared::cta.b64 [bar], 128;
@%first st.shared.u32 [tile], 0;
bar.sync 0;
setp.gt.u32 %p2, %r8, 23;
READ
@%p2 mbarrier.arrive_drop.shared::cta.b64 %d0, [bar];
@%p2 bra gone;
mbarrier.arrive.shared::cta.b64 %d0, [bar];
"""
DROPPED += (
    wait().replace("wait_0", "some")
    + """
READ
EACH
"""
    + wait(1).replace("wait_0", "more")
    + """
@%first st.shared.u32 [tile], 1;
gone:
"""
)


@everywhere
@pytest.mark.parametrize("each", [True, False])
def test_lanes_that_have_left_a_barrier_are_not_asked_for_what_the_others_did(each: bool, schedule: str, seed: int):
    """cuda::barrier's arrive_and_drop: the lanes that stay read, and each arrives for itself."""
    arrive = "mbarrier.arrive.shared::cta.b64 %d0, [bar];\n"
    other = "setp.gt.u32 %p3, %r8, 15;\n@%p3 mbarrier.arrive.shared::cta.b64 %d0, [bar], 2;\n"
    few = "setp.lt.u32 %p4, %r8, 8;\n@%p4 " + arrive
    body = OWN + DROPPED.replace("EACH", arrive if each else other + few)
    found = rules(Example(body.replace("READ", "ld.shared.u32 %r3, [tile];")), schedule, seed)
    assert ("warp-synchronous" in found) is not each


INIT_ONE = "setp.eq.u32 %p2, %r8, 5;\n@%p2 mbarrier.init.shared::cta.b64 [bar], 32;\n"
USES = {
    "arrive": OVER_A_PHASE,
    "another lane alone": "setp.eq.u32 %p3, %r8, 7;\n@%p3 mbarrier.arrive.shared::cta.b64 %d0, [bar];\n",
    "a copy": "setp.eq.u32 %p3, %r8, 7;\n@%p3 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 512;\n"
    "@%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 512, [bar];\n"
    + OVER_A_PHASE,
}


@everywhere
@pytest.mark.parametrize("use", USES)
def test_lanes_meet_behind_the_initialisation_of_their_barrier(use: str, schedule: str, seed: int):
    for meet, races in (("", True), ("bar.warp.sync 0xffffffff;\n", False), ("bar.sync 0;\n", False)):
        found = rules(Example(OWN + INIT_ONE + meet + USES[use], threads=32), schedule, seed)
        assert ("lane-race" in found) is races
    own = INIT_ONE.replace("32;", "1;") + USES["another lane alone"].replace("7;", "5;")
    assert rules(Example(OWN + own, threads=32), schedule, seed) == set()


FENCED = FILL + "fence.proxy.async.shared::cta;\n"
AGAIN = "bar.sync 0;\n" + READ + "fence.proxy.async.shared::cta;\n"


@everywhere
@pytest.mark.parametrize(
    "before, copy",
    [(FENCED, STORE + STORED), (INIT + FILL + AGAIN, load(128) + wait() + "bar.sync 0;\n")],
    ids=["reads what they wrote", "writes what they read"],
)
def test_lanes_meet_before_one_of_them_starts_a_copy(before: str, copy: str, schedule: str, seed: int):
    """Each lane has fenced for itself, and may not have come so far when the first one starts the copy."""
    copy = copy.replace("], 512;", "], 128;").replace("[tile], 512", "[tile], 128")
    for meet, races in (("", True), (MEET, False), ("bar.sync 0;\n", False)):
        assert ("lane-race" in rules(Example(before + meet + copy, threads=32), schedule, seed)) is races
    assert rules(Example(before + MEET + copy, threads=32), schedule, seed) <= {"generic-access-before-async-write"}


LOOPED = """
mov.u32 %r5, 0;
again:
MET
st.shared.u32 [%r1], %idx;
bar.warp.sync -1;
xor.b32 %r2, %r1, 4;
ld.shared.u32 %r3, [%r2];
add.u32 %r5, %r5, 1;
setp.lt.u32 %p2, %r5, 3;
@%p2 bra again;
"""


@pytest.mark.parametrize(
    ("met", "severity"),
    [("", "error"), (SHUFFLE, "warning"), ("@%p2 " + SHUFFLE, "error"), (MEET, None)],
)
def test_a_shuffle_at_the_head_of_a_loop_holds_the_lanes_of_its_end(met: str, severity: str | None):
    """The read of a round stands after the write of the next one in the text, and a shuffle on the way."""
    body = OWN + "setp.ne.u32 %p2, %idx, 99;\n" + LOOPED.replace("MET", met)
    found = [one.severity for one in findings(Example(body, threads=32)) if one.rule == "lane-race"]
    assert found == ([severity] if severity else [])


UNEVEN = "shfl.sync.bfly.b32 %f3, %f4, 1, 31, -1;\nfma.rn.f32 %f4, %f1, %f3, %f4;\n"  # weighted by a lane's own number
SUM = """
cvt.rn.f32.u32 %f1, %idx;
add.f32 %f1, %f1, 0f3F99999A;
mul.f32 %f2, %f1, %f1;
shfl.sync.bfly.b32 %f3, %f2, 16, 31, -1;
fma.rn.f32 %f4, %f1, %f1, %f3;
LEVELS
st.shared.f32 [tile], %f4;
bar.sync 0;
ld.shared.f32 %f5, [tile];
"""


def levels(*distances: int) -> str:
    one = "shfl.sync.bfly.b32 %f3, %f4, {}, 31, -1;\nadd.f32 %f4, %f4, %f3;\n"
    return "".join(one.format(distance) for distance in distances)


@pytest.mark.parametrize(
    ("distances", "found"), [((8, 4, 2, 1), set()), ((8, 4, 2), {"lane-race"}), ((8, 4, 2, 2), {"lane-race"})]
)
def test_lanes_may_store_their_sums_at_one_place_though_they_are_rounded_differently(distances, found):
    """1.2 and more, squared: the first sum of a lane is not its partner's, since one of the products is not rounded."""
    assert rules(Example(SUM.replace("LEVELS", levels(*distances)), threads=32)) == found


BRANCHED = """
lg2.approx.f32 %f6, %f4;
setp.lt.f32 %p2, {}, 0f41000000;
@%p2 bra small;
mul.f32 %f6, {}, 0f3E000000;
small:
"""


@pytest.mark.parametrize(
    ("made", "stored", "found"),
    [
        ("mul.f32 %f6, %f4, 0f3E000000;\nrsqrt.approx.f32 %f6, %f6;", "f32 [tile], %f6", set()),
        ("mov.f32 %f6, %f4;", "v2.f32 [tile], {%f4, %f6}", set()),
        ("cvt.rn.f16x2.f32 %r9, %f4, %f4;", "b32 [tile], %r9", set()),
        (BRANCHED.format("%f4", "%f4"), "f32 [tile], %f6", set()),
        (BRANCHED.format("%f1", "%f4"), "f32 [tile], %f6", {"lane-race"}),  # a lane's own number decides
        (BRANCHED.format("%f4", "%f1"), "f32 [tile], %f6", {"lane-race"}),
        ("mul.f32 %f6, %f4, %f1;", "f32 [tile], %f6", {"lane-race"}),  # of each lane's own number
        ("mov.f32 %f6, %f1;", "v2.f32 [tile], {%f4, %f6}", {"lane-race"}),
        ("mov.u32 %r9, %laneid;\ncvt.rn.f32.u32 %f4, %r9;", "f32 [tile], %f4", {"lane-race"}),
    ],
)
def test_what_is_made_of_sums_alone_is_as_good_as_a_sum(made: str, stored: str, found: set[str]):
    body = SUM.replace("LEVELS", levels(8, 4, 2, 1) + made).replace("f32 [tile], %f4", stored)
    assert rules(Example(body, threads=32)) == found


MEANS = """
cvt.rn.f32.u32 %f1, %idx;
mul.f32 %f1, %f1, 0f3F99999A;
mov.f32 %f2, 0f3F800000;
STEPS
st.shared.f32 [tile], %f1;
bar.sync 0;
ld.shared.f32 %f5, [tile];
"""
MEAN_OF_BOTH = """
shfl.sync.bfly.b32 %f3, %f1, {}, 31, -1;
shfl.sync.bfly.b32 %f4, %f2, {}, 31, -1;
sub.f32 %f6, %f3, %f1;
add.f32 %f2, %f2, %f4;
setp.eq.f32 %p2, %f2, 0f00000000;
div.full.f32 %f4, %f4, %f2;
selp.f32 %f4, 0f00000000, %f4, %p2;
fma.rn.f32 %f1, %f6, %f4, %f1;
"""


@pytest.mark.parametrize(
    ("step", "distances", "found"),
    [
        (MEAN_OF_BOTH, (16, 8, 4, 2, 1), set()),
        (MEAN_OF_BOTH, (16, 8, 4, 2, 2), {"lane-race"}),
        (MEAN_OF_BOTH.replace("%f2, %f2, %f4;", "%f2, 0f3F800000, %f4;"), (16, 8, 4, 2, 1), {"lane-race"}),
        (MEAN_OF_BOTH.replace("%f6, %f4, %f1", "%f6, 0f3F400000, %f1"), (16, 8, 4, 2, 1), {"lane-race"}),
    ],
)
def test_lanes_may_store_what_they_reduced_at_one_place_if_their_order_does_not_matter(step, distances, found):
    """Welford's mean; one that counts its own lane once; one that takes three quarters of the partner's."""
    steps = "".join(step.format(distance, distance) for distance in distances)
    assert rules(Example(MEANS.replace("STEPS", steps), threads=32)) == found


def test_a_sum_that_each_lane_weights_with_its_own_number_differs_between_lanes():
    assert rules(Example(SUM.replace("LEVELS", levels(8, 4, 2) + UNEVEN), threads=32)) == {"lane-race"}


LARGEST = """
shfl.sync.bfly.b32 %f5, %f1, 4, 31, -1;
max.f32 %f5, %f1, %f5;
mul.f32 %f1, %f1, %f5;
sqrt.approx.f32 %f1, %f1;
"""


@pytest.mark.parametrize(("distances", "found"), [((8, 4, 2, 1), set()), ((8, 2, 1), {"lane-race"})])
def test_what_the_lanes_sum_up_may_come_from_an_earlier_reduction(distances, found):
    """As in a softmax: each number is scaled by a maximum over some lanes, which differs between the others."""
    scaled = SUM.replace("LEVELS", levels(*distances)).replace("mul.f32 %f2", LARGEST + "mul.f32 %f2", 1)
    assert rules(Example(scaled, threads=32)) == found


@pytest.mark.parametrize(
    ("bits", "distances", "found"),
    [("7", (4, 2, 1), set()), ("7", (4, 2), {"lane-race"}), ("15", (4, 2, 1), {"lane-race"})],
)
def test_groups_of_lanes_with_the_same_numbers_may_store_their_sums_at_one_place(bits, distances, found):
    """Four groups of eight lanes sum up eight numbers each, which are the same if lane numbers count modulo eight."""
    start = SUM.replace("cvt.rn.f32.u32 %f1, %idx", f"and.b32 %r9, %idx, {bits};\ncvt.rn.f32.u32 %f1, %r9")
    start = start.replace("%f2, 16,", f"%f2, {distances[0]},").replace("LEVELS", levels(*distances[1:]))
    assert rules(Example(start, threads=32)) == found


@pytest.mark.parametrize(("start", "found"), [("%r8", {"same-value-race"}), ("%idx", {"data-race"})])
def test_warps_with_the_same_numbers_may_store_their_sums_at_one_place(start: str, found: set[str]):
    body = OWN + SUM.replace("LEVELS", levels(8, 4, 2, 1)).replace("f32.u32 %f1, %idx", f"f32.u32 %f1, {start}")
    assert rules(Example(body, threads=64)) == found
