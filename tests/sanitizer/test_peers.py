"""Requirements on two GPUs' strong accesses: scopes of fences after a wait, equal sizes, flags inside data."""

from __future__ import annotations

import re

import pytest

from tests.sanitizer.running import SCHEDULES, findings, rules, run
from warploom.sanitizer.rules import Example

SCHEDULE = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES[:4])


def two(writes: str, reads: str, calls: int = 1, threads: int = 32) -> Example:
    """GPU 0 writes, GPU 1 reads."""
    return Example(
        f"setp.eq.u32 %p2, %gpu, 0;\n@!%p2 bra reader;\n{writes}\nbra done;\nreader:\n{reads}\ndone:\n",
        devices=2, calls=calls, threads=threads,
    )  # fmt: skip


WRITE = """
@!%first bra done;
st.global.u32 [%data], 7;
st.release.sys.global.u32 [%data+512], 77;
"""
WAIT = """
@!%first bra done;
waiting:
ld.volatile.global.u32 %r2, [%data+512];
setp.ne.u32 %p3, %r2, 77;
@%p3 bra waiting;
FENCE
ld.global.u32 %r3, [%data];
"""


@SCHEDULE
@pytest.mark.parametrize("fence", ["membar.sys;", "fence.acq_rel.sys;", "fence.sc.sys;"])
def test_a_fence_behind_a_wait_for_another_gpu_is_of_system_scope(fence, schedule, seed):
    assert rules(two(WRITE, WAIT.replace("FENCE", fence)), schedule, seed) == set()
    narrow = fence.replace("membar.sys", "membar.gl").replace(".sys", ".gpu")
    assert rules(two(WRITE, WAIT.replace("FENCE", narrow)), schedule, seed) == {"global-hand-off"}


def test_a_narrow_fence_keeps_what_a_wider_one_will_make_known():
    assert rules(two(WRITE, WAIT.replace("FENCE", "fence.acq_rel.gpu;\nfence.acq_rel.sys;"))) == set()


PUT = "@%first st.relaxed.sys.global.u64 [%data+512], 0x0000004d00000007;\n"
"""A number and its flag, 77, in one word."""
PUT_BY_HALVES = """
@%first st.relaxed.sys.global.u32 [%data+512], 7;
@%first st.relaxed.sys.global.u32 [%data+516], 77;
"""
GET = """
@!%first bra done;
waiting:
ld.relaxed.sys.global.u64 %d3, [%data+512];
shr.u64 %d4, %d3, 32;
setp.ne.u64 %p3, %d4, 77;
@%p3 bra waiting;
"""
GET_BY_HALVES = """
@!%first bra done;
waiting:
ld.relaxed.sys.global.u32 %r3, [%data+512];
ld.relaxed.sys.global.u32 %r2, [%data+516];
setp.ne.u32 %p3, %r2, 77;
@%p3 bra waiting;
"""
PUT_VECTOR, GET_VECTOR = (
    "@%first st.volatile.global.v2.u32 [%data+512], {%r4, %r5};\n",
    GET_BY_HALVES.replace("ld.relaxed.sys.global.u32 %r3, [%data+512];\n", "").replace(
        "ld.relaxed.sys.global.u32 %r2, [%data+516]", "ld.volatile.global.v2.u32 {%r3, %r2}, [%data+512]"
    ),
)


@SCHEDULE
@pytest.mark.parametrize(
    ("put", "get", "found"),
    [
        (PUT, GET, set()),
        (PUT_BY_HALVES, GET, {"global-data-race"}),
        (PUT, GET_BY_HALVES, {"global-data-race"}),
        ("mov.u32 %r4, 7;\nmov.u32 %r5, 77;\n" + PUT_VECTOR, GET_VECTOR, set()),
    ],
)  # fmt: skip
def test_strong_accesses_that_meet_are_of_one_size(put, get, found, schedule, seed):
    """PTX ISA 8.7.2; a vector is an access for each of its elements, 8.2.2."""
    assert rules(two(put, get), schedule, seed) == found


LINE = """
ld.global.u32 %r4, [%data+1024];
add.u32 %r4, %r4, 1;
shl.b32 %r0, %idx, 3;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
mov.u32 %r5, DATA;
setp.eq.u32 %p3, %idx, 31;
selp.u32 %r5, FLAG, %r5, %p3;
st.volatile.global.v2.u32 [%d2], {%r5, %r5};
bar.warp.sync 0xffffffff;
@%first st.global.u32 [%data+1024], %r4;
"""
LOOK = """
shl.b32 %r0, %idx, 3;
cvt.u64.u32 %d2, %r0;
add.u64 %d2, %d2, %data;
again:
ld.volatile.global.v2.u32 {%r2, %r3}, [%d2];
setp.eq.u32 %p3, %idx, 31;
setp.lt.and.u32 %p3, %r3, 257, %p3;
vote.sync.any.pred %p0, %p3, 0xffffffff;
@%p0 bra again;
"""


@pytest.mark.parametrize(("flag", "found"), [("%r4", set()), ("500", {"peer-flag-stale"})])
def test_a_line_that_carries_its_flag_may_bring_the_same_data_again(flag, found):
    """Word 256, 256 before, counts the launches: the flag is a number of the launch, or always the same."""
    line = LINE.replace("FLAG", flag).replace("DATA", "9")
    assert rules(two(line, LOOK, calls=2), "random", 1) == found


ONE_SLOT = ""
ALTERNATING = """
and.b32 %r4, %launch, 1;
shl.b32 %r4, %r4, 8;
add.u32 %r0, %r0, %r4;
"""
STORED = "st.global.u32 [%d2+7168], %r2;"
COMPUTED = "mov.b32 %f0, %r2;\nadd.f32 %f0, %f0, %f0;"


def exchanged(slots: str, use: str) -> Example:
    """Two GPUs send each other a word for each thread. A word that has come has its highest bit set, and is reset."""
    return Example(
        f"""
        .reg .b32 %launch;
        .reg .b64 %mine, %theirs;
        shl.b32 %r0, %gpu, 3;
        cvt.u64.u32 %mine, %r0;
        add.u64 %d1, %data, %mine;
        ld.global.u32 %launch, [%d1+1024];
        shl.b32 %r0, %gpu, 9;
        cvt.u64.u32 %mine, %r0;
        add.u64 %mine, %data, %mine;
        xor.b32 %r0, %r0, 512;
        cvt.u64.u32 %theirs, %r0;
        add.u64 %theirs, %data, %theirs;
        shl.b32 %r0, %idx, 2;
        cvt.u64.u32 %d0, %r0;
        add.u64 %d2, %mine, %d0;
        {slots}
        cvt.u64.u32 %d0, %r0;
        add.u64 %mine, %mine, %d0;
        add.u64 %theirs, %theirs, %d0;
        or.b32 %r1, %launch, 0x80000000;
        st.relaxed.sys.global.u32 [%theirs+4096], %r1;
        poll:
        ld.relaxed.sys.global.u32 %r2, [%mine+4096];
        setp.lt.u32 %p2, %r2, 0x80000000;
        @%p2 bra poll;
        st.relaxed.sys.global.u32 [%mine+4096], 0;
        {use}
        add.u32 %launch, %launch, 1;
        bar.sync 0;
        @%first st.global.u32 [%d1+1024], %launch;
        """,
        devices=2, calls=3, threads=32,
    )  # fmt: skip


@SCHEDULE
@pytest.mark.parametrize(
    ("slots", "use", "found"),
    [
        (ONE_SLOT, STORED, {"peer-buffer-reused"}),
        (ONE_SLOT, COMPUTED, {"peer-buffer-reused"}),
        (ALTERNATING, STORED, set()),
        (ALTERNATING, COMPUTED, set()),
    ],
)  # fmt: skip
def test_a_word_that_is_data_and_flag_is_not_stored_again_before_it_was_read(slots, use, found, schedule, seed):
    """One slot for each word: a GPU may be a launch ahead. Slots for alternate launches: each launch hears of the last
    one."""
    assert rules(exchanged(slots, use), schedule, seed) == found


@pytest.mark.parametrize("seed", [0, 1])
def test_a_gpu_that_is_held_back_reads_what_another_one_stored_in_a_later_launch(seed):
    found = findings(exchanged(ONE_SLOT, STORED), "starve", seed)
    launches = [
        list(map(int, re.findall(r"launch (\d+)", each.message))) for each in found if " reads " in each.message
    ]
    assert launches and all(mine < theirs for mine, theirs, _ in launches)


POLL = """
poll_SLOT:
ld.relaxed.sys.global.u32 %r2, [%data+SLOT];
setp.lt.u32 %p3, %r2, %r1;
@%p3 bra poll_SLOT;
st.global.u32 [%data+OWN], %r2;
"""


def asked(answer: str) -> Example:
    """GPU 0 sends a word and waits for the answer of GPU 1; each word has one slot and counts the launches."""
    request = POLL.replace("SLOT", "4096").replace("OWN", "2048")
    reply = POLL.replace("SLOT", "6144").replace("OWN", "3072")
    return Example(
        f"""
        shl.b32 %r0, %gpu, 3;
        cvt.u64.u32 %d1, %r0;
        add.u64 %d1, %data, %d1;
        ld.global.u32 %r1, [%d1+1024];
        and.b32 %r1, %r1, 0xfffffffd;
        add.u32 %r1, %r1, 0x10000;
        bar.sync 0;
        setp.eq.u32 %p2, %gpu, 0;
        @!%p2 bra other;
        @!%first bra done;
        st.relaxed.sys.global.u32 [%data+4096], %r1;
        {reply}
        bra done;
        other:
        {answer.replace("REQUEST", request)}
        done:
        bar.sync 0;
        @%first st.global.u32 [%d1+1024], %r1;
        """,
        devices=2, calls=3, threads=64,
    )  # fmt: skip


ANSWER = "st.relaxed.sys.global.u32 [%data+6144], %r1;"
IN_TURN = f"@!%first bra done;\nREQUEST\n{ANSWER}"
BY_ANOTHER_WARP = f"@!%first bra behind;\nREQUEST\nbehind:\nbar.sync 1;\nsetp.eq.u32 %p3, %idx, 32;\n@%p3 {ANSWER}"
TOO_EARLY = f"@!%first bra done;\n{ANSWER}\nREQUEST"


@SCHEDULE
@pytest.mark.parametrize("answer", [IN_TURN, BY_ANOTHER_WARP])
def test_an_answer_tells_that_the_word_before_it_was_read(answer, schedule, seed):
    assert rules(asked(answer), schedule, seed) == set()


def test_an_answer_that_is_sent_before_the_word_was_read_tells_nothing():
    found = (set(rules(asked(TOO_EARLY), "starve", seed)) for seed in (0, 1))
    assert "peer-buffer-reused" in set().union(*found)


def a_buffer_of_each_launch(begun: bool) -> Example:
    """GPU 0 writes for GPU 1 what GPU 1 read in its launch before; `begun`: once GPU 1 tells that it has begun."""
    count = "ld.global.u32 %r1, [%data+OWN];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%data+OWN], %r1;\n"
    wait = "waits_FLAG:\nld.ORDER.sys.global.u32 %r2, [%data+FLAG];\nsetp.ne.u32 %p3, %r2, %r1;\n@%p3 bra waits_FLAG;\n"
    writes = (
        "@!%first bra done;\n" + count.replace("OWN", "256")
        + begun * wait.replace("FLAG", "512").replace("ORDER", "relaxed")
        + "st.global.u32 [%data], %r1;\nst.release.sys.global.u32 [%data+640], %r1;\n"
    )  # fmt: skip
    reads = (
        "@!%first bra done;\n" + count.replace("OWN", "384") + "sub.u32 %r1, %r1, 32;\n"
        + "st.relaxed.sys.global.u32 [%data+512], %r1;\n"
        + wait.replace("FLAG", "640").replace("ORDER", "acquire") + "ld.global.u32 %r3, [%data];\n"
    )  # fmt: skip
    return two(writes, reads, calls=2)


@SCHEDULE
@pytest.mark.parametrize(("begun", "found"), [(True, set()), (False, {"peer-buffer-reused"})])
def test_a_gpu_that_has_begun_a_launch_has_read_all_that_it_read_in_the_one_before(begun, found, schedule, seed):
    report = run(a_buffer_of_each_launch(begun), schedule, seed)
    assert {finding.rule for finding in report.findings} == found
