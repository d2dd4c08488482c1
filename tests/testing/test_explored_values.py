"""With "explore", a run with wrong values fails under any schedule, and the arrays are restored."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.runtime.program import Program
from warploom.sanitizer.explore import EXPLORED
from warploom.sanitizer.rules import Example
from warploom.testing import check_emulated

LAST = Example("mov.u32 %r6, %ctaid.x;\n@%first st.relaxed.gpu.global.u32 [%data], %r6;\n", grid=2).text()
"""Both CTAs store their number: no race, but the order decides."""
ADDS = Example("@%first red.relaxed.gpu.global.add.u32 [%data], 1;\n", grid=2).text()


def checked(text: str, wanted: int):
    program, data = Program.from_text(text, grid=(2, 1, 1), block=(128, 1, 1)), np.zeros(2048, np.uint32)
    seen = []

    def check(*outputs: np.ndarray) -> None:
        assert outputs[0] is data
        seen.append(int(data[0]))
        assert seen[-1] == wanted

    return check_emulated(program, program, [data], check, schedule="explore"), seen, data


@pytest.mark.parametrize("wanted", [0, 1])
def test_the_first_schedule_with_a_wrong_value_is_told(wanted: int) -> None:
    found, seen, data = checked(LAST, wanted)
    at = next(at for at, value in enumerate(seen) if value != wanted)
    assert [finding.rule for finding in found.errors] == ["wrong-result"]
    assert (found.schedule, found.seed) == EXPLORED[at] == found.explored[-1]
    assert data[0] == seen[-1] == 1 - wanted, "it was run once more to be looked at"


def test_each_run_begins_with_the_same_arrays() -> None:
    found, seen, data = checked(ADDS, 2)
    assert found.ok and found.explored == EXPLORED
    assert seen == [2] * (len(EXPLORED) + 1) and data[0] == 2
