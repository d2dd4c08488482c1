"""Correct rounding on NumPy arrays: IEEE 754 operations that NumPy lacks.

Everything narrower than double precision is computed in double, exactly or *rounded to odd* (if inexact, the
neighbour with an odd last bit). A value rounded to odd with at least two bits more than a format can be rounded to that
format in any mode as if it were exact: S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums: proved
algorithms using rounding to odd", IEEE Trans. Computers 57(4), 2008. Error terms: D. E. Knuth's TwoSum and
T. J. Dekker's product, the latter with G. W. Veltkamp's splitting.

NaNs: single and half precision results of arithmetic are canonical (0x7FFFFFFF, 0x7FFF), as on every NVIDIA GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
U16, U32, U64, I64 = np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
NAN32 = np.uint32(0x7FFFFFFF).view(np.float32)
NAN16 = np.uint16(0x7FFF)
TINY32 = np.float32(2.0**-126)
_TINY64 = 2.0**-126
_LOW_BITS = np.int64(0x1FFFFFFF)
_HALF_BIT = np.int64(0x10000000)


@dataclass(frozen=True)
class Format:
    """A binary format: bits of precision (hidden bit included), smallest normal exponent, largest value."""

    name: str
    precision: int
    least_exponent: int
    greatest: float


FORMATS = {
    "f16": Format("f16", 11, -14, 65504.0),
    "bf16": Format("bf16", 8, -126, float(np.uint32(0x7F7F0000).view(np.float32))),
    "tf32": Format("tf32", 11, -126, float(np.uint32(0x7F7FE000).view(np.float32))),
    "f32": Format("f32", 24, -126, float(np.finfo(np.float32).max)),
    "f64": Format("f64", 53, -1022, float(np.finfo(np.float64).max)),
    "e4m3": Format("e4m3", 4, -6, 448.0),
    "e5m2": Format("e5m2", 3, -14, 57344.0),
    "e2m3": Format("e2m3", 4, 0, 7.5),
    "e3m2": Format("e3m2", 3, -2, 28.0),
    "e2m1": Format("e2m1", 2, 0, 6.0),
}


# -- exact sums and products -------------------------------------------------------------------------------------


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and its error, a + b = s + e exactly (barring overflow)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded product and its error (no overflow, no underflow of the error)."""
    p = a * b
    t = a * 134217729.0
    ah = t - (t - a)
    t = b * 134217729.0
    bh = t - (t - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def make_odd(s: np.ndarray, e: np.ndarray) -> np.ndarray:
    """The rounded-to-nearest s and its error e, as s + e rounded to odd."""
    bits = s.view(np.int64)
    away = np.where((e > 0) == (s > 0), 1, -1)
    return np.where((e != 0) & (bits & 1 == 0) & np.isfinite(s), bits + away, bits).view(np.float64)


def add_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in double precision, rounded to odd."""
    s, e = two_sum(a, b)
    return make_odd(s, e)


# -- rounding to a format ----------------------------------------------------------------------------------------

_TO_INTEGRAL = {
    "rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil,
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


def to_integral(mode: str) -> np.ufunc:
    """The ufunc that rounds to an integral value: "rn"/"rni" to even, "rz", "rm" down, "rp" up."""
    return _TO_INTEGRAL[mode]


def round_to(x: np.ndarray, target: Format, mode: str = "rn", saturate: bool = False) -> np.ndarray:
    """Doubles rounded to a narrower format, as doubles.

    `x` is exact or rounded to odd. Beyond the largest value the result is infinite or the largest value, depending on
    the mode; with `saturate` always the largest value, for infinities too. NaN stays NaN.
    """
    _, exponent = np.frexp(x)
    quantum = np.maximum(exponent - 1, target.least_exponent) - (target.precision - 1)
    rounded = np.ldexp(_TO_INTEGRAL[mode](np.ldexp(x, -quantum)), quantum)
    over = np.abs(rounded) > target.greatest
    if np.count_nonzero(over):
        if saturate:
            limit: float | np.ndarray = target.greatest
        else:
            up, down = {"rn": (1, 1), "rz": (0, 0), "rm": (0, 1), "rp": (1, 0)}[mode]
            infinite = np.where(x > 0, up, down) | np.isinf(x)
            limit = np.where(infinite, np.inf, target.greatest)
        rounded = np.where(over, np.copysign(limit, x), rounded)
    return np.copysign(rounded, x)


def round_stochastically(x: np.ndarray, target: Format, random: np.ndarray, bits: int, saturate: bool) -> np.ndarray:
    """Doubles rounded to a narrower format, away from zero with the probability of the discarded part, as doubles.

    The uppermost `bits` bits of the discarded part and the random number of as many bits are added, and the carry is
    added to the kept part (PTX ISA 9.7.9.21, "stochastic rounding"). Beyond the largest value as in `round_to`, "rn".
    """
    _, exponent = np.frexp(x)
    quantum = np.maximum(exponent - 1, target.least_exponent) - (target.precision - 1)
    scaled = np.ldexp(np.abs(x), -quantum)
    kept = np.floor(scaled)
    cut = np.floor(np.ldexp(scaled - kept, bits))
    rounded = np.ldexp(kept + (cut + random >= 2.0**bits), quantum)
    limit = target.greatest if saturate else np.inf
    return np.copysign(np.where(rounded > target.greatest, limit, rounded), x)


def round32(x: np.ndarray, mode: str) -> np.ndarray:
    """Doubles, exact or rounded to odd, to single precision in a directed mode ("rz", "rm", "rp") or "rn"."""
    r = x.astype(np.float32)
    if mode == "rn":
        return r
    if mode == "rz":
        return np.where(np.abs(r) > np.abs(x), np.nextafter(r, np.float32(0)), r)
    if mode == "rm":
        return np.where(r > x, np.nextafter(r, np.float32(-np.inf)), r)
    return np.where(r < x, np.nextafter(r, np.float32(np.inf)), r)


def zero_sum_sign(total: np.ndarray, a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """A sum that is exactly zero is -0 when rounding down, unless both terms are +0 (IEEE 754, 6.3)."""
    if mode != "rm":
        return total
    zero = (total == 0) & (np.signbit(a) | np.signbit(b))
    return np.where(zero, total.dtype.type(-0.0), total)


def add32(a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """Single precision sum in a directed mode; the operands as doubles."""
    return zero_sum_sign(round32(add_odd(a, b), mode), a, b, mode)


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str = "rn") -> np.ndarray:
    """Single precision a*b + c with one rounding. The product of two singles is exact in double precision."""
    p = np.multiply(a, b, dtype=np.float64)
    c = np.asarray(c, np.float64)
    return zero_sum_sign(round32(add_odd(np.asarray(p), c), mode), p, c, mode)


def suspicious(total: np.ndarray, rounded: np.ndarray) -> bool:
    """True if a double sum may have been rounded twice on its way to single precision.

    That takes a double that ends exactly between two singles, or a subnormal single (whose ties end elsewhere).
    """
    if np.count_nonzero((total.view(np.int64) & _LOW_BITS) == _HALF_BIT):
        return True
    return bool(np.count_nonzero(np.abs(rounded) < TINY32)) and bool(
        np.count_nonzero((np.abs(total) < _TINY64) & (total != 0))
    )


# -- double precision --------------------------------------------------------------------------------------------


def fma_special(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a*b + c with two roundings, if a factor is zero or an operand is not finite.

    An infinite c dominates any finite product, however large. If c is NaN, it is the result (quieted) unless a
    factor is NaN, also for 0 * inf, as on an H200 (tests/golden/conformance.npz).
    """
    alone = (np.isinf(c) & np.isfinite(a) & np.isfinite(b)) | ((c != c) & (a == a) & (b == b))
    return np.where(alone, c * 1.0, a * b + c)


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Double precision a*b + c with one rounding, to nearest even (Boldo and Melquiond, algorithm 4).

    Lanes whose exponents are extreme go through exact rational arithmetic.
    """
    a, b, c = np.broadcast_arrays(np.asarray(a, F64), np.asarray(b, F64), np.asarray(c, F64))
    uh, ul = two_product(a, b)
    th, tl = two_sum(c, ul)
    vh, vl = two_sum(uh, th)
    s, e = two_sum(tl, vl)
    result = vh + make_odd(s, e)
    size = np.abs(uh)
    plain = (a == 0) | (b == 0) | ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c)
    safe = (
        (np.abs(a) < 2.0**990)
        & (np.abs(b) < 2.0**990)
        & (size > 2.0**-900)
        & (size < 2.0**1000)
        & (np.abs(c) < 2.0**1000)
    )
    result = np.where(plain, fma_special(a, b, c), result)
    for lane in np.flatnonzero(~plain & ~safe):
        result[lane] = fraction64(
            Fraction(float(a[lane])) * Fraction(float(b[lane])) + Fraction(float(c[lane])),
            "rn",
            float(uh[lane] + c[lane]),
        )
    return result


def fraction64(exact: Fraction, mode: str, sign_of_zero: float = 0.0) -> float:
    """A rational number rounded to double precision; zero gets the sign of `sign_of_zero`."""
    if exact == 0:
        return math.copysign(0.0, sign_of_zero)
    size, sign = abs(exact), -1 if exact < 0 else 1
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, -1023)
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    quantum = Fraction(2) ** (max(exponent, -1022) - 52)
    whole, rest = divmod(size / quantum, 1)
    upward = {"rz": False, "rm": exact < 0, "rp": exact > 0}.get(mode)
    if upward is None:
        upward = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    scaled = (whole + bool(upward and rest)) * quantum
    if scaled > Fraction(FORMATS["f64"].greatest):
        to_infinity = mode == "rn" or upward
        return sign * (math.inf if to_infinity else FORMATS["f64"].greatest)
    return math.copysign(float(scaled), sign)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: fma_special(a, b, c) if isinstance(a, np.ndarray) else a * b + c,
    "div": lambda a, b: a / b,
    "sqrt": np.sqrt,
}
"""For doubles (to nearest) and, except for the root, for rational numbers (exact)."""


def directed64(name: str, mode: str, *operands: np.ndarray) -> np.ndarray:
    """A double precision operation in a directed mode, lane by lane in rational arithmetic: exact, and slow.

    `name` is "add", "sub", "mul", "fma", "div" or "sqrt". Special values are those of the operation to nearest.
    """
    arrays = np.broadcast_arrays(*(np.asarray(x, F64) for x in operands))
    with np.errstate(all="ignore"):
        nearest = _OPERATIONS[name](*arrays)
    result = np.array(nearest, F64)
    special = ~np.all([np.isfinite(x) for x in arrays], axis=0)
    if name in ("div", "sqrt"):
        special |= arrays[-1] == 0
    if name == "sqrt":
        special |= arrays[0] < 0
    for lane in np.flatnonzero(~special):
        values = [float(x[lane]) for x in arrays]
        exact = [Fraction(value) for value in values]
        if name == "sqrt":
            result[lane] = _root64(exact[0], mode)
            continue
        sign = float(nearest[lane])
        if name in ("add", "sub", "fma") and mode == "rm":
            first = values[0] * values[1] if name == "fma" else values[0]
            second = -values[1] if name == "sub" else values[-1]
            if math.copysign(1, first) < 0 or math.copysign(1, second) < 0:
                sign = -0.0
        result[lane] = fraction64(_OPERATIONS[name](*exact), mode, sign)
    return result


def _root64(x: Fraction, mode: str) -> float:
    """Square root of a positive double: integer square root with a sticky bit far below the last place."""
    shift = 2200
    scaled = x * Fraction(4) ** shift
    root = math.isqrt(scaled.numerator)  # a double times 4**2200 is an integer
    sticky = Fraction(1, 2) if root * root != scaled.numerator else Fraction(0)
    return fraction64((root + sticky) / Fraction(2) ** shift, mode)


# -- half precision bits -----------------------------------------------------------------------------------------


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16) as singles, NaN payloads kept."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x: np.ndarray) -> np.ndarray:
    """Singles to bfloat16 bits, to nearest even; NaN becomes 0x7FFF."""
    bits = x.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    odd += np.uint32(0x7FFF)
    odd += bits
    # The rounded bits are the upper half of each word.
    rounded = odd.view(np.uint16)[1::2]
    nan = x != x
    return np.where(nan, NAN16, rounded) if np.count_nonzero(nan) else rounded


def f16_bits(x: np.ndarray) -> np.ndarray:
    """Values that may need rounding to nearest from single precision, as float16 bits; NaN becomes 0x7FFF."""
    bits = x.astype(np.float16).view(np.uint16)
    nan = x != x
    return np.where(nan, NAN16, bits) if np.count_nonzero(nan) else bits


def half_bits(x: np.ndarray, name: str) -> np.ndarray:
    """Doubles that are values of "f16" or "bf16", as bits (uint16); NaN becomes 0x7FFF."""
    if name == "f16":
        return f16_bits(x)
    return np.where(x != x, NAN16, (x.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16))


def half_values(bits: np.ndarray, name: str) -> np.ndarray:
    """Bits of "f16" or "bf16" (uint16) as doubles."""
    return bits.view(np.float16).astype(F64) if name == "f16" else bf16_to_f32(bits).astype(F64)


# -- modifiers ---------------------------------------------------------------------------------------------------


def flush(x: np.ndarray, tiny: float | np.floating = TINY32) -> np.ndarray:
    """Subnormals (below `tiny`) to zeros of the same sign."""
    small = np.abs(x) < tiny
    return np.where(small, x * 0, x) if np.count_nonzero(small) else x


def saturate(x: np.ndarray) -> np.ndarray:
    """Clamp to [+0, 1]; NaN becomes +0."""
    one, zero = x.dtype.type(1), x.dtype.type(0)
    return np.fmin(np.fmax(x, zero), one) + zero
