"""Quotients, remainders and powers inside a function of scores or masks, as in torch.

Remainders of floats are exact if the quotient is below 2^24.
"""

from __future__ import annotations

import math
from typing import Any

from ...isa.dtypes import s32, u32
from ...lang import ptx, reg
from ...lang.predicate import Predicate
from ...lang.values import Register
from .attention_elementary import exp2, floor, log2, sqrt, trunc
from .attention_values import FUNCTIONS, Value, scaled, total, trace_error, where

_BITS = 32


def divided(input: Any, other: Any) -> tuple[Value, Value]:  # noqa: A002 - torch's name
    """Floor quotient and remainder, as in Python: the remainder has the divisor's sign."""
    left, right = _operands(input, other)
    if left.is_float or right.is_float:
        quotient, rest = _float_rest(left, right, floor(left.flat() / right.flat()), right)
        below = scaled(right.slope, -quotient)
        return quotient, rest.sloping(total(left.slope, below))
    numerator, divisor = left._pair(right)
    found = reg.scalar(s32)
    ptx.inst.div.s32(found, numerator, divisor)
    rest_ = numerator - found * divisor
    if isinstance(right.held, int) and right.held > 0:
        above = rest_ < 0
    else:
        above = ((rest_ ^ divisor) < 0) & (rest_ != 0)
    return (
        left._joined(right, ptx.select(above, found - 1, found)),
        left._joined(right, ptx.select(above, rest_ + divisor, rest_)),
    )


def truncated(input: Any, other: Any) -> tuple[Value, Value]:  # noqa: A002
    """The quotient rounded towards 0, and the remainder, which has the dividend's sign."""
    left, right = _operands(input, other)
    if left.is_float or right.is_float:
        quotient = trunc(left.flat() / right.flat())  # as torch.div's, which knows no remainder
        rest = _float_rest(left, right, quotient, left)[1]
        return quotient, rest.sloping(total(left.slope, scaled(right.slope, -quotient)))
    found = reg.scalar(s32)
    ptx.inst.div.s32(found, left.integer(), right.integer())
    quotient = left._joined(right, found)
    return quotient, left - quotient * right


def _operands(input: Any, other: Any) -> tuple[Value, Value]:  # noqa: A002
    left, right = Value.of(input), Value.of(other)
    if isinstance(right.held, (bool, int, float)) and not right.held:
        raise trace_error("a value is divided by zero", "a nonzero divisor", repr(right.held))
    return left, right


def _float_rest(left: Value, right: Value, quotient: Value, sign: Value) -> tuple[Value, Value]:
    """The quotient rounded down, which division may have rounded up to the next whole number, and the remainder.

    sign: the value whose sign the remainder has.
    """
    a, b = Value(left.floating()), Value(right.floating())
    rest = Value(ptx.math.fma((-quotient).floating(), b.floating(), a.floating()))
    if not isinstance(right.held, (int, float)):
        rest = where(abs(b) == math.inf, a, rest)
    elif math.isinf(right.held):
        rest = a
    known = right.held if sign is right and isinstance(right.held, (int, float)) else 0
    off = rest < 0 if known > 0 else rest > 0 if known < 0 else (rest != 0) & ((rest < 0) ^ (sign.flat() < 0))
    back = b if sign is right else where(a < 0, -abs(b), abs(b))
    return where(off, quotient - 1.0, quotient), where(off, rest + back, rest)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Value:  # noqa: A002
    """torch.div."""
    left = Value.of(input)
    if rounding_mode is None:
        return left / other
    if rounding_mode not in ("floor", "trunc"):
        raise trace_error("a quotient has no such rounding_mode", "None, 'floor', 'trunc'", repr(rounding_mode))
    return (divided if rounding_mode == "floor" else truncated)(left, other)[0]


def power(base: Any, exponent: Any) -> Value:
    """torch.pow of a base that is a number, or an exponent that is one."""
    by = exponent.held if isinstance(exponent, Value) else exponent
    if not isinstance(by, (int, float)):
        left = base.held if isinstance(base, Value) else base
        if isinstance(left, int) and not Value.of(exponent).is_float:
            return _of_integer(int(left), exponent)
        if isinstance(left, (int, float)) and 0 < left < math.inf:
            return exp2(Value.of(exponent) * math.log2(left))
        raise trace_error("a base or an exponent must be a number", "a number, as a base a positive one", repr(base))
    x = Value.of(base)
    if isinstance(by, float):
        x = Value(x.floating(), x.slope)
    if not math.isfinite(by):
        raise trace_error("an exponent must be a finite number", "a finite number", repr(by))
    if by == int(by):
        found = _whole_power(x, abs(int(by)))
        return found if by >= 0 else 1.0 / found
    found = sqrt(x.flat()) if by == 0.5 else exp2(log2(x.flat()) * by)
    return found.sloping(None if x.slope is None else scaled(x.slope, power(x.flat(), by - 1) * by))


def _whole_power(x: Value, by: int) -> Value:
    found: Value | None = None
    while by:
        if by & 1:
            found = x if found is None else found * x
        by >>= 1
        x = x * x if by else x
    if found is None:
        return Value(1.0) if x.is_float else Value(1)
    return Value(found.held, narrow=found.narrow).sloping(found.slope)


def _of_integer(base: int, exponent: Value) -> Value:
    """A power of an integer, exact below 2^31; of a negative exponent 0 like the quotient, rounded down, that it is."""
    at = exponent.integer()
    if base in (0, 1, -1):
        odd = Value(at & 1) != 0
        return where(Value(at) == 0, 1, 0) if base == 0 else where(odd, base, 1)
    if base > 0 and not base & (base - 1):
        found = reg.scalar(s32)
        width = base.bit_length() - 1
        shift = ptx.select(at.view(u32) < _BITS, at * width, _BITS)
        ptx.inst("shl.b32", found, reg.scalar(s32, init=1), shift.view(u32))
        return Value(found)
    product = Value(1)
    for bit in range(_BITS.bit_length() - 1):
        factor = _low_bits(pow(base, 1 << bit))
        product = product * where(Value(at & (1 << bit)) != 0, factor, 1)
    return where(Value(_below(at)), product, 0)


def _below(at: Register) -> Predicate:
    """True for exponents from 0 to 31; more make every integer overflow."""
    found: Predicate = at.view(u32) < _BITS
    return found


def _low_bits(number: int) -> int:
    return (number + (1 << _BITS - 1)) % (1 << _BITS) - (1 << _BITS - 1)


FUNCTIONS |= {
    "floor_divide": lambda input, other: divided(input, other)[0],
    "remainder": lambda input, other: divided(input, other)[1],
    "fmod": lambda input, other: truncated(input, other)[1],
    "div": div, "divide": div, "pow": power, "rpow": lambda a, b: power(b, a),
}  # fmt: skip
