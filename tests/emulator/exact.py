"""Reference arithmetic for the tests: rational numbers rounded to binary formats by the definition, one at a time."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

# precision (hidden bit included), least normal exponent, greatest value
FORMATS = {
    "f16": (11, -14, 65504),
    "bf16": (8, -126, (2 - Fraction(1, 2**7)) * 2**127),
    "tf32": (11, -126, (2 - Fraction(1, 2**10)) * 2**127),
    "f32": (24, -126, (2 - Fraction(1, 2**23)) * 2**127),
    "f64": (53, -1022, (2 - Fraction(1, 2**52)) * 2**1023),
    "e4m3": (4, -6, 448),
    "e5m2": (3, -14, 57344),
}


def rounded(exact: Fraction, name: str, mode: str = "rn", zero_sign: int = 1) -> float:
    """The value of a format nearest to `exact` in a mode; inf past the greatest value where the mode says so."""
    precision, least, greatest = FORMATS[name]
    if exact == 0:
        return math.copysign(0.0, zero_sign)
    negative, size = exact < 0, abs(exact)
    exponent = max(least, size.numerator.bit_length() - size.denominator.bit_length() - 1)
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    quantum = Fraction(2) ** (exponent - precision + 1)
    down = (size / quantum).__floor__()
    rest = size / quantum - down
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1)
    elif mode == "rna":
        up = rest >= Fraction(1, 2)
    else:
        up = rest > 0 and mode == ("rm" if negative else "rp")
    value = (down + up) * quantum
    if value > greatest:
        outward = mode in ("rn", "rna") or mode == ("rm" if negative else "rp")
        result = math.inf if outward else float(greatest)
    else:
        result = float(value)
    return -result if negative else result


def bits_equal(found: np.ndarray, expected: np.ndarray) -> None:
    """Assert that two float arrays have the same bits, showing the first difference."""
    kind = np.dtype(f"u{found.dtype.itemsize}")
    a, b = np.ascontiguousarray(found).view(kind), np.ascontiguousarray(expected).view(kind)
    wrong = np.flatnonzero(a != b)
    assert wrong.size == 0, (
        f"{wrong.size} of {a.size} differ; first at {wrong[0]}: {a[wrong[0]]:#x} instead of {b[wrong[0]]:#x}"
    )
