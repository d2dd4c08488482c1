"""A warp that has left the kernel without arriving where others wait: the report names the branch that it took."""

from __future__ import annotations

import re

import pytest

from tests.emulator.async_kernels import emulate
from tests.errors import refused
from warploom.errors import DeadlockError

ENDS = "bra.uni end;\nwork:\nbar.sync 1, 128;\nend:\n"
LAST = "setp.lt.u32 %p1, %idx, 96;\n"
CASES = {
    "a branch to the end": (LAST + "@!%p1 bra out;\nbar.sync 1, 128;\nout:\n", [("@!%p1 bra out", True)]),
    "a branch not taken": (LAST + "@%p1 bra work;\n" + ENDS, [("@%p1 bra work", False)]),
    "a guarded exit": (LAST + "@!%p1 exit;\nbar.sync 1, 128;\n", [("@!%p1 exit", True)]),
    "the last of a loop": (
        "mov.u32 %r1, 0;\nmov.u32 %r2, 3;\n" + LAST + "@!%p1 mov.u32 %r2, 2;\n"
        "again:\nbar.sync 1, 128;\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p2, %r1, %r2;\n@%p2 bra again;\n",
        [("@%p2 bra again", False)],
    ),
    "one of two, by its predicate": (
        "setp.gt.u32 %p2, %idx, 999;\n@%p2 bra out;\n" + LAST + "@!%p1 bra out;\nbar.sync 1, 128;\nout:\n",
        [("@!%p1 bra out", True)],
    ),
    "one of two that it may have taken": (
        LAST + "@!%p1 bra out;\n@!%p1 bra out;\nbar.sync 1, 128;\nout:\n", [("@!%p1 bra out", True)] * 2,
    ),
    "a branch around the other barrier": (
        LAST + "@!%p1 bra skip;\nmov.u32 %r1, 1;\nskip:\n@!%p1 bra out;\nbar.sync 1, 128;\nout:\n",
        [("@!%p1 bra out", True)],
    ),
}  # fmt: skip


def branches(words: str) -> list[tuple[str, bool, int]]:
    """The branches that a report names: their texts, whether they were taken, and their lines."""
    found = re.findall(r":(\d+) \(`([^`]*)`( not taken)?\)", words)
    return [(text, not missed, int(line)) for line, text, missed in found]


def stopped(body: str) -> DeadlockError:
    with refused("deadlock") as caught:
        emulate(body, threads=128)
    assert isinstance(caught.value, DeadlockError)
    return caught.value


@pytest.mark.parametrize("case", CASES)
def test_a_deadlock_names_the_branch_by_which_a_warp_left(case: str):
    body, ways = CASES[case]
    (wait,) = stopped(body).waits
    assert "warp 3 has exited at" in wait.reason
    assert [way[:2] for way in branches(wait.reason)] == ways
    lines = [line for _, _, line in branches(wait.reason)]
    assert lines == sorted(lines) and all(line != wait.location.line for line in lines)


PHASES = """
@%first mbarrier.init.shared::cta.b64 [%bar], 128;
bar.sync 0;
setp.lt.u32 %p1, %idx, LAST;
mov.u32 %r1, 0;
again:
mbarrier.arrive.shared::cta.b64 _, [%bar];
waits:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [%bar], %r1;
@!%p0 bra waits;
add.u32 %r1, %r1, 1;
@!%p1 bra out;
setp.lt.u32 %p2, %r1, 2;
@%p2 bra again;
out:
"""


def test_a_deadlock_at_an_mbarrier_names_the_branch_of_those_that_came_before():
    first = next(one for one in stopped(PHASES.replace("LAST", "64")).waits if one.came)
    (left,) = first.left
    assert "warps 2-3" in left and [way[:2] for way in branches(left)] == [("@!%p1 bra out", True)]
    assert left in str(first) and left in first.what()
