"""vprintf's output for a format and values in memory, by C's rules."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from warploom.emulator.program.external import formatted

TEXT = 4096


@pytest.mark.parametrize(
    "text, values, expected",
    [
        ("%d|%5u|%-4d|%+d", struct.pack("<iIii", -3, 7, 12, 5), "-3|    7|12  |+5"),
        ("%llx %hhd %lu", struct.pack("<QixxxxQ", 1 << 40, -1, 9), "10000000000 -1 9"),
        ("%f %.2e %g", struct.pack("<ddd", 1.5, 12345.0, 0.25), "1.500000 1.23e+04 0.25"),
        ("%s%c%%", struct.pack("<Qi", TEXT, 33), "name!%"),
        ("%*.*f|%p", struct.pack("<iidQ", 8, 3, 2.0, 0xABC), "   2.000|0xabc"),
        ("%d then %f", struct.pack("<ixxxxd", 1, 2.0), "1 then 2.000000"),
    ],
)
def test_a_format_takes_its_values_from_memory(text: str, values: bytes, expected: str) -> None:
    memory = values.ljust(TEXT, b"\0") + b"name\0"

    def read(address: int, dtype: np.dtype) -> np.generic:
        return np.frombuffer(memory, dtype, 1, address)[0]

    assert formatted(text.encode(), read, 0)[0] == expected
