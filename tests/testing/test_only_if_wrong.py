"""A tile off its swizzle's pattern is reported if the result is wrong, and not if the kernel accounts for it."""

from __future__ import annotations

import numpy as np

from warploom.runtime.program import Program
from warploom.sanitizer.rules import RULES
from warploom.testing import check_emulated


def rules(expected: int) -> set[str]:
    text = RULES["swizzle-base"].bad.text()
    program = Program.from_text(text, grid=(1, 1, 1), block=(128, 1, 1))
    data = np.zeros(2048, np.uint32)

    def check(*_: object) -> None:
        np.testing.assert_array_equal(data[:1], expected)

    return {finding.rule for finding in check_emulated(program, program, [data], check).findings}


def test_a_right_result_shows_that_it_is_meant():
    assert "swizzle-base" not in rules(0)
    assert {"swizzle-base", "wrong-result"} <= rules(7)
