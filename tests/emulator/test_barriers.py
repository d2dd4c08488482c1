"""Named barriers through PTX: counts, producers and consumers, reductions, misuse, deadlock. PTX ISA 9.7.13.1."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.emulator.async_kernels import SCHEDULES, emulate
from tests.errors import refused
from warploom.errors import DeadlockError
from warploom.sanitizer import Sanitizer

EXCHANGE = """
    shl.b32 %r1, %idx, 2;
    add.u32 %r1, %r1, %tile;
    st.shared.u32 [%r1], %idx;
    {barrier}
    mov.u32 %r2, {last};
    sub.u32 %r3, %r2, %idx;
    shl.b32 %r4, %r3, 2;
    add.u32 %r4, %r4, %tile;
    ld.shared.u32 %r5, [%r4];
    mul.wide.u32 %rd1, %idx, 4;
    add.u64 %rd1, %rd1, %a0;
    st.global.u32 [%rd1], %r5;
"""


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize(
    "barrier", ["bar.sync 0;", "bar.cta.sync 3;", "barrier.sync 15;", "barrier.cta.sync.aligned 1, 128;"]
)
def test_all_threads_see_what_all_wrote_before(barrier, schedule, seed):
    out = np.zeros(128, np.uint32)
    emulate(EXCHANGE.format(barrier=barrier, last=127), out, threads=128, schedule=schedule, seed=seed)
    assert np.array_equal(out, np.arange(128)[::-1])


@pytest.mark.parametrize("threads", [48, 100])
def test_a_block_that_is_no_multiple_of_a_warp(threads):
    out = np.zeros(threads, np.uint32)
    emulate(EXCHANGE.format(barrier="bar.sync 0;", last=threads - 1), out, threads=threads)
    assert np.array_equal(out, np.arange(threads)[::-1])


def test_threads_that_exited_are_not_waited_for():
    out = np.zeros(64, np.uint32)
    leave = "setp.ge.u32 %p1, %idx, 64;\n@%p1 exit;\n"
    emulate(leave + EXCHANGE.format(barrier="bar.sync 0;", last=63), out, threads=96)
    assert np.array_equal(out, np.arange(64)[::-1])


def test_single_threads_of_a_warp_may_have_exited():
    out = np.zeros(64, np.uint32)
    leave = "setp.eq.u32 %p1, %idx, 40;\n@%p1 exit;\n"
    emulate(leave + EXCHANGE.format(barrier="bar.sync 0, 64;", last=63), out, threads=64)
    others = np.arange(64) != 40
    others[63 - 40] = False  # it reads what thread 40 did not write
    assert np.array_equal(out[others], np.arange(64)[::-1][others])


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_producers_arrive_and_consumers_wait(schedule, seed):
    """Warp 1 hands eight values over one slot to warp 0: barrier 1 is full, barrier 2 is empty."""
    out = np.zeros(8, np.uint32)
    body = """
        mov.u32 %r1, 0;
        setp.ge.u32 %p1, %idx, 32;
        @%p1 bra produce;
    consume:
        bar.sync 1, 64;
        ld.shared.u32 %r2, [tile];
        bar.arrive 2, 64;
        mul.wide.u32 %rd1, %r1, 4;
        add.u64 %rd1, %rd1, %a0;
        @%first st.global.u32 [%rd1], %r2;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p2, %r1, 8;
        @%p2 bra consume;
        bra end;
    produce:
        mul.lo.u32 %r3, %r1, 10;
        st.shared.u32 [tile], %r3;
        bar.arrive 1, 64;
        bar.sync 2, 64;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p2, %r1, 8;
        @%p2 bra produce;
    end:
    """
    emulate(body, out, threads=64, schedule=schedule, seed=seed)
    assert out.tolist() == [10 * value for value in range(8)]


@pytest.mark.parametrize(
    "instruction, expected",
    [
        ("bar.red.popc.u32 %r2, 1, %p1;", 40),
        ("bar.red.popc.u32 %r2, 1, !%p1;", 24),
        ("barrier.red.popc.aligned.u32 %r2, 1, 64, %p1;", 40),
        ("bar.red.and.pred %p2, 1, %p1;\nselp.u32 %r2, 1, 0, %p2;", 0),
        ("bar.red.or.pred %p2, 1, %p1;\nselp.u32 %r2, 1, 0, %p2;", 1),
        ("barrier.cta.red.or.pred %p2, 1, 64, %p3;\nselp.u32 %r2, 1, 0, %p2;", 0),
        ("bar.red.and.pred %p2, 1, !%p3;\nselp.u32 %r2, 1, 0, %p2;", 1),
    ],
)
def test_a_reduction_gives_all_threads_the_votes_of_all(instruction, expected):
    out = np.full(64, 99, np.uint32)
    emulate(
        "setp.lt.u32 %p1, %idx, 40;\nsetp.gt.u32 %p3, %idx, 1000;\n" + instruction
        + "\nmul.wide.u32 %rd1, %idx, 4;\nadd.u64 %rd1, %rd1, %a0;\nst.global.u32 [%rd1], %r2;",
        out, threads=64,
    )  # fmt: skip
    assert (out == expected).all()


def test_a_divided_warp_may_arrive_in_parts_at_an_unaligned_barrier():
    out = np.zeros(32, np.uint32)
    body = """
        st.shared.u32 [tile], 0;
        setp.lt.u32 %p1, %idx, 7;
        @%p1 bra low;
        barrier.sync 4, 32;
        bra end;
    low:
        barrier.sync 4, 32;
    end:
        mul.wide.u32 %rd1, %idx, 4;
        add.u64 %rd1, %rd1, %a0;
        st.global.u32 [%rd1], 1;
    """
    emulate(body, out)
    assert out.all()


ONE_BY_ONE = """
    and.b32 %r9, %idx, 1;
    setp.eq.u32 %p1, %r9, 0;
    @%p1 barrier{of} 0{count};
    @!%p1 barrier{of} 0{count};
"""


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("of, count", [(".sync", ""), (".cta.sync", ", 128"), (".red.or.pred %p2,", ", %p1")])
def test_threads_that_a_guard_keeps_from_a_barrier_come_to_the_next_one(of, count, schedule, seed):
    """Odd threads go on to the second barrier while even ones wait at the first: together they are their warp."""
    out = np.zeros(128, np.uint32)
    barrier = ONE_BY_ONE.format(of=of, count=count)
    report = emulate(EXCHANGE.format(barrier=barrier, last=127), out, threads=128, schedule=schedule, seed=seed,
                     watch=[Sanitizer])  # fmt: skip
    assert np.array_equal(out, np.arange(128)[::-1])
    assert not report.findings


def test_threads_that_meet_at_the_barrier_of_a_cluster_may_come_one_by_one():
    out = np.zeros(64, np.uint32)
    body = "setp.lt.u32 %p1, %idx, 7;\n" + "".join(
        f"{guard} barrier.cluster.{part};\n" for guard in ("@%p1", "@!%p1") for part in ("arrive", "wait")
    )
    emulate(EXCHANGE.format(barrier=body, last=63), out, threads=64)
    assert np.array_equal(out, np.arange(64)[::-1])


def test_half_of_two_warps_is_not_one_warp():
    """A warp arrives when its last thread does, whatever the count: here none does."""
    body = """
        setp.lt.u32 %p1, %idx, 16;
        setp.ge.u32 %p2, %idx, 48;
        @%p1 barrier.sync 1, 32;
        @%p2 barrier.sync 1, 32;
        barrier.sync 2, 64;
    """
    with pytest.raises(DeadlockError):
        emulate(body, threads=64)


PARTED = "setp.lt.u32 %p1, %idx, 7;\n@%p1 bra low;\n{0}\nbra end;\nlow:\n{0}\nend:"


@pytest.mark.parametrize("aligned", ["bar.sync 0;", "barrier.sync.aligned 0;", "barrier.cluster.arrive.aligned;"])
def test_an_aligned_barrier_takes_the_threads_of_a_warp_together(aligned):
    with pytest.raises(DeadlockError, match="the rest of its warp"):
        emulate(PARTED.format(aligned))


@pytest.mark.parametrize("aligned", ["bar.sync", "barrier.sync.aligned", "barrier.cta.sync.aligned"])
def test_the_guard_of_an_aligned_barrier_is_the_same_for_all_threads_of_a_warp(aligned):
    with refused("named-barrier", "25 of them left out"):
        emulate(f"setp.lt.u32 %p1, %idx, 7;\n@%p1 {aligned} 0;", threads=64)


SPLIT = "setp.ge.u32 %p1, %idx, 32;\n@%p1 bra other;\n{}\nbra end;\nother:\n{}\nend:"
MISUSE = {
    "barrier 16": ("mov.u32 %r1, 16;\nbar.sync %r1;", ("named-barrier", "16")),
    "count of 48": ("bar.sync 0, 48;", ("named-barrier", "48")),
    "count beyond the CTA": ("bar.sync 0, 96;", ("named-barrier", "96")),
    "two counts": (SPLIT.format("bar.sync 1, 64;", "bar.sync 1;"), ("named-barrier", "no count (all threads)")),
    "reduction and sync": (
        SPLIT.format("bar.sync 1, 64;", "bar.red.popc.u32 %r1, 1, 64, %p1;"),
        ("named-barrier", "red.popc"),
    ),
    "arriving twice": (SPLIT.format("bar.arrive 1, 64;\nbar.arrive 1, 64;", ""), ("named-barrier", "warp 0 again")),
}  # fmt: skip


@pytest.mark.parametrize("body, sentence", MISUSE.values(), ids=MISUSE)
def test_misuse_is_an_error_that_names_the_barrier(body, sentence):
    with refused(*sentence):
        emulate(body, threads=64)


def test_a_warp_may_wait_at_a_barrier_at_which_it_has_arrived_without_waiting():
    """It counts twice: an attention kernel's first warpgroup so gives the first turn to itself."""
    out = np.zeros(64, np.uint32)
    ring = "bar.arrive 1, 64;\nbar.sync 1, 64;\nbar.arrive 2, 64;"
    body = SPLIT.format(ring, "bar.sync 2, 64;") + (
        "\nmul.wide.u32 %rd1, %idx, 4;\nadd.u64 %rd1, %rd1, %a0;\nst.global.u32 [%rd1], 1;"
    )
    emulate(body, out, threads=64)
    assert out.all()


def test_a_deadlock_says_how_many_threads_are_missing_and_which_warps():
    with pytest.raises(DeadlockError) as caught:
        emulate(SPLIT.format("bar.sync 3, 64;", "bar.sync 4, 64;"), threads=64)
    waits = [re.findall(r"\d+|warp \d", wait.reason) for wait in caught.value.waits]
    assert waits == [["3", "32", "64", "32", "warp 1"], ["4", "32", "64", "32", "warp 0"]]


@pytest.mark.parametrize("count, exited", [(64, ["warp 1"]), (96, ["warps 1-2"])])
def test_a_deadlock_names_the_warps_that_exited_without_arriving_and_where(count, exited):
    body = "setp.ge.u32 %p1, %idx, 32;\n@%p1 exit;\nbar.sync 1, " + f"{count};"
    with pytest.raises(DeadlockError) as caught:
        emulate(body, threads=count)
    (wait,) = caught.value.waits
    assert re.findall(r"(\d+) of (\d+) threads", wait.reason) == [("32", str(count))]
    left = re.findall(r"(warps? [\d-]+) ha\S+ exited at \S+:(\d+)", wait.reason)
    assert left == [(exited[0], str(wait.location.line - 1))]
