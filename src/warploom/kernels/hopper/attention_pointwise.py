"""torch's pointwise functions of values inside a function of scores or masks: `FUNCTIONS`, with their derivatives.

A function takes torch's arguments, also by name, and refuses any other: it never ignores one. Those made of others have
the derivative that follows from theirs. At the kinks of abs, minimum and similar functions the slope is torch's.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

from ...isa.dtypes import f32
from ...lang import ptx, reg
from ...lang.values import Register
from . import attention_quotients  # noqa: F401 - fills the table of functions
from .attention_elementary import Slope, ceil, cos, exp, exp2, floor, log, log2, nearest, rsqrt, sin, sqrt, tanh, trunc
from .attention_values import (
    ATTRIBUTES,
    FUNCTIONS,
    METHODS,
    Slopes,
    Value,
    as_truth,
    converted,
    picked,
    scaled,
    slope_in,
    total,
    trace_error,
    where,
)

ERF_SLOPE = 2 / math.sqrt(math.pi)

# -- arithmetic ------------------------------------------------------------------------------------------------------


def _add(input: Any, other: Any, *, alpha: Any = 1) -> Value:  # noqa: A002
    return Value.of(input) + (other if alpha == 1 else Value.of(other) * alpha)


def _sub(input: Any, other: Any, *, alpha: Any = 1) -> Value:  # noqa: A002
    return Value.of(input) - (other if alpha == 1 else Value.of(other) * alpha)


# -- choices and steps -----------------------------------------------------------------------------------------------


def _larger(a: Any, b: Any) -> Any:
    """The larger of two numbers or registers; NaN if one of them is."""
    return _with_nan("max", a, b) if isinstance(a, Register) and a.dtype.is_float else ptx.math.max(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return _with_nan("min", a, b) if isinstance(a, Register) and a.dtype.is_float else ptx.math.min(a, b)


def _with_nan(opcode: str, a: Register, b: Register) -> Register:
    found = reg.scalar(f32)
    ptx.inst(f"{opcode}.NaN.f32", found, a, b)
    return found


def _extreme(operate: Callable[[Any, Any], Any], sign: int) -> Callable[[Any, Any], Value]:
    """minimum (sign -1) and maximum (1); two equal arguments each get half of the slope."""

    def apply(input: Any, other: Any) -> Value:  # noqa: A002
        left, right = Value.of(input), Value.of(other)
        found = left._compute(right, operate)
        if left.slope is None and right.slope is None:
            return found
        ahead, both = (left.flat() - right.flat()) * sign, {}
        for name in dict.fromkeys((*(left.slope or ()), *(right.slope or ()))):
            both[name] = (slope_in(left.slope, name) + slope_in(right.slope, name)) * 0.5
        return found.sloping(picked(ahead > 0, left.slope, picked(ahead < 0, right.slope, both)))

    return apply


def _clamped(input: Any, min: Any = None, max: Any = None) -> Value:  # noqa: A002 - torch's names
    value = Value.of(input)
    slope = _clamped_slope(value, *[None if bound is None else Value.of(bound) for bound in (min, max)])
    if min is not None:
        value = value._compute(min, _larger)
    if max is not None:
        value = value._compute(max, _smaller)
    return Value(value.held, narrow=value.narrow).sloping(slope)


def _clamped_slope(value: Value, low: Value | None, high: Value | None) -> Slopes | None:
    """As in torch: the slope of x between the bounds and on them, beyond a bound that of the bound; of a lower bound
    above the upper one, the upper one's."""
    x, found = value.flat(), None
    if value.slope is not None:
        inside = Value(True)
        for bound, within in ((low, lambda a, b: a >= b), (high, lambda a, b: a <= b)):
            inside = inside if bound is None else inside & within(x, bound.flat())
        found = picked(inside, value.slope, None)
    if low is not None and low.slope is not None:
        below = x < low.flat()
        below = below if high is None else below & (low.flat() < high.flat())
        found = total(found, picked(below, low.slope, None))
    if high is not None and high.slope is not None:
        above = x > high.flat()
        above = above if low is None else above | (high.flat() < low.flat())
        found = total(found, picked(above, high.slope, None))
    return found


def _absolute(input: Any) -> Value:  # noqa: A002
    return abs(Value.of(input))


def _sign(input: Any) -> Value:  # noqa: A002
    x = Value.of(input).flat()
    one: float = 1.0 if x.is_float else 1
    return where(x > 0, one, where(x < 0, -one, one * 0))


def _is(holds: Callable[[Value], Value]) -> Callable[[Any], Value]:
    """A question about floats; of integers the answer is that for 0."""

    def apply(input: Any) -> Value:  # noqa: A002
        return holds(Value(Value.of(input).floating()))

    return apply


# -- activations -----------------------------------------------------------------------------------------------------


def _sigmoid(input: Any) -> Value:  # noqa: A002
    given = Value.of(input)
    found = 1.0 / (1.0 + exp(-given.flat()))
    return found if given.slope is None else found.sloping(scaled(given.slope, found * (1.0 - found)))


def _polynomial(x: Value, *factors: float) -> Value:
    """factors[0] + factors[1] x + …"""
    found = Value(factors[-1])
    for factor in reversed(factors[:-1]):
        found = found * x + factor
    return found


def _series(near: float, close: Callable[[Value], Value], far: Callable[[Value], Value], slope: Slope) -> Any:
    """A function that has a series around 0, where its usual formula would lose digits."""

    def apply(input: Any) -> Value:  # noqa: A002
        given = Value.of(input)
        x = Value(given.floating())
        found = where(abs(x) < near, close(x), far(x))
        return found if given.slope is None else found.sloping(scaled(given.slope, slope(x, found.flat())))

    return apply


def _atanh_series(x: Value) -> Value:
    """log(1 + x) = 2 atanh(y), y = x / (2 + x)."""
    y = x / (x + 2.0)
    return y * _polynomial(y * y, 2.0, 2 / 3, 2 / 5, 2 / 7)


def _erf_far(x: Value) -> Value:
    """Abramowitz and Stegun, 7.1.26: 1.5e-7."""
    t = 1.0 / (abs(x) * 0.3275911 + 1.0)
    rest = t * _polynomial(t, 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429) * exp(-(x * x))
    return where(x < 0, rest - 1.0, 1.0 - rest)


_expm1 = _series(0.25, lambda x: x * _polynomial(x, 1.0, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720),
                 lambda x: exp(x) - 1.0, lambda x, y: y + 1.0)  # fmt: skip
_log1p = _series(0.25, _atanh_series, lambda x: log(x + 1.0), lambda x, y: 1.0 / (x + 1.0))
_erf = _series(0.25, lambda x: x * _polynomial(x * x, 1.0, -1 / 3, 1 / 10, -1 / 42) * ERF_SLOPE, _erf_far,
               lambda x, y: exp(-(x * x)) * ERF_SLOPE)  # fmt: skip


def _of_input(function: Callable[..., Value]) -> Callable[..., Value]:
    """An activation. A value has no place that it could change."""

    def apply(input: Any, *args: Any, inplace: bool = False, **named: Any) -> Value:  # noqa: A002
        if inplace:
            raise trace_error("a value inside the kernel does not change", "inplace=False", "inplace=True")
        return function(Value.of(input), *args, **named)

    return apply


def _relu(x: Value) -> Value:
    return where(x <= 0, 0.0 if x.is_float else 0, x)  # NaN stays


def _leaky(x: Value, negative_slope: float = 0.01) -> Value:
    return where(x > 0, x, x * negative_slope)


def _elu(x: Value, alpha: float = 1.0) -> Value:
    return where(x > 0, x, _expm1(x) * alpha)


def _gelu(x: Value, approximate: str = "none") -> Value:
    if approximate == "none":
        return x * 0.5 * (_erf(x * math.sqrt(0.5)) + 1.0)
    if approximate != "tanh":
        raise trace_error("gelu has no such approximation", "'none', 'tanh'", repr(approximate))
    return x * 0.5 * (tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)


def _softplus(x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    far = x * beta > threshold
    return where(far, x, _log1p(exp(where(far, 0.0, x * beta))) / beta)


def _log_sigmoid(x: Value) -> Value:
    return where(x < 0, x, 0.0) - _log1p(exp(-abs(x)))


# -- constants -------------------------------------------------------------------------------------------------------


def _kind(x: Value) -> str:
    return "bool" if x.is_truth else "float32" if x.is_float else "int32"


def _like(x: Any, number: Any, *, dtype: Any = None, **_: Any) -> Value:
    """A constant of the value's type, or of `dtype`, like torch.full_like."""
    return converted(Value.of(number), _kind(Value.of(x)) if dtype is None else dtype)


def _new(x: Value, size: Any, number: Any, **named: Any) -> Value:
    """A constant, like torch.Tensor.new_full."""
    if isinstance(size, int) or len(size):
        raise trace_error("a value inside the kernel has no dimensions", "size ()", repr(size))
    return _like(x, number, **named)


# -- the table -------------------------------------------------------------------------------------------------------


def _named(function: Callable[[Value, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator that takes torch's names."""

    def apply(input: Any, other: Any) -> Any:  # noqa: A002
        return function(Value.of(input), Value.of(other))

    return apply


_COMPARED = {
    name: _named(getattr(operator, short))
    for short, names in {"eq": ("eq",), "ne": ("ne", "not_equal"), "lt": ("lt", "less"), "le": ("le", "less_equal"),
                         "gt": ("gt", "greater"), "ge": ("ge", "greater_equal")}.items()
    for name in names
}  # fmt: skip
_minimum, _maximum = _extreme(_smaller, -1), _extreme(_larger, 1)
FUNCTIONS |= _COMPARED | {
    "add": _add, "sub": _sub, "subtract": _sub, "rsub": lambda a, b, *, alpha=1: _sub(b, a, alpha=alpha),
    "mul": _named(operator.mul), "multiply": _named(operator.mul),
    "true_divide": _named(operator.truediv), "truediv": _named(operator.truediv), "rdiv": lambda a, b: b / Value.of(a),
    "floordiv": _named(operator.floordiv),
    "rfloordiv": lambda a, b: Value.of(b) // a, "mod": _named(operator.mod),
    "square": lambda input: Value.of(input) * input,
    "reciprocal": lambda input: 1.0 / Value.of(input), "neg": lambda input: -Value.of(input),
    "negative": lambda input: -Value.of(input), "positive": Value.of,
    "lerp": lambda input, end, weight: Value.of(input) + (Value.of(end) - input) * weight,
    "addcmul": lambda input, a, b, *, value=1: Value.of(a) * b * value + input,
    "where": where, "masked_fill": lambda input, mask, value: where(mask, _like(input, value), input),
    "abs": _absolute, "absolute": _absolute, "sign": _sign, "sgn": _sign,
    "maximum": _maximum, "minimum": _minimum, "max": _maximum, "min": _minimum, "clamp": _clamped, "clip": _clamped,
    "clamp_min": lambda input, min: _clamped(input, min), "clamp_max": lambda input, max: _clamped(input, None, max),
    "floor": floor, "ceil": ceil, "round": nearest, "trunc": trunc, "fix": trunc,
    "isnan": _is(lambda x: x != x), "isinf": _is(lambda x: abs(x) == math.inf),
    "isfinite": _is(lambda x: abs(x) < math.inf),
    "exp": exp, "exp2": exp2, "expm1": _expm1, "log": log, "log2": log2, "log1p": _log1p,
    "log10": lambda input: log2(input) * math.log10(2), "sqrt": sqrt, "rsqrt": rsqrt, "sin": sin, "cos": cos,
    "tan": lambda input: sin(input) / cos(input), "tanh": tanh, "erf": _erf, "special_erf": _erf,
    "sigmoid": _sigmoid, "special_expit": _sigmoid, "special_expm1": _expm1, "relu": _of_input(_relu),
    "relu6": _of_input(lambda x: _clamped(x, 0.0, 6.0)), "leaky_relu": _of_input(_leaky), "elu": _of_input(_elu),
    "gelu": _of_input(_gelu), "silu": _of_input(lambda x: x * _sigmoid(x)),
    "mish": _of_input(lambda x: x * tanh(_softplus(x))), "softplus": _of_input(_softplus),
    "log_sigmoid": _of_input(_log_sigmoid), "softsign": _of_input(lambda x: x / (abs(x) + 1.0)),
    "logical_and": lambda a, b: as_truth(a) & as_truth(b), "logical_or": lambda a, b: as_truth(a) | as_truth(b),
    "logical_xor": lambda a, b: as_truth(a) ^ as_truth(b), "logical_not": lambda a: ~as_truth(a),
    "bitwise_and": lambda a, b: Value.of(a) & b, "bitwise_or": lambda a, b: Value.of(a) | b,
    "bitwise_xor": lambda a, b: Value.of(a) ^ b, "bitwise_not": lambda a: ~Value.of(a),
    "and": lambda a, b: Value.of(a) & b, "or": lambda a, b: Value.of(a) | b, "xor": lambda a, b: Value.of(a) ^ b,
    "lshift": lambda a, b: Value.of(a) << b, "rshift": lambda a, b: Value.of(a) >> b,
    "bitwise_left_shift": lambda a, b: Value.of(a) << b, "bitwise_right_shift": lambda a, b: Value.of(a) >> b,
    "detach": lambda input: Value.of(input).flat(),
    "full_like": _like, "ones_like": lambda x, **named: _like(x, 1, **named),
    "zeros_like": lambda x, **named: _like(x, 0, **named),
}  # fmt: skip
METHODS |= {
    "new_full": _new,
    "new_ones": lambda x, size=(), **named: _new(x, size, 1, **named),
    "new_zeros": lambda x, size=(), **named: _new(x, size, 0, **named),
}
ATTRIBUTES |= {
    "dtype": lambda x: getattr(sys.modules.get("torch"), _kind(x), None),
    "device": lambda _: None,
    "ndim": lambda _: 0,
    "shape": lambda _: (),
}
