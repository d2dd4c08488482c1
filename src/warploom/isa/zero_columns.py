"""The zero-column mask of tcgen05.mma.ws: columns of B that count as zeros, and B's first column. PTX ISA 9.7.16.4.3.

For M = 128, one mask covers the N columns; for 64, two masks cover N / 2 columns each; for 32, four cover N / 4. Each
mask is a sequence of runs that alternate between zeros and used columns, minus its first columns. The ISA's table and
its examples name the two spans the other way round; this follows the examples, as CUTLASS does.

The ISA has one sentence for the shift: it "allows MMA on non-0 starting column". CUTLASS's convolutions shift B by the
tap of the filter and mask the columns of the result: column n is multiplied with column n + shift of B in memory, and
the mask counts n.
"""

from __future__ import annotations

import numpy as np

from ..errors import InvalidOperandError

_MASKS = {128: 1, 64: 2, 32: 4}
_GENERATED, _RESERVED, _SHIFT = 39, 0b111 << 36 | 0b11 << 62, 56


def zero_columns(bits: int, m: int, n: int) -> np.ndarray:
    """The columns of B that count as zeros, (n,) bool.

    bits: the mask's descriptor; m, n: of the MMA. Raises InvalidOperandError for reserved bits.
    """
    if bits & _RESERVED:
        raise InvalidOperandError(
            "the zero-column mask sets reserved bits", expected="0 in bits 36 to 38, 62 and 63", got=f"{bits:#018x}"
        )
    if not bits >> _GENERATED & 1:
        return np.zeros(n, np.bool_)
    zeros, used = (bits >> 40 & 0xFF) + 1, (bits >> 48 & 0xFF) + 1
    masks, size = [], n // _MASKS[m]
    for number in range(_MASKS[m]):
        skipped, zeros_first = bits >> 8 * number & 0xFF, bits >> 32 + number & 1
        place = np.arange(skipped, skipped + size) + (0 if zeros_first else zeros)
        masks.append(place % (zeros + used) < zeros)
    return np.concatenate(masks)


def column_shift(bits: int, m: int) -> int:
    """The first column of B that the MMA multiplies. Raises InvalidOperandError if it is beyond the limit for m."""
    shift, most = bits >> _SHIFT & 63, 16 if m == 32 else 32
    if shift > most:
        raise InvalidOperandError(
            f"the zero-column mask shifts the columns of B too far for m {m}",
            expected=f"at most {most}",
            got=str(shift),
        )
    return shift
