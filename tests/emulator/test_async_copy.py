"""cp.async through PTX: zero fill, groups, arrival on an mbarrier. PTX ISA 9.7.9.25.3, 9.7.13.15.15."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.async_kernels import SCHEDULES, dump, emulate, init, wait, words
from tests.errors import refused

PLACES = """
    shl.b32 %r1, %idx, {shift};
    cvt.u64.u32 %rd1, %r1;
    add.u64 %rd1, %rd1, %a0;
    add.u32 %r1, %r1, %tile;
"""
DONE = "cp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;\n"


def copies(size: int, rest: str = "", cache: str = "ca") -> str:
    """Each thread copies its own element, and all wait."""
    places = PLACES.format(shift=size.bit_length() - 1)
    return f"{places}cp.async.{cache}.shared.global [%r1], [%rd1], {size}{rest};\n"


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("size", [4, 8, 16])
def test_each_thread_copies_its_bytes(size, schedule, seed):
    source, out = words(64 * size // 4), np.zeros(64 * size // 4, np.uint32)
    body = copies(size) + DONE + dump("%a1", 64 * size, threads=64)
    emulate(body, source, out, threads=64, target="sm_80", schedule=schedule, seed=seed)
    assert np.array_equal(source, out)


@pytest.mark.parametrize("taken", [0, 1, 4, 7, 16])
def test_what_lies_beyond_the_source_size_is_zero(taken):
    source, out = words(128), np.full(128, 9, np.uint32)
    emulate(copies(16, f", {taken}", "cg") + DONE + dump("%a1", 512), source, out)
    expected = source.view(np.uint8).reshape(32, 16).copy()
    expected[:, taken:] = 0
    assert np.array_equal(out.view(np.uint8).reshape(32, 16), expected)


def test_threads_may_take_different_numbers_of_bytes():
    source, out = words(128), np.full(128, 9, np.uint32)
    body = "and.b32 %r2, %idx, 15;\n" + copies(16, ", %r2") + DONE + dump("%a1", 512)
    emulate(body, source, out)
    expected = source.view(np.uint8).reshape(32, 16).copy()
    for thread in range(32):
        expected[thread, thread % 16 :] = 0
    assert np.array_equal(out.view(np.uint8).reshape(32, 16), expected)


def test_an_ignored_source_reads_as_zero():
    source, out = words(32), np.full(32, 9, np.uint32)
    emulate("setp.ge.u32 %p1, %idx, 16;\n" + copies(4, ", %p1") + DONE + dump("%a1", 128), source, out)
    assert np.array_equal(out[:16], source[:16]) and not out[16:].any()


def test_a_source_of_no_bytes_may_lie_anywhere():
    out = np.full(32, 9, np.uint32)
    emulate("mov.u64 %rd1, 64;\ncp.async.ca.shared.global [%tile], [%rd1], 4, 0;\n" + DONE + dump("%a0", 4), out)
    assert out[0] == 0


@pytest.mark.parametrize("waits", ["", "cp.async.commit_group;\ncp.async.wait_group 1;\n"])
def test_without_a_wait_that_covers_it_the_destination_is_poison(waits):
    out = np.zeros(32, np.uint32)
    emulate(copies(4) + waits + "bar.sync 0;" + dump("%a1", 128), words(32), out)
    assert (out == 0xFFFFFFFF).all()


def test_wait_group_covers_all_but_the_newest_groups():
    source, out = words(64), np.zeros(64, np.uint32)
    emulate(
        copies(4) + "cp.async.commit_group;\ncp.async.ca.shared.global [%r1+128], [%rd1+128], 4;\n"
        + "cp.async.commit_group;\ncp.async.wait_group 1;\nbar.sync 0;\n" + dump("%a1", 256),
        source, out,
    )  # fmt: skip
    assert np.array_equal(out[:32], source[:32]) and (out[32:] == 0xFFFFFFFF).all()


def test_an_empty_group_counts_among_the_newest():
    source, out = words(32), np.zeros(32, np.uint32)
    emulate(
        copies(4) + "cp.async.commit_group;\ncp.async.commit_group;\ncp.async.wait_group 1;\nbar.sync 0;\n"
        + dump("%a1", 128),
        source, out,
    )  # fmt: skip
    assert np.array_equal(out, source)


def test_wait_all_needs_no_commit():
    source, out = words(32), np.zeros(32, np.uint32)
    emulate(copies(4) + "cp.async.wait_all;\nbar.sync 0;\n" + dump("%a1", 128), source, out)
    assert np.array_equal(out, source)


def test_lanes_that_commit_apart_wait_for_their_own_groups():
    """Odd lanes put their copy into an older group than even lanes; with one group left pending only theirs is done."""
    source, out = words(32), np.zeros(32, np.uint32)
    emulate(
        copies(4).replace("cp.async.ca", "and.b32 %r2, %idx, 1;\nsetp.eq.u32 %p1, %r2, 1;\n@%p1 cp.async.ca")
        + "cp.async.commit_group;\n@!%p1 cp.async.ca.shared.global [%r1], [%rd1], 4;\n"
        + "cp.async.commit_group;\ncp.async.wait_group 1;\nbar.sync 0;\n" + dump("%a1", 128),
        source, out,
    )  # fmt: skip
    assert np.array_equal(out[1::2], source[1::2]) and (out[::2] == 0xFFFFFFFF).all()


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_an_arrival_after_the_copies_completes_a_barrier_that_counts_it(schedule, seed):
    """With .noinc the count of mbarrier.init includes the arrivals."""
    source, out = words(64), np.zeros(64, np.uint32)
    emulate(
        init(64) + copies(4) + "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];\n" + wait(0)
        + dump("%a1", 256, threads=64),
        source, out, threads=64, schedule=schedule, seed=seed,
    )  # fmt: skip
    assert np.array_equal(out, source)


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_without_noinc_the_arrival_raises_the_count_first(schedule, seed):
    source, out = words(32), np.zeros(32, np.uint32)
    emulate(
        init(32) + copies(4) + "cp.async.mbarrier.arrive.shared.b64 [bar];\n"
        + "mbarrier.arrive.shared.b64 _, [bar];\n" + wait(0) + dump("%a1", 128),
        source, out, schedule=schedule, seed=seed,
    )  # fmt: skip
    assert np.array_equal(out, source)


def test_counting_the_arrivals_twice_is_a_deadlock():
    with refused("deadlock") as caught:
        emulate(init(64) + copies(4) + "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];\n" + wait(0), words(32))
    assert [wait.missing for wait in caught.value.waits] == ["32 of 64 arrivals missing"]


MISUSE = {
    "source size above the copy size": (copies(8, ", 9"), ("invalid-operand", None, "src-size of at most 8")),
    "misaligned source": ("add.u64 %a0, %a0, 4;\n" + copies(8), ("misaligned", "4 bytes past one")),
    "misaligned destination": ("add.u32 %tile, %tile, 8;\n" + copies(16), ("misaligned", "8 bytes past one")),
    "source outside": ("add.u64 %a0, %a0, 1024;\n" + copies(16), ("out-of-bounds",)),
    "size of 12": (copies(8).replace(", 8;", ", 12;"), ("verification", None, "4 or 8 or 16")),
    "cg of 4 bytes": (copies(4, cache="cg"), ("verification", None, "16")),
}


@pytest.mark.parametrize("body, said", MISUSE.values(), ids=MISUSE)
def test_misuse_is_an_error(body, said):
    with refused(*said):
        emulate(body, words(256))
