"""Functions of one value inside a function of scores or masks, each one instruction and a factor, with derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...isa.dtypes import f32
from ...lang import ptx, reg
from ...lang.values import Register
from .attention_values import Value, scaled

Slope = Callable[[Value, Value], Value]
"""Computes the derivative of a function from its argument and its value."""
LN2 = math.log(2)


def unary(operate: Callable[[Register], Register], slope: Slope) -> Callable[[Any], Value]:
    """A function of a float and its derivative."""

    def apply(input: Any) -> Value:  # noqa: A002 - torch's name
        given = Value.of(input)
        found = Value(operate(given.floating()))
        return found if given.slope is None else found.sloping(scaled(given.slope, slope(given.flat(), found.flat())))

    return apply


def _approximate(opcode: str, slope: Slope) -> Callable[[Any], Value]:
    def operate(x: Register) -> Register:
        result = reg.scalar(f32)
        ptx.inst(opcode, result, x)
        return result

    return unary(operate, slope)


exp = unary(lambda x: ptx.math.ex2(x * math.log2(math.e)), lambda x, y: y)
exp2 = unary(ptx.math.ex2, lambda x, y: y * LN2)
log = unary(lambda x: ptx.math.lg2(x) * LN2, lambda x, y: 1.0 / x)
log2 = unary(ptx.math.lg2, lambda x, y: 1.0 / (x * LN2))
sin: Callable[[Any], Value] = _approximate("sin.approx.f32", lambda x, y: cos(x))
cos: Callable[[Any], Value] = _approximate("cos.approx.f32", lambda x, y: -sin(x))
tanh = _approximate("tanh.approx.f32", lambda x, y: 1.0 - y * y)
sqrt = _approximate("sqrt.approx.f32", lambda x, y: 0.5 / y)
rsqrt = _approximate("rsqrt.approx.f32", lambda x, y: y * y * y * -0.5)


def rounded(mode: str) -> Callable[[Any], Value]:
    """To a whole number; an integer is one. mode: PTX's rounding modifier, such as "rmi"."""

    def apply(input: Any) -> Value:  # noqa: A002
        given = Value.of(input)
        if not given.is_float:
            return given
        found = reg.scalar(f32)
        ptx.inst(f"cvt.{mode}.f32.f32", found, given.floating())
        return Value(found)

    return apply


trunc, floor, ceil, nearest = (rounded(mode) for mode in ("rzi", "rmi", "rpi", "rni"))
