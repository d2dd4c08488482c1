"""Approximate functions: rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, div. PTX ISA 9.7.3.8 and 9.7.3.13 to 9.7.3.22.

The result here is the double precision value rounded once, which is within every error bound of the ISA but is
not bit-identical to hardware: of the 4096 inputs recorded on an H200 (tests/golden/unary.npz) 88 % agree for rcp,
76 % for ex2, 73 % for tanh, 14 % for sin. The special values are those of the ISA's tables.
"""

from __future__ import annotations

import numpy as np

from ..machine.frame import Frame
from ..numerics.rounding import flush
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .floating import Function, doubles, step32
from .integer import spread

HANDLERS = Handlers()

_FUNCTIONS: dict[str, Function] = {
    "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


@HANDLERS.add(*(f"{name}.approx.f32" for name in _FUNCTIONS))
def approximate32(d: Decode) -> Step:
    function = _FUNCTIONS[d.match.form.base]
    return step32(d, "a", doubles(lambda x: function(x).astype(np.float32)))


@HANDLERS.add("div.approx.f32")
def divide_approximately(d: Decode) -> Step:
    """`.approx` multiplies by a reciprocal, which is zero for a divisor above 2^126 in magnitude; `.full` scales."""
    full = d.modifier("how") == "full"

    def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        quotient = (a / b).astype(np.float32)
        if full:
            return quotient
        huge = (np.abs(b) > 2.0**126) & np.isfinite(b)
        return np.where(huge, (a * np.copysign(0.0, b)).astype(np.float32), quotient)

    return step32(d, "ab", doubles(divide))


@HANDLERS.add("rcp.approx.f64", "rsqrt.approx.f64")
def approximate64(d: Decode) -> Step:
    """With `.ftz`, only the upper 32 bits of operand and result count, and a NaN is 0x7FFFFFFF00000000."""
    function = _FUNCTIONS[d.match.form.base]
    gross = "ftz" in d.instruction.modifiers
    a, out = d.source("a"), d.destination("d")
    upper = np.uint64(0xFFFFFFFF00000000)
    tiny = np.finfo(np.float64).smallest_normal

    def step(frame: Frame) -> None:
        x = spread(frame, a)
        if not gross:
            frame.write(out, function(x))
            return
        x = flush((x.view(np.uint64) & upper).view(np.float64), tiny)
        result = flush(function(x), tiny)
        bits = np.where(result != result, np.uint64(0x7FFFFFFF00000000), result.view(np.uint64) & upper)
        frame.write(out, bits.view(np.float64))

    return step
