"""shfl, vote, match, redux, elect, activemask, bar.warp.sync in the emulator, through PTX text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.ptx_text import emulate
from warploom.errors import DeadlockError, InvalidOperandError

LANES = range(32)
POISON = 0xFFFFFFFF

PICK = """
    mul.wide.u32 %rd10, %r0, 4;
    add.s64 %rd11, %rd0, %rd10;
    ld.global.u32 %r1, [%rd11];
    add.s64 %rd12, %rd1, %rd10;
"""
"""Lane i: %r1 is word i of the first array, %rd12 the address of word i of the second."""


def on_lanes(instructions: str, values: np.ndarray, threads: int = 32, **options: object) -> np.ndarray:
    """What each lane leaves in %r2 after instructions that find its value in %r1."""
    out = np.zeros(threads, np.uint32)
    emulate(PICK + instructions + "st.global.u32 [%rd12], %r2;", values, out, threads=threads, **options)
    return out


def shuffled(mode: str, values: list[int], b: list[int], c: int, active: int) -> list[tuple[int, bool]]:
    """shfl.sync as PTX ISA 9.7.9.6 writes it, one lane at a time: (d, p) of each lane."""
    results = []
    for lane in LANES:
        bval, cval, segmask = b[lane] & 31, c & 31, c >> 8 & 31
        max_lane = (lane & segmask) | (cval & ~segmask & 31)
        min_lane = lane & segmask
        if mode == "up":
            j = lane - bval
            pval = j >= max_lane
        elif mode == "down":
            j = lane + bval
            pval = j <= max_lane
        elif mode == "bfly":
            j = lane ^ bval
            pval = j <= max_lane
        else:
            j = min_lane | (bval & ~segmask & 31)
            pval = j <= max_lane
        if not pval:
            j = lane
        results.append((values[j] if active >> j & 1 else POISON, pval))
    return results


@settings(max_examples=40)
@given(
    mode=st.sampled_from(["up", "down", "bfly", "idx"]),
    b=st.lists(st.integers(0, 63), min_size=32, max_size=32),
    c=st.one_of(st.integers(0, 0x1F1F), st.sampled_from([0, 31, 0x181F, 0x1C1F, 0x1E00])),
    active=st.integers(1, POISON),
    uniform=st.booleans(),
)
def test_a_shuffle_follows_the_formula_of_the_isa(mode, b, c, active, uniform):
    if uniform:
        b = [b[0]] * 32
    values = np.arange(1000, 1032, dtype=np.uint32)
    offsets = np.array(b, np.uint32)
    out, reached = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    by = str(b[0]) if uniform else "%r4"
    body = f"""
        mul.wide.u32 %rd10, %r0, 4;
        add.s64 %rd11, %rd0, %rd10;
        ld.global.u32 %r1, [%rd11];
        add.s64 %rd12, %rd1, %rd10;
        ld.global.u32 %r4, [%rd12];
        shr.u32 %r5, {active:#x}, %r0;
        and.b32 %r5, %r5, 1;
        setp.eq.u32 %p1, %r5, 0;
        @%p1 bra DONE;
        shfl.sync.{mode}.b32 %r2|%p2, %r1, {by}, {c:#x}, {active:#x};
        selp.u32 %r3, 1, 0, %p2;
        add.s64 %rd13, %rd2, %rd10;
        st.global.u32 [%rd13], %r2;
        add.s64 %rd14, %rd3, %rd10;
        st.global.u32 [%rd14], %r3;
    DONE:
    """
    emulate(body, values, offsets, out, reached)
    expected = shuffled(mode, values.tolist(), b, c, active)
    for lane in LANES:
        if active >> lane & 1:
            assert (int(out[lane]), bool(reached[lane])) == expected[lane], f"lane {lane}"


def test_warps_shuffle_among_themselves():
    values = np.arange(96, dtype=np.uint32)
    out = on_lanes("shfl.sync.bfly.b32 %r2, %r1, 1, 0x1f, 0xffffffff;", values, threads=96)
    np.testing.assert_array_equal(out, values ^ 1)


def test_a_butterfly_of_shuffles_sums_a_warp():
    steps = "".join(
        f"shfl.sync.bfly.b32 %r3, %r1, {offset}, 0x1f, -1; add.u32 %r1, %r1, %r3;" for offset in (16, 8, 4, 2, 1)
    )
    values = np.arange(64, dtype=np.uint32) ** 2
    out = on_lanes(steps + "mov.u32 %r2, %r1;", values, threads=64)
    np.testing.assert_array_equal(out, np.repeat(values.reshape(2, 32).sum(axis=1), 32))


def test_reading_a_lane_that_is_not_there_gives_poison():
    body = """
        setp.ge.u32 %p1, %r0, 16;
        mov.u32 %r2, 7;
        @%p1 bra DONE;
        shfl.sync.idx.b32 %r2, %r1, 20, 0x1f, 0x0000ffff;
    DONE:
    """
    out = on_lanes(body, np.arange(32, dtype=np.uint32))
    assert set(out[:16].tolist()) == {POISON}
    assert set(out[16:].tolist()) == {7}


def test_both_halves_of_a_divided_warp_shuffle_with_their_own_masks():
    body = """
        setp.ge.u32 %p1, %r0, 16;
        mov.u32 %r5, 0x0000ffff;
        @%p1 mov.u32 %r5, 0xffff0000;
        shfl.sync.bfly.b32 %r2, %r1, 15, 0x1f, %r5;
    """
    out = on_lanes(body, np.arange(32, dtype=np.uint32))
    np.testing.assert_array_equal(out, np.arange(32) ^ 15)


def test_a_shuffle_waits_for_the_lanes_that_come_by_another_way():
    body = """
        setp.ge.u32 %p1, %r0, 16;
        @%p1 bra LATE;
        add.u32 %r1, %r1, 100;
        bra MEET;
    LATE:
        add.u32 %r1, %r1, 200;
    MEET:
        shfl.sync.bfly.b32 %r2, %r1, 16, 0x1f, 0xffffffff;
    """
    out = on_lanes(body, np.arange(32, dtype=np.uint32))
    lanes = np.arange(32)
    np.testing.assert_array_equal(out, (lanes ^ 16) + np.where(lanes < 16, 200, 100))


def test_exited_lanes_are_not_waited_for():
    body = """
        setp.ge.u32 %p1, %r0, 24;
        @%p1 exit;
        vote.sync.ballot.b32 %r2, 1, 0xffffffff;
    """
    out = on_lanes(body, np.zeros(32, np.uint32))
    assert set(out[:24].tolist()) == {0x00FFFFFF}
    assert set(out[24:].tolist()) == {0}


def test_lanes_that_never_come_are_a_deadlock_that_names_them():
    body = """
        setp.eq.u32 %p1, %r0, 5;
        @%p1 bra OTHER;
        shfl.sync.idx.b32 %r2, %r1, 0, 0x1f, 0xffffffff;
        bra DONE;
    OTHER:
        bar.warp.sync 0xffffffff;
    DONE:
    """
    with pytest.raises(DeadlockError) as caught:
        on_lanes(body, np.zeros(32, np.uint32))
    assert any("lane 5" in wait.reason for wait in caught.value.waits)


@pytest.mark.parametrize(
    "instruction",
    [
        "shfl.sync.idx.b32 %r2, %r1, 0, 31, 0x7fffffff;", "vote.sync.ballot.b32 %r2, 1, 0x7fffffff;",
        "match.any.sync.b32 %r2, %r1, 0x7fffffff;", "redux.sync.add.u32 %r2, %r1, 0x7fffffff;",
        "elect.sync %r2|%p1, 0x7fffffff;", "bar.warp.sync 0x7fffffff;",
    ],
)  # fmt: skip
def test_a_lane_outside_its_own_membermask_is_an_error(instruction):
    with pytest.raises(InvalidOperandError) as caught:
        on_lanes(instruction, np.zeros(32, np.uint32))
    message = str(caught.value)
    assert "0x7fffffff" in message and "lane 31" in message and instruction.split()[0] in message


@settings(max_examples=25)
@given(said=st.integers(0, POISON), active=st.integers(1, POISON), negated=st.booleans())
def test_votes_count_the_members_that_are_here(said, active, negated):
    flags = np.array([said >> lane & 1 for lane in LANES], np.uint32)
    outs = [np.zeros(32, np.uint32) for _ in range(4)]
    bang = "!" if negated else ""
    stores = ""
    for number, mode in enumerate(["all", "any", "uni"]):
        stores += f"""
            vote.sync.{mode}.pred %p3, {bang}%p2, {active:#x};
            selp.u32 %r3, 1, 0, %p3;
            add.s64 %rd12, %rd{number + 1}, %rd10;
            st.global.u32 [%rd12], %r3;
        """
    body = f"""
        mul.wide.u32 %rd10, %r0, 4;
        add.s64 %rd11, %rd0, %rd10;
        ld.global.u32 %r1, [%rd11];
        setp.ne.u32 %p2, %r1, 0;
        shr.u32 %r5, {active:#x}, %r0;
        and.b32 %r5, %r5, 1;
        setp.eq.u32 %p1, %r5, 0;
        @%p1 exit;
        {stores}
        vote.sync.ballot.b32 %r3, {bang}%p2, {active:#x};
        add.s64 %rd12, %rd4, %rd10;
        st.global.u32 [%rd12], %r3;
    """
    emulate(body, flags, *outs)
    members = [lane for lane in LANES if active >> lane & 1]
    votes = [bool(said >> lane & 1) != negated for lane in members]
    ballot = sum(1 << lane for lane, vote in zip(members, votes, strict=True) if vote)
    expected = [all(votes), any(votes), len(set(votes)) == 1, ballot]
    for out, value in zip(outs, expected, strict=True):
        assert set(out[members].tolist()) == {int(value)}


def test_match_any_gives_the_lanes_with_the_same_value():
    values = (np.arange(32) % 5).astype(np.uint32)
    out = on_lanes("match.any.sync.b32 %r2, %r1, -1;", values)
    expected = [sum(1 << other for other in LANES if values[other] == values[lane]) for lane in LANES]
    np.testing.assert_array_equal(out, np.array(expected, np.uint32))


def test_match_of_64_bit_values_looks_at_all_bits():
    body = "cvt.u64.u32 %rd20, %r1; shl.b64 %rd20, %rd20, 40; match.any.sync.b64 %r2, %rd20, -1;"
    values = (np.arange(32) // 16).astype(np.uint32)
    np.testing.assert_array_equal(on_lanes(body, values), np.where(np.arange(32) < 16, 0xFFFF, 0xFFFF0000))


@pytest.mark.parametrize("differs", [False, True])
def test_match_all_says_whether_every_member_agrees(differs):
    values = np.full(32, 9, np.uint32)
    values[17] += differs
    body = "match.all.sync.b32 %r3|%p1, %r1, -1; selp.u32 %r4, 1, 0, %p1; xor.b32 %r2, %r3, %r4;"
    assert set(on_lanes(body, values).tolist()) == {0 if differs else POISON ^ 1}


@pytest.mark.parametrize(
    "operation, combine",
    [
        ("add.u32", lambda v: int(v.sum(dtype=np.uint32))), ("add.s32", lambda v: int(v.sum(dtype=np.uint32))),
        ("min.u32", lambda v: int(v.min())), ("max.u32", lambda v: int(v.max())),
        ("min.s32", lambda v: int(v.view(np.int32).min()) & POISON),
        ("max.s32", lambda v: int(v.view(np.int32).max()) & POISON),
        ("and.b32", lambda v: int(np.bitwise_and.reduce(v))), ("or.b32", lambda v: int(np.bitwise_or.reduce(v))),
        ("xor.b32", lambda v: int(np.bitwise_xor.reduce(v))),
    ],
)  # fmt: skip
def test_redux_reduces_each_group_of_members(operation, combine):
    values = np.random.default_rng(3).integers(0, 2**32, 32, dtype=np.uint32) | np.uint32(0x400)
    body = f"""
        setp.ge.u32 %p1, %r0, 8;
        mov.u32 %r5, 0x000000ff;
        @%p1 mov.u32 %r5, 0xffffff00;
        redux.sync.{operation} %r2, %r1, %r5;
    """
    out = on_lanes(body, values)
    assert set(out[:8].tolist()) == {combine(values[:8])}
    assert set(out[8:].tolist()) == {combine(values[8:])}


@pytest.mark.parametrize(
    "operation, expected",
    [
        ("min", -3.0), ("max", 2.0), ("min.abs", 0.0), ("max.abs", 3.0), ("min.NaN", np.nan), ("max.abs.NaN", np.nan),
    ],
)  # fmt: skip
def test_redux_of_floats_skips_nans_unless_told_otherwise(operation, expected):
    values = np.zeros(32, np.float32)
    values[[3, 9, 11]] = -3.0, 2.0, np.nan
    out = on_lanes(f"redux.sync.{operation}.f32 %r2, %r1, -1;", values.view(np.uint32), target="sm_100a")
    found = out.view(np.float32)
    if np.isnan(expected):
        assert set(out.tolist()) == {0x7FFFFFFF}
    else:
        assert set(found.tolist()) == {expected}


def test_redux_of_floats_orders_the_zeros():
    values = np.zeros(32, np.float32)
    values[4] = -0.0
    assert set(on_lanes("redux.sync.min.f32 %r2, %r1, -1;", values.view(np.uint32), target="sm_100a")) == {0x80000000}
    assert set(on_lanes("redux.sync.max.f32 %r2, %r1, -1;", values.view(np.uint32), target="sm_100a")) == {0}


def test_elect_chooses_one_leader_of_each_warp():
    body = "elect.sync %r3|%p1, 0xffffff00; selp.u32 %r4, 100, 0, %p1; add.u32 %r2, %r3, %r4;"
    early = "and.b32 %r6, %r0, 31; setp.lt.u32 %p2, %r6, 8; @%p2 exit;"
    out = on_lanes(early + body, np.zeros(64, np.uint32), threads=64).reshape(2, 32)
    assert (out[:, 8] == 108).all() and (out[:, 9:] == 8).all()


def test_activemask_names_the_lanes_that_execute():
    body = "and.b32 %r6, %r0, 1; setp.eq.u32 %p1, %r6, 0; mov.u32 %r2, 0; @%p1 activemask.b32 %r2;"
    out = on_lanes(body, np.zeros(32, np.uint32))
    assert set(out[::2].tolist()) == {0x55555555} and set(out[1::2].tolist()) == {0}


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_threads_may_meet_at_a_warp_barrier_from_different_instructions(schedule):
    body = """
        .shared .align 4 .b32 box;
        mov.u32 %r3, 0;
    AGAIN:
        setp.eq.u32 %p1, %r0, 7;
        @%p1 bra WRITER;
        bar.warp.sync 0xffffffff;
        ld.shared.u32 %r2, [box];
        bar.warp.sync 0xffffffff;
        bra NEXT;
    WRITER:
        add.u32 %r2, %r3, 50;
        st.shared.u32 [box], %r2;
        bar.warp.sync 0xffffffff;
        bar.warp.sync 0xffffffff;
    NEXT:
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p2, %r3, 5;
        @%p2 bra AGAIN;
        add.u32 %r2, %r2, %r3;
    """
    assert set(on_lanes(body, np.zeros(32, np.uint32), schedule=schedule).tolist()) == {59}


def test_a_warp_barrier_orders_the_exchange_of_a_divided_warp():
    body = """
        .shared .align 4 .b32 box[32];
        mov.u32 %r10, box;
        shl.b32 %r11, %r0, 2;
        add.u32 %r12, %r10, %r11;
        setp.lt.u32 %p1, %r0, 16;
        @%p1 bra FIRST;
        add.u32 %r1, %r1, 5;
    FIRST:
        st.shared.u32 [%r12], %r1;
        bar.warp.sync 0xffffffff;
        xor.b32 %r13, %r11, 124;
        add.u32 %r13, %r10, %r13;
        ld.shared.u32 %r2, [%r13];
    """
    lanes = np.arange(32)
    other = 31 - lanes
    np.testing.assert_array_equal(on_lanes(body, lanes.astype(np.uint32)), other + np.where(other < 16, 0, 5))
