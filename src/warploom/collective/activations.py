"""Activation functions of one f32 register: relu, silu, gelu by its tanh formula and by erf.

All but relu are x times a sigmoid or a normal distribution, written so that the tail keeps its relative accuracy: of
a large negative x the factor is a small exponential, not the difference of two numbers near 1. The exponential is
ex2.approx (2 ulp, PTX ISA 9.7.3.21), the reciprocal rcp.approx (1 ulp, 9.7.3.13).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..isa.dtypes import f32
from ..lang import ptx, reg
from ..lang.trace import Trace
from ..lang.values import Register

_LOG2_E = math.log2(math.e)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_ERF_P = 0.3275911
"""Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: erf to 1.5e-7."""


def activate(name: str, x: Register) -> Register:
    """The function of that name of an f32 register. Raises TraceError for a name that is none."""
    function = ACTIVATIONS.get(name)
    if function is None:
        raise Trace.current().error("there is no such activation", expected=", ".join(ACTIVATIONS), got=repr(name))
    return function(x)


def relu(x: Register) -> Register:
    """max(x, 0)."""
    return _unary("max.f32", x, 0.0)


def silu(x: Register) -> Register:
    """x / (1 + exp(-x))."""
    return x * _sigmoid_of_log2(x * -_LOG2_E)


def gelu_tanh(x: Register) -> Register:
    """x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x³), which is x / (1 + exp(-2 u))."""
    square = x * x
    inner = x * (square * (-2 * _LOG2_E * _TANH_SCALE * _TANH_CUBIC) + (-2 * _LOG2_E * _TANH_SCALE))
    return x * _sigmoid_of_log2(inner)


def gelu(x: Register) -> Register:
    """x (1 + erf(x / sqrt(2))) / 2. The tail, erfc / 2, is a polynomial times an exponential."""
    size = _unary("abs.f32", x)
    t = _unary("rcp.approx.ftz.f32", size * (_ERF_P / math.sqrt(2)) + 1.0)
    polynomial = t * (_ERF[-1] / 2)
    for coefficient in reversed(_ERF[:-1]):
        polynomial = (polynomial + coefficient / 2) * t
    tail = polynomial * _unary("ex2.approx.ftz.f32", x * x * (-_LOG2_E / 2))
    upper = reg.scalar(f32, init=1.0) - tail
    return x * ptx.select(x < 0.0, tail, upper)


ACTIVATIONS: Mapping[str, Callable[[Register], Register]] = {
    "relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu,
}  # fmt: skip


def _sigmoid_of_log2(exponent: Register) -> Register:
    """1 / (1 + 2 ** exponent)."""
    return _unary("rcp.approx.ftz.f32", _unary("ex2.approx.ftz.f32", exponent) + 1.0)


def _unary(opcode: str, *operands: Register | float) -> Register:
    result = reg.scalar(f32)
    ptx.inst(opcode, result, *operands)
    return result
