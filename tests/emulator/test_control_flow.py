"""Divergence, loops, calls and ends in the emulator, through PTX text."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.ptx_text import emulate
from tests.errors import refused
from warploom.errors import DeadlockError

OWN = "mul.wide.u32 %rd10, %r0, 4; add.s64 %rd11, %rd0, %rd10;"
"""%rd11: the address of the lane's word of the first array."""


def per_thread(body: str, threads: int = 64, **options: object) -> np.ndarray:
    """What each thread leaves in %r1."""
    out = np.zeros(threads, np.uint32)
    emulate(OWN + body + "st.global.u32 [%rd11], %r1;", out, threads=threads, **options)
    return out


SCHEDULES = pytest.mark.parametrize("schedule", ["lazy", "eager", "random", "starve"])


@SCHEDULES
def test_if_and_else_take_their_own_lanes(schedule):
    body = """
        and.b32 %r2, %r0, 3;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra THEN;
        mov.u32 %r1, 10;
        bra END;
    THEN:
        mov.u32 %r1, 20;
    END:
        add.u32 %r1, %r1, %r0;
    """
    threads = np.arange(64)
    np.testing.assert_array_equal(per_thread(body, schedule=schedule), threads + np.where(threads % 4 == 0, 20, 10))


@SCHEDULES
def test_nested_loops_run_as_often_as_each_lane_wants(schedule):
    body = """
        mov.u32 %r1, 0;
        mov.u32 %r2, 0;
    OUTER:
        setp.ge.u32 %p1, %r2, %r0;
        @%p1 bra DONE;
        mov.u32 %r3, 0;
    INNER:
        setp.ge.u32 %p2, %r3, %r2;
        @%p2 bra NEXT;
        add.u32 %r1, %r1, 1;
        add.u32 %r3, %r3, 1;
        bra INNER;
    NEXT:
        add.u32 %r2, %r2, 1;
        bra OUTER;
    DONE:
    """
    threads = np.arange(40)
    expected = threads * (threads - 1) // 2
    np.testing.assert_array_equal(per_thread(body, threads=40, schedule=schedule), expected)


def test_lanes_that_exit_early_leave_the_others_running():
    body = """
        mov.u32 %r1, 0;
        mov.u32 %r2, 0;
    LOOP:
        setp.eq.u32 %p1, %r2, %r0;
        st.global.u32 [%rd11], %r2;
        @%p1 exit;
        add.u32 %r2, %r2, 1;
        bra LOOP;
    """
    np.testing.assert_array_equal(per_thread(body), np.arange(64))


@SCHEDULES
def test_a_lane_may_spin_on_what_another_lane_of_its_warp_writes(schedule):
    flag, out = np.zeros(1, np.uint32), np.zeros(32, np.uint32)
    body = """
        mul.wide.u32 %rd10, %r0, 4;
        add.s64 %rd11, %rd1, %rd10;
        setp.eq.u32 %p1, %r0, 9;
        @%p1 bra WRITE;
    SPIN:
        ld.acquire.gpu.global.u32 %r1, [%rd0];
        setp.eq.u32 %p2, %r1, 0;
        @%p2 bra SPIN;
        bra END;
    WRITE:
        st.release.gpu.global.u32 [%rd0], 5;
        mov.u32 %r1, 6;
    END:
        st.global.u32 [%rd11], %r1;
    """
    emulate(body, flag, out, schedule=schedule, max_steps=1_000_000)
    assert out[9] == 6 and set(np.delete(out, 9).tolist()) == {5}


@SCHEDULES
def test_a_cta_may_spin_on_what_a_later_one_writes(schedule):
    flag, out = np.zeros(1, np.uint32), np.zeros(4, np.uint32)
    body = """
        setp.ne.u32 %p1, %r0, 0;
        @%p1 exit;
        mov.u32 %r2, %ctaid.x;
        setp.eq.u32 %p2, %r2, 3;
        @%p2 st.release.gpu.global.u32 [%rd0], 7;
    SPIN:
        ld.volatile.global.u32 %r1, [%rd0];
        setp.ne.u32 %p3, %r1, 7;
        @%p3 nanosleep.u32 100;
        @%p3 bra SPIN;
        mul.wide.u32 %rd10, %r2, 4;
        add.s64 %rd11, %rd1, %rd10;
        st.global.u32 [%rd11], %r1;
    """
    emulate(body, flag, out, grid=4, schedule=schedule, max_steps=1_000_000)
    assert out.tolist() == [7, 7, 7, 7]


@pytest.mark.sample(1, all=2)
@pytest.mark.parametrize("schedule", ["lazy", "eager", "random", "starve", "pct"])
def test_a_cta_may_spin_through_a_barrier_on_what_a_later_one_writes(schedule):
    """As Triton waits for a lock: one thread reads, all threads hear of it behind bar.sync, and go round together."""
    flag, out = np.zeros(1, np.uint32), np.zeros(3 * 64, np.uint32)
    body = """
        mov.u32 %r2, %ctaid.x;
        setp.eq.u32 %p1, %r0, 0;
        setp.eq.u32 %p2, %r2, 2;
        and.pred %p3, %p1, %p2;
        @%p3 st.release.gpu.global.u32 [%rd0], 7;
    SPIN:
        bar.sync 0;
        @%p1 atom.acquire.gpu.global.cas.b32 %r1, [%rd0], 7, 7;
        @%p1 st.shared.u32 [heard], %r1;
        bar.sync 0;
        ld.shared.u32 %r1, [heard];
        setp.ne.u32 %p4, %r1, 7;
        @%p4 bra SPIN;
        mad.lo.u32 %r3, %r2, 64, %r0;
        mul.wide.u32 %rd10, %r3, 4;
        add.s64 %rd11, %rd1, %rd10;
        st.global.u32 [%rd11], %r1;
    """
    before = ".shared .align 4 .b32 heard;"
    emulate(body, flag, out, threads=64, grid=3, before=before, schedule=schedule, max_steps=200_000)
    assert set(out.tolist()) == {7}


def test_a_spin_on_what_nobody_writes_is_a_deadlock():
    body = """
    SPIN:
        ld.volatile.global.u32 %r1, [%rd0];
        setp.eq.u32 %p3, %r1, 0;
        @%p3 bra SPIN;
    """
    with pytest.raises(DeadlockError) as caught:
        emulate(body, np.zeros(1, np.uint32), max_steps=5_000_000)
    assert "ld.volatile.global.u32" in caught.value.waits[0].text


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_a_poll_sleeps_while_others_write_elsewhere(schedule):
    """A warp polls a word; two others write 200 times elsewhere, and meet each time, before they write that word."""
    words = np.zeros(65, np.uint32)
    body = """
        setp.lt.u32 %p1, %r0, 32;
        @!%p1 bra WRITE;
    SPIN:
        ld.acquire.gpu.global.u32 %r2, [%rd0];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra SPIN;
        ret;
    WRITE:
        sub.u32 %r4, %r0, 31;
        mul.wide.u32 %rd5, %r4, 4;
        add.s64 %rd5, %rd0, %rd5;
        mov.u32 %r3, 0;
    NEXT:
        st.global.u32 [%rd5], 1;
        bar.sync 1, 64;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p3, %r3, 200;
        @%p3 bra NEXT;
        st.release.gpu.global.u32 [%rd0], 1;
    """
    emulate(body, words, threads=96, schedule=schedule, max_steps=2 * 5 * 200 + 60)
    assert words.all()


@pytest.mark.parametrize("schedule", ["lazy", "eager", "random", "starve", "pct"])
def test_a_loop_that_polls_one_word_may_end_by_another_that_it_reads_plainly(schedule):
    words = np.zeros(2, np.uint32)
    body = """
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r1, 1;
        @%p1 st.global.u32 [%rd0+4], 1;
        @%p1 bra END;
    SPIN:
        ld.volatile.global.u32 %r2, [%rd0];
        ld.global.u32 %r3, [%rd0+4];
        or.b32 %r2, %r2, %r3;
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra SPIN;
    END:
    """
    emulate(body, words, grid=2, schedule=schedule, max_steps=200_000)
    assert words.tolist() == [0, 1]


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_it_may_end_so_even_while_others_write_on(schedule):
    """CTA 1 counts until CTA 0 has left its loop, and tells it to leave by a word that CTA 0 reads plainly."""
    words = np.zeros(4, np.uint32)
    body = """
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r1, 1;
        @%p1 bra COUNT;
    SPIN:
        ld.volatile.global.u32 %r2, [%rd0];
        ld.global.u32 %r3, [%rd0+4];
        or.b32 %r2, %r2, %r3;
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra SPIN;
        st.volatile.global.u32 [%rd0+8], 1;
        ret;
    COUNT:
        st.global.u32 [%rd0+4], 1;
        mov.u32 %r4, 0;
    NEXT:
        add.u32 %r4, %r4, 1;
        st.global.u32 [%rd0+12], %r4;
        ld.volatile.global.u32 %r2, [%rd0+8];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra NEXT;
    """
    emulate(body, words, grid=2, schedule=schedule, max_steps=500_000)
    assert words[:3].tolist() == [0, 1, 1]


def test_reading_many_words_with_volatile_loads_is_no_spin():
    words, out = np.arange(2000, dtype=np.uint32), np.zeros(1, np.uint32)
    body = """
        mov.u32 %r1, 0;
        mov.u32 %r2, 0;
    LOOP:
        ld.volatile.global.u32 %r3, [%rd0];
        add.u32 %r1, %r1, %r3;
        add.s64 %rd0, %rd0, 4;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, 2000;
        @%p1 bra LOOP;
        st.global.u32 [%rd1], %r1;
    """
    emulate(body, words, out)
    assert out[0] == words.sum()


def test_polling_one_word_a_fixed_number_of_times_is_no_deadlock():
    words, out = np.array([3], np.uint32), np.zeros(1, np.uint32)
    body = """
        mov.u32 %r1, 0;
        mov.u32 %r2, 0;
    LOOP:
        ld.volatile.global.u32 %r3, [%rd0];
        add.u32 %r1, %r1, %r3;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, 1500;
        @%p1 bra LOOP;
        st.global.u32 [%rd1], %r1;
    """
    emulate(body, words, out)
    assert out[0] == 4500


def test_of_a_thread_that_polls_for_ever_the_word_is_the_advice_not_the_barrier_that_its_warp_waits_at():
    words = np.zeros(1, np.uint32)
    body = """
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra MEET;
    LOOP:
        ld.volatile.global.u32 %r3, [%rd0];
        setp.eq.u32 %p2, %r3, 0;
        @%p2 bra LOOP;
    MEET:
        bar.sync 0;
    """
    with refused("deadlock") as caught:
        emulate(body, words)
    assert "`ld.volatile.global.u32 %r3, [%rd0]`" in str(caught.value.hint) and "bar.sync" not in str(caught.value.hint)


def test_an_endless_loop_meets_the_step_limit():
    with refused(
        "step-limit", got="warp 0 in CTA (0, 0, 0) at <ptx>:18 `add.u32 %r1, %r1, 1;`, in the loop at <ptx>:18"
    ):
        emulate("LOOP: add.u32 %r1, %r1, 1; bra LOOP;", max_steps=100_000)


def test_an_indexed_branch_chooses_from_its_list():
    body = """
        and.b32 %r2, %r0, 3;
        min.u32 %r2, %r2, 2;
    targets: .branchtargets ZERO, ONE, REST;
        brx.idx %r2, targets;
    ZERO:
        mov.u32 %r1, 100;
        bra END;
    ONE:
        mov.u32 %r1, 200;
        bra END;
    REST:
        mov.u32 %r1, 300;
    END:
    """
    np.testing.assert_array_equal(per_thread(body), np.array([100, 200, 300, 300] * 16))


FUNCTIONS = """
.func (.param .b32 result) square_plus(.param .b32 x, .param .b32 y)
{
    .reg .b32 %a<4>;
    .reg .pred %p<2>;
    ld.param.u32 %a1, [x];
    ld.param.u32 %a2, [y];
    setp.gt.u32 %p1, %a1, 40;
    mul.lo.u32 %a3, %a1, %a1;
    @%p1 bra LARGE;
    add.u32 %a3, %a3, %a2;
LARGE:
    st.param.b32 [result], %a3;
    ret;
}
.func (.reg .b32 %out) twice(.reg .b32 %in)
{
    add.u32 %out, %in, %in;
    ret;
}
"""


def test_functions_get_parameters_and_give_results():
    body = """
        {
            .param .b32 first;
            .param .b32 second;
            .param .b32 back;
            st.param.b32 [first], %r0;
            st.param.b32 [second], 1000;
            call.uni (back), square_plus, (first, second);
            ld.param.b32 %r2, [back];
        }
        call (%r1), twice, (%r2);
    """
    threads = np.arange(64)
    expected = 2 * (threads**2 + np.where(threads > 40, 0, 1000))
    np.testing.assert_array_equal(per_thread(body, before=FUNCTIONS), expected)


def test_some_lanes_may_call_and_return_early():
    before = """
    .func bump(.reg .b64 %where)
    {
        .reg .b32 %v<2>;
        .reg .pred %p<2>;
        ld.global.u32 %v1, [%where];
        setp.ne.u32 %p1, %v1, 0;
        @%p1 ret;
        st.global.u32 [%where], 9;
        ret;
    }
    """
    out = np.zeros(32, np.uint32)
    out[::2] = 4
    emulate(OWN + "setp.lt.u32 %p1, %r0, 8; @%p1 bra CALL; bra END; CALL: call bump, (%rd11); END:", out, before=before)
    assert out[:8].tolist() == [4, 9] * 4 and out[8:].tolist() == [4, 0] * 12


def test_a_trap_names_the_thread():
    with refused("emulation") as caught:
        emulate("setp.eq.u32 %p1, %r0, 17; @%p1 trap;")
    assert "(17, 0, 0)" in str(caught.value)


def test_a_name_means_the_outer_register_until_its_block_declares_it() -> None:
    body = "mov.u32 %r1, 1; { add.u32 %r1, %r1, 4; .reg .b64 %r1; mov.b64 %r1, 7; bra END; END: }"
    assert per_thread(body).tolist() == [5] * 64


def test_a_register_hides_the_special_register_of_its_name_from_its_declaration_on() -> None:
    body = "mov.u32 %r1, %laneid; .reg .u32 %laneid; mov.u32 %laneid, 3; add.u32 %r1, %r1, %laneid;"
    assert per_thread(body).tolist() == [*range(3, 35)] * 2


def test_a_label_hides_the_special_register_of_its_name_from_there_on() -> None:
    body = """
        mov.u32 %r1, %laneid;
        %laneid: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 40; @%p1 bra %laneid;
        { %tid: add.u32 %r1, %r1, 2; setp.lt.u32 %p1, %r1, 50; @%p1 bra %tid; }
    """
    assert per_thread(body).tolist() == [50] * 64
