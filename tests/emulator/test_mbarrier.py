"""The mbarrier object through PTX: phases, parity, transactions, misuse, deadlock reports. PTX ISA 9.7.13.15."""

from __future__ import annotations

import numpy as np
import pytest

import warploom
from tests.emulator.async_kernels import SCHEDULES, cluster_sync, emulate, init, text_of, wait
from tests.errors import refused

POLL = """
    mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], {parity};
    selp.u32 %r1, 1, 0, %p1;
    @%first st.global.u32 [%a0+{at}], %r1;
"""


def polls(before: str, threads: int = 32) -> tuple[bool, bool]:
    """What a test of parity 0 and of parity 1 says after `before`."""
    out = np.full(2, 9, np.uint32)
    emulate(before + POLL.format(parity=0, at=0) + POLL.format(parity=1, at=4), out, threads=threads)
    return bool(out[0]), bool(out[1])


def test_a_fresh_barrier_has_passed_parity_1_and_not_parity_0():
    assert polls(init(1)) == (False, True)


@pytest.mark.parametrize(("parity", "same_as"), [(-3, 1), (-2, 0), (-1, 1), (2, 0), (3, 1)])
def test_of_a_parity_only_bit_0_counts(parity, same_as):
    out = np.zeros(2, np.uint32)
    emulate(init(1) + POLL.format(parity=parity, at=0) + POLL.format(parity=same_as, at=4), out)
    assert out[0] == out[1] == same_as


def test_a_completed_phase_turns_the_parity():
    arrive = "@%first mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    assert polls(init(1) + arrive) == (True, False)
    assert polls(init(1) + 2 * arrive) == (False, True)


def test_a_phase_needs_all_its_arrivals():
    arrive = "@%first mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    assert polls(init(3) + 2 * arrive) == (False, True)
    assert polls(init(3) + 3 * arrive) == (True, False)


def test_every_thread_of_a_warp_arrives_by_itself():
    assert polls(init(32) + "mbarrier.arrive.shared::cta.b64 _, [bar];\n") == (True, False)


def test_arrivals_of_one_warp_may_end_several_phases():
    assert polls(init(16) + "mbarrier.arrive.shared::cta.b64 _, [bar];\n") == (False, True)


def test_an_arrival_with_a_count_counts_so_often():
    assert polls(init(5) + "@%first mbarrier.arrive.shared::cta.b64 _, [bar], 5;\n") == (True, False)


@pytest.mark.parametrize("count", ["2", "%r3"], ids=["a constant", "a register"])
def test_lanes_arrive_several_times_each_and_get_their_own_states(count: str):
    out = np.zeros(32, np.uint32)
    body = (
        init(64)
        + f"""
        .reg .b64 %rdp;
        mov.u32 %r3, 2;
        mbarrier.arrive.shared::cta.b64 %rdp, [bar], {count};
        mbarrier.test_wait.shared::cta.b64 %p1, [bar], %rdp;
        and.b64 %rdp, %rdp, 0xFFFFF;
        cvt.u32.u64 %r1, %rdp;
        @%p1 add.u32 %r1, %r1, 1000;
        mul.wide.u32 %rdp, %idx, 4;
        add.u64 %rdp, %rdp, %a0;
        st.global.u32 [%rdp], %r1;
        """
    )
    emulate(body, out, threads=32)
    # all states are of the phase that the last lane has ended; each names what was missing before its lane
    assert (out == 1064 - 2 * np.arange(32)).all()


def test_lanes_with_different_counts_arrive_one_after_the_other():
    each = "add.u32 %r3, %idx, 1;\nmbarrier.arrive.shared::cta.b64 _, [bar], %r3;\n"
    assert polls(init(sum(range(1, 33))) + each) == (True, False)


def test_announced_bytes_hold_the_phase():
    announce = "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;\n"
    deliver = "@%first mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], {};\n"
    assert polls(init(1) + announce) == (False, True)
    assert polls(init(1) + announce + deliver.format(48)) == (False, True)
    assert polls(init(1) + announce + deliver.format(48) + deliver.format(16)) == (True, False)


def test_bytes_may_be_delivered_before_they_are_announced():
    deliver = "@%first mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 64;\n"
    announce = "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;\n"
    assert polls(init(1) + deliver) == (False, True)
    assert polls(init(1) + deliver + announce) == (True, False)


def test_a_dropped_arrival_is_not_expected_in_later_phases():
    drop = "@%first mbarrier.arrive_drop.shared::cta.b64 _, [bar];\n"
    arrive = "@%first mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    assert polls(init(2) + drop + arrive) == (True, False)
    assert polls(init(2) + drop + arrive + arrive) == (False, True)


def test_a_state_names_the_phase_of_its_arrival():
    out = np.zeros(2, np.uint32)
    test = "mbarrier.test_wait.shared::cta.b64 %p1, [bar], %rd1;\nselp.u32 %r1, 1, 0, %p1;\n"
    emulate(
        init(2)
        + "mov.b64 %rd1, 0;\n@!%first bra end;\nmbarrier.arrive.shared::cta.b64 %rd1, [bar];\n"
        + test + "st.global.u32 [%a0], %r1;\n"
        + "mbarrier.arrive.shared::cta.b64 _, [bar];\n"
        + test + "st.global.u32 [%a0+4], %r1;\nend:",
        out,
    )  # fmt: skip
    assert out.tolist() == [0, 1]


def test_pending_count_is_the_count_before_the_arrival():
    out = np.zeros(1, np.uint32)
    emulate(
        init(7)
        + "@!%first bra end;\nmbarrier.arrive.noComplete.shared::cta.b64 _, [bar], 2;\n"
        + "mbarrier.arrive.noComplete.shared::cta.b64 %rd1, [bar], 3;\n"
        + "mbarrier.pending_count.b64 %r1, %rd1;\nst.global.u32 [%a0], %r1;\nend:",
        out,
    )
    assert out[0] == 5


def test_a_barrier_can_be_initialised_again_after_inval():
    again = "@%first mbarrier.inval.shared::cta.b64 [bar];\n@%first mbarrier.init.shared::cta.b64 [bar], 4;\n"
    assert polls(init(1) + "@%first mbarrier.arrive.shared::cta.b64 _, [bar];\n" + again) == (False, True)


def test_a_generic_address_names_the_same_barrier():
    generic = "cvt.u64.u32 %rd1, %bar;\ncvta.shared.u64 %rd1, %rd1;\n@%first mbarrier.arrive.b64 _, [%rd1];\n"
    assert polls(init(1) + generic) == (True, False)


# -- other CTAs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_a_remote_arrival_completes_the_phase_of_the_other_cta(schedule, seed):
    out = np.zeros(2, np.uint32)
    emulate(
        init(1) + cluster_sync()
        + """
        mov.u32 %r1, %cluster_ctarank;
        xor.b32 %r2, %r1, 1;
        mapa.shared::cluster.u32 %r3, %bar, %r2;
        @%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];
        """
        + wait(0)
        + "mul.wide.u32 %rd1, %r1, 4;\nadd.u64 %rd1, %rd1, %a0;\n@%first st.global.u32 [%rd1], 1;\n" + cluster_sync(),
        out, grid=2, cluster=2, schedule=schedule, seed=seed,
    )  # fmt: skip
    assert out.tolist() == [1, 1]


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_a_cluster_barrier_orders_remote_arrivals_before_it(schedule, seed):
    """A remote arrival is not an asynchronous operation: the release of the cluster barrier covers it."""
    out = np.zeros(2, np.uint32)
    emulate(
        init(1) + cluster_sync()
        + """
        mov.u32 %r1, %cluster_ctarank;
        xor.b32 %r2, %r1, 1;
        mapa.shared::cluster.u32 %r3, %bar, %r2;
        @%first mbarrier.arrive.shared::cluster.b64 _, [%r3];
        """
        + cluster_sync()
        + """
        mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], 0;
        selp.u32 %r4, 1, 0, %p1;
        mul.wide.u32 %rd1, %r1, 4;
        add.u64 %rd1, %rd1, %a0;
        @%first st.global.u32 [%rd1], %r4;
        """,
        out, grid=2, cluster=2, schedule=schedule, seed=seed,
    )  # fmt: skip
    assert out.tolist() == [1, 1]


def test_a_barrier_of_another_cta_cannot_be_waited_for():
    with refused("cluster-rank", got="1"):
        emulate(
            init(1) + cluster_sync()
            + "mapa.shared::cluster.u32 %r3, %bar, 1;\n"
            + "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r3], 0;",
            grid=2, cluster=2,
        )  # fmt: skip


def test_an_arrival_that_lands_after_its_cta_exited_is_an_error():
    with refused("cta-has-exited", got="rank 1"):
        emulate(
            init(2) + cluster_sync()
            + """
            mov.u32 %r1, %cluster_ctarank;
            setp.eq.u32 %p1, %r1, 1;
            @%p1 bra end;
            mapa.shared::cluster.u32 %r3, %bar, 1;
            @%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];
            end:
            """,
            grid=2, cluster=2,
        )  # fmt: skip


# -- misuse ------------------------------------------------------------------------------------------------------

ARRIVE = "@%first mbarrier.arrive.shared::cta.b64 _, [bar];\n"
MISUSE = {
    "use before init": (ARRIVE, ("no-mbarrier", "has not been initialised")),
    "wait before init": (wait(0), ("no-mbarrier", "has not been initialised")),
    "use after inval": (
        init(1) + "@%first mbarrier.inval.shared::cta.b64 [bar];\n" + ARRIVE, ("no-mbarrier", "has been invalidated"),
    ),
    "count of 0": (init(0), ("mbarrier-count", "0")),
    "count of 2^20": (init(1 << 20), ("mbarrier-count", "1048576")),
    "second init": (init(1) + init(1), ("mbarrier-made-twice",)),
    "init with two counts": (
        "add.u32 %r1, %idx, 1;\nsetp.lt.u32 %p1, %idx, 2;\n@%p1 mbarrier.init.shared::cta.b64 [bar], %r1;\n",
        ("mbarrier-made-twice",),
    ),
    "more arrivals than expected": (
        init(2) + "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;\n" + ARRIVE * 2,
        ("too-many-arrivals", None, "0 of 2"),
    ),
    "count larger than pending": (
        init(2) + "@%first mbarrier.arrive.shared::cta.b64 _, [bar], 3;\n",
        ("too-many-arrivals", "so far in this phase: nothing"),
    ),
    "byte count out of range": (
        init(1) + "@%first mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1048576;\n",
        ("mbarrier-count", "1048576"),
    ),
    "noComplete that completes": (
        init(1) + "@%first mbarrier.arrive.noComplete.shared::cta.b64 _, [bar], 1;\n",
        ("completed-by-no-complete", "phase 0"),
    ),
    "pending_count of a plain state": (
        init(2) + "@%first mbarrier.arrive.shared::cta.b64 %rd1, [bar];\n"
        + "@%first mbarrier.pending_count.b64 %r1, %rd1;\n",
        ("mbarrier-state", "state 0x2"),
    ),
    "a state two phases old": (
        init(1) + "@!%first bra end;\nmbarrier.arrive.shared::cta.b64 %rd1, [bar];\n" + ARRIVE
        + "mbarrier.test_wait.shared::cta.b64 %p1, [bar], %rd1;\nend:", ("mbarrier-state", "phase 0"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("body, sentence", MISUSE.values(), ids=MISUSE)
def test_misuse_is_an_error_that_names_the_barrier(body, sentence):
    with refused(*sentence):
        emulate(body)


def test_lanes_of_one_warp_may_make_one_barrier_together():
    emulate("mbarrier.init.shared::cta.b64 [bar], 1;\n", threads=32)
    with refused("mbarrier-made-twice", got="the first time by thread 0 of CTA (0, 0, 0) at <ptx>:23"):
        emulate("mbarrier.init.shared::cta.b64 [bar], 1;\n", threads=64)


def test_a_checked_run_goes_on_after_a_second_init_of_an_unused_barrier_alone():
    once = init(1)
    checked = warploom.emulate(text_of(once * 2 + ARRIVE + wait(0), ()), grid=1, block=32)
    assert [finding.rule for finding in checked.findings] == ["mbarrier-initialised-twice"]
    with refused("mbarrier-made-twice"):
        warploom.emulate(text_of(once + ARRIVE + once, ()), grid=1, block=32)


def test_a_misaligned_barrier_is_an_error():
    with refused("misaligned", got="4 bytes past one"):
        emulate("@%first mbarrier.init.shared::cta.b64 [bar+4], 1;")


def test_an_error_names_instruction_and_thread():
    with refused("no-mbarrier") as caught:
        emulate(ARRIVE)
    instruction, thread, *_ = str(caught.value.where).splitlines()
    assert instruction.endswith("mbarrier.arrive.shared::cta.b64 _, [bar];") and "thread (0, 0, 0)" in thread


# -- deadlock ----------------------------------------------------------------------------------------------------


def test_a_deadlock_says_which_arrivals_are_missing():
    with refused("deadlock") as caught:
        emulate(init(1, 3) + "@%first mbarrier.arrive.shared::cta.b64 _, [bar+8];\n" + wait(0, barrier=1))
    assert [(each.reason, each.missing) for each in caught.value.waits] == [
        ("mbarrier bar+8, phase 0 (parity 0)", "2 of 3 arrivals missing")
    ]


def test_a_deadlock_says_how_many_bytes_are_missing_and_who_expected_them():
    with refused("deadlock") as caught:
        emulate(
            init(1)
            + "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;\n"
            + "@%first mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;\n"
            + wait(0)
        )
    (wanted,) = caught.value.waits
    assert wanted.missing == "48 bytes missing" and wanted.came[0].startswith("expected 64 bytes: thread 0")


def test_try_wait_says_false_when_nothing_else_can_move():
    out = np.full(1, 9, np.uint32)
    body = """
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
    selp.u32 %r1, 1, 0, %p1;
    @%first st.global.u32 [%a0], %r1;
    """
    emulate(init(1) + body, out)
    assert out[0] == 0


ARRIVES_LATE = """
    setp.ge.u32 %p3, %idx, 32;
    @%p3 bra late;
    ASKS
    bra met;
    late:
    setp.eq.u32 %p2, %idx, 32;
    @%p2 mbarrier.arrive.shared::cta.b64 _, [bar];
    met:
    bar.sync 0;
"""
ASKS_AHEAD = """
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
    selp.u32 %r1, 1, 0, %p1;
    @%first st.global.u32 [%a0], %r1;
"""
WAITS_THEN = "@%p1 bra passed;\n" + wait() + "passed:\n"
TRIES_THRICE = """
    mov.u32 %r1, 0;
    again:
    add.u32 %r1, %r1, 1;
    @%first st.global.u32 [%a0], %r1;
    setp.gt.u32 %p2, %r1, 3;
    @%p2 trap;
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
    @!%p1 bra again;
"""


@pytest.mark.parametrize(("asks", "stored"), [(ASKS_AHEAD + WAITS_THEN, 0), (TRIES_THRICE, 2)])
def test_a_try_wait_that_is_not_alone_in_its_loop_fails_once(asks, stored):
    """A kernel that asks ahead does something else after False; one that counts its attempts waits at the second."""
    out = np.full(1, 9, np.uint32)
    emulate(init(1) + ARRIVES_LATE.replace("ASKS", asks), out, threads=64)
    assert out[0] == stored
