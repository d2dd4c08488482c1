"""Copies next to a kernel: their order, their flags, when they start, and the findings if they go wrong."""

from __future__ import annotations

import numpy as np
import pytest

from warploom import emulate
from warploom.errors import ArgumentError, EmulationError
from warploom.runtime.copies import MemoryCopy

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 inbox, .param .u64 flag, .param .u64 out)
{
    .reg .b64 %rd<8>;
    .reg .b32 %r<8>;
    .reg .pred %p<4>;
    ld.param.u64 %rd1, [inbox];
    ld.param.u64 %rd2, [flag];
    ld.param.u64 %rd3, [out];
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra ready;
again:
    ld.acquire.sys.global.u32 %r2, [%rd2];
    setp.ne.u32 %p2, %r2, 1;
    @%p2 bra again;
ready:
    bar.sync 0;
    mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd1, %rd4;
    ld.global.u32 %r3, [%rd5];
    add.s64 %rd6, %rd3, %rd4;
    st.global.u32 [%rd6], %r3;
    bar.sync 0;
    @%p1 bra done;
    mov.u32 %r4, 0;
    LOWER
done:
    ret;
}
"""
LOWERED = TEXT.replace("LOWER", "st.global.u32 [%rd2], %r4;")
LEFT = TEXT.replace("LOWER", "")
SCHEDULES = [("lazy", 0), ("eager", 0), ("random", 1), ("starve", 0), ("starve", 1), ("pct", 3)]
ONE = np.ones(1, np.uint32)


class Case:
    """Each of two GPUs sends 32 words to the other one, in two copies of 16, which have no order but the stream's."""

    def __init__(self) -> None:
        self.sent = [np.arange(32, dtype=np.uint32) + 100 * rank for rank in (1, 2)]
        self.inbox, self.out = ([np.zeros(32, np.uint32) for _ in range(2)] for _ in range(2))
        self.flag = [np.zeros(1, np.uint32) for _ in range(2)]

    def stream(self, rank: int) -> list[MemoryCopy]:
        to, halves = 1 - rank, (slice(0, 16), slice(16, 32))
        copies = [MemoryCopy(self.sent[rank][half], self.inbox[to][half]) for half in halves]
        return [*copies, MemoryCopy(ONE, self.flag[to], flag=True)]

    def run(self, text: str = LOWERED, copies=None, **options):
        copies = [[self.stream(rank)] for rank in range(2)] if copies is None else copies
        return emulate(
            text, self.inbox, self.flag, self.out, grid=1, block=32, devices=2, copies=copies, **options,
        )  # fmt: skip

    @property
    def right(self) -> bool:
        return all((self.out[rank] == self.sent[1 - rank]).all() for rank in range(2))


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_flag_tells_of_the_copies_before_it(schedule, seed):
    case = Case()
    report = case.run(schedule=schedule, seed=seed)
    assert case.right and not report.findings


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES[:3])
def test_a_flag_does_not_tell_of_the_copies_behind_it(schedule, seed):
    case = Case()
    streams = [[case.stream(rank)[i] for i in (0, 2, 1)] for rank in range(2)]
    report = case.run(copies=[[stream] for stream in streams], schedule=schedule, seed=seed)
    assert {finding.rule for finding in report.findings} & {"peer-flag-order", "peer-buffer-reused"}
    assert "copy stream 0 of GPU" in report.findings[0].message


def test_a_flag_does_not_tell_of_another_stream():
    case = Case()
    copies = [[case.stream(rank)[:1], case.stream(rank)[1:]] for rank in range(2)]
    rules = {finding.rule for finding in case.run(copies=copies).findings}
    assert rules & {"peer-flag-order", "global-data-race"}


def test_a_flag_that_stays_up_and_a_buffer_that_is_used_again_are_found():
    rules = {finding.rule for finding in Case().run(LEFT, calls=2).findings}
    assert "peer-flag-stale" in rules and "peer-buffer-reused" in rules


def test_without_the_copy_of_a_flag_the_kernel_hangs():
    with pytest.raises(EmulationError):
        case = Case()
        case.run(copies=[[case.stream(rank)[:2]] for rank in range(2)])


def test_rows_of_a_matrix_are_copied_as_they_lie():
    source, target = np.arange(48, dtype=np.uint32).reshape(4, 12), np.zeros((4, 12), np.uint32)
    inbox, flag, out = (np.zeros(count, np.uint32) for count in (32, 1, 32))
    copies = [[[MemoryCopy(source[:, 2:6], target[:, 4:8]), MemoryCopy(ONE, flag, flag=True)]]]
    emulate(LOWERED, inbox, flag, out, grid=1, block=32, copies=copies, schedule="random", seed=5)
    assert (target[:, 4:8] == source[:, 2:6]).all() and target.sum() == source[:, 2:6].sum()


def halves(array):
    return array.view(np.uint16)


REFUSED = {
    "blocks of two sizes": lambda case: [[[MemoryCopy(case.sent[0][:8], case.inbox[1][:9])]], []],
    "halves of words": lambda case: [[[MemoryCopy(halves(case.sent[0])[:3], halves(case.inbox[1])[:3])]], []],
    "a flag of two words": lambda case: [[[MemoryCopy(case.sent[0][:2], case.inbox[1][:2], flag=True)]], []],
    "columns apart": lambda case: [[[MemoryCopy(case.sent[0][::2], case.inbox[1][::2])]], []],
    "a list too few": lambda case: [[case.stream(0)]],
}  # fmt: skip


@pytest.mark.parametrize("copies", REFUSED.values(), ids=REFUSED)
def test_copies_that_cannot_be_are_refused(copies):
    case = Case()
    with pytest.raises(ArgumentError):
        case.run(copies=copies(case))


def test_copies_are_not_tried_in_every_order():
    with pytest.raises(ArgumentError):
        Case().run(schedule="exhaustive")
