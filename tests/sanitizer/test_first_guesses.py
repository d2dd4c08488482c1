"""Compare-and-swap loops that begin with a plain load, as compilers write them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sanitizer.running import SCHEDULES, rules, run
from warploom.sanitizer.rules import Example

schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])
RACES = {"global-data-race", "global-hand-off"}
GUESS_AND_SWAP = """
ld.SPACE.u32 %r2, [PLACE];
again:
add.u32 %r3, %r2, 3;
atom.relaxed.gpu.SPACE.cas.b32 %r4, [PLACE], COMPARED, %r3;
setp.ne.u32 %p1, %r2, %r4;
mov.u32 %r2, %r4;
@%p1 bra again;
"""
"""Every thread adds 3 to a word by a compare-and-swap that begins with a plain load."""


@schedules
@pytest.mark.parametrize("space", ["global", "shared"])
def test_the_plain_load_that_begins_a_compare_and_swap_is_a_warning(space: str, schedule: str, seed: int):
    begin = "" if space == "global" else "@%first st.shared.u32 [tile], 0;\nbar.sync 0;"
    place = "%data+256" if space == "global" else "tile"
    swap = GUESS_AND_SWAP.replace("SPACE", space).replace("PLACE", place).replace("COMPARED", "%r2")
    report = run(Example(begin + swap, grid=2), schedule, seed)
    assert {(finding.rule, finding.severity) for finding in report.findings} == {("unordered-first-guess", "warning")}
    if space == "global":
        assert report.outputs[0].view(np.uint32)[64] == 64 + 3 * 2 * 128


def test_a_load_and_a_compare_and_swap_with_another_value_race():
    swap = GUESS_AND_SWAP.replace("SPACE", "global").replace("PLACE", "%data+256").replace("COMPARED", "%idx")
    assert rules(Example(swap.replace("@%p1 bra again;", ""), grid=2)) & RACES


def test_a_plain_load_of_a_word_that_is_stored_plainly_races_whatever_becomes_of_it():
    swap = GUESS_AND_SWAP.replace("SPACE", "global").replace("PLACE", "%data+256").replace("COMPARED", "%r2")
    assert "global-data-race" in rules(Example(f"{swap}\nst.global.u32 [%data+256], %idx;", grid=2))
