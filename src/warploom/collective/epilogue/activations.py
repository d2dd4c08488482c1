"""Activation functions of one f32 register, built on the hardware's approximate exponential and reciprocal.

    relu        max(x, 0)
    gelu        x Phi(x), Phi the normal distribution (by erf)
    gelu_tanh   x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))          Hendrycks and Gimpel, arXiv 1606.08415
    silu        x / (1 + exp(-x))

All are correct in the limits: 0 at -inf, inf at inf, and NaN stays NaN. `ERRORS` has error bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...isa.dtypes import f32
from ...lang import ptx, reg
from ...lang.values import Register

_LOG2_E = math.log2(math.e)
_LARGEST = float.fromhex("0x1.fffffep127")
_TANH_LINEAR = -2.0 * math.sqrt(2.0 / math.pi) * _LOG2_E
_TANH_CUBIC = 0.044715 * _TANH_LINEAR

TAIL_END = 13.5
"""From here on the normal distribution's tail is below the smallest normal f32."""
TAIL = (
    -0.999985397, -1.15129495, -0.458430648, -0.0539523698, 0.00850583427, -0.000940406462, 6.66796986e-05,
    -2.67691871e-06, 4.58299709e-08,
)  # fmt: skip
"""log2(Phi(-a)) on 0 <= a <= TAIL_END, coefficients of a^0, a^1, ...: our own fit, by least squares weighted towards
the least maximum (Lawson) of the error of a Phi(-a). Including the rounding of f32, this error is at most 1.8e-7, and
up to a = 4 at most 2^-12 of the value."""

ERRORS = {
    "relu": (0.0, 0.0),
    "gelu": (2.0**-24, 2.0**-22),
    "gelu_tanh": (2.0**-21, 2.0**-23),
    "silu": (2.0**-21, 2.0**-24),
}
"""Bounds (r, a) of |error| <= r |y| + a for the value y of the function at its f32 argument.

gelu: the fit, 2 ulp of ex2 on at most 0.17, and the last fma. The others: 2 ulp of ex2, 1 of rcp and 4 roundings, plus
the effect of rounding the exponent's argument t, |t| 2^-24 (times 4 for gelu_tanh), where y is small.
ex2.approx.ftz: 2 ulp; rcp.approx.ftz: 1 ulp (CUDA C++ Programming Guide 17.1; PTX ISA 9.7.3.13, 9.7.3.21).
"""


def relu(x: Register) -> Register:
    """max(x, 0): one instruction."""
    result = reg.scalar(f32)
    ptx.inst.max.NaN.f32(result, x, 0.0)
    return result


def gelu(x: Register) -> Register:
    """max(x, 0) - |x| Phi(-|x|), with Phi(-a) = 2^p(a): 12 instructions and one ex2."""
    a, e, result = reg.scalar(f32), reg.scalar(f32), reg.scalar(f32)
    ptx.inst.abs.f32(a, x)
    ptx.inst.min.f32(a, a, TAIL_END)
    ptx.inst.ex2.approx.ftz.f32(e, _polynomial(a, TAIL))
    ptx.inst.fma.rn.f32(result, -a, e, relu(x))
    return result


def gelu_tanh(x: Register) -> Register:
    """x / (1 + 2^t), t = x (c + d x^2): the tanh of the definition, rewritten as a logistic function."""
    slope = reg.scalar(f32)
    ptx.inst.fma.rn.f32(slope, x * x, _TANH_CUBIC, _TANH_LINEAR)
    return _logistic(x, x * slope)


def silu(x: Register) -> Register:
    """x / (1 + 2^t), t = -x log2(e)."""
    return _logistic(x, x * -_LOG2_E)


FUNCTIONS: dict[str, Callable[[Register], Register]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
}
"""The activations by name."""


def _logistic(x: Register, exponent: Register) -> Register:
    """x / (1 + 2^exponent). For x = -inf the reciprocal is 0, and -inf times 0 is NaN, so x is bounded below."""
    e, r, bounded = reg.scalar(f32), reg.scalar(f32), reg.scalar(f32)
    ptx.inst.ex2.approx.ftz.f32(e, exponent)
    ptx.inst.rcp.approx.ftz.f32(r, e + 1.0)
    ptx.inst.max.NaN.f32(bounded, x, -_LARGEST)
    return bounded * r


def _polynomial(a: Register, coefficients: tuple[float, ...]) -> Register:
    """Horner's scheme, one fma per coefficient."""
    value = reg.scalar(f32, init=coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        ptx.inst.fma.rn.f32(value, value, a, coefficient)
    return value
