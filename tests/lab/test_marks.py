"""Marks: the clock at chosen instructions, stored by the first thread of each warpgroup of one CTA."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.marks import Mark, marked, marks_of
from tests.errors import refused
from warploom import runtime
from warploom.driver import toolchain
from warploom.kernels.ladder import find
from warploom.runtime import emulate

OPCODES = ("wgmma.commit_group", "wgmma.wait_group", "bar.sync")


@pytest.mark.parametrize("rung", ["ping_pong"])
def test_a_text_with_marks_computes_the_same_and_does_not_spill(rung: str) -> None:
    program = find(rung).build().program()
    text = marked(program.text, program.entry, OPCODES, block=program.block[0])
    found = sum(line.lstrip().startswith(OPCODES) for line in program.text.splitlines())
    assert found and text.count("%clock;") == 2 * found
    probe = replace(program, text=text)
    a = np.random.default_rng(0).standard_normal((64, 64), np.float32).astype(program.arrays[0].dtype.numpy)
    plain, with_marks = (emulate(each, a, a, check=True) for each in (program, probe))
    assert plain.ok and with_marks.ok, with_marks.findings
    np.testing.assert_array_equal(plain.outputs[0], with_marks.outputs[0])
    if toolchain.ptxas() is not None:
        used = runtime.build(probe).resources[program.entry]
        assert (used.spills, used.notes) == (0, ())


TEXT = """.version 8.0
.target sm_90a
.visible .entry f()
{
    bar.sync 0;
    wgmma.wait_group.sync.aligned 0;
    ret;
}
"""


def stored(*marks: tuple[int, int, int, int], room: int = 4, groups: int = 2) -> np.ndarray:
    """Memory after marks (warpgroup, line, clock before, clock after)."""
    values, used = np.zeros((2 * room + 1, groups, 2), np.uint32), [0] * groups
    for group, line, before, after in marks:
        for clock, code in ((before, 2 * line), (after, 2 * line + 1)):
            values[min(used[group], 2 * room), group] = clock % 2**32, code
            used[group] += 1
    return values


def test_clocks_count_from_the_first_mark_of_the_cta_and_may_wrap() -> None:
    found = marks_of(
        stored((0, 5, 2**32 - 10, 2**32 + 10), (0, 6, 2**32 + 20, 2**32 + 90), (1, 5, 2**32 - 30, 5)), TEXT
    )
    assert found == [Mark(0, 5, "bar.sync 0;", 20, 40), Mark(0, 6, "wgmma.wait_group.sync.aligned 0;", 50, 120),
                     Mark(1, 5, "bar.sync 0;", 0, 2**32 + 35 - 2**32)]  # fmt: skip


def test_without_a_launch_there_are_no_marks() -> None:
    assert marks_of(stored(), TEXT) == []


def test_lost_marks_are_refused() -> None:
    with refused("argument"):
        marks_of(stored(*[(0, 5, at, at) for at in range(5)]), TEXT)


def test_an_instruction_or_entry_that_is_not_there_is_refused() -> None:
    for entry, opcodes in (("f", ("mma.sync",)), ("g", OPCODES)):
        with refused("argument"):
            marked(TEXT, entry, opcodes, block=128)
