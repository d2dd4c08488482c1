"""Half precision arithmetic (f16, bf16), scalar and in pairs, each operation with one rounding: PTX ISA 9.7.4.

Pairs are computed as twice as many lanes. NaN results are 0x7FFF.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa import dtypes
from ..machine.frame import Frame
from ..numerics.rounding import FORMATS, add_odd, flush, half_bits, half_values, round_to, saturate
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .floating import least_or_greatest
from .integer import spread

HANDLERS = Handlers()

Function = Callable[..., np.ndarray]
_TINY = {"f16": 2.0**-14, "bf16": 2.0**-126}


def halves(d: Decode, names: str, function: Function, exact: bool = False, flushes: bool | None = None) -> Step:
    """A step that reads half precision operands as doubles, applies `function`, rounds once and writes the bits.

    `function` returns doubles that are exact or rounded to odd. With `exact` they are already values of the format.
    """
    kind = d.type("d").name
    packed = kind.endswith("x2")
    name = kind.removesuffix("x2")
    bits = dtypes.b32 if packed else dtypes.b16
    slots = [d.source(operand, bits) for operand in names]
    out = d.destination("d", bits)
    target, tiny = FORMATS[name], _TINY[name]
    words = d.instruction.modifiers
    flushes = "ftz" in words if flushes is None else flushes
    clamps, relu = "sat" in words, "relu" in words

    def step(frame: Frame) -> None:
        values = [half_values(spread(frame, slot).view(np.uint16), name) for slot in slots]
        if flushes:
            values = [flush(value, tiny) for value in values]
        result = function(*values)
        if not exact:
            result = round_to(result, target)
        if flushes:
            result = flush(result, tiny)
        if clamps:
            result = saturate(result)
        if relu:
            result = np.where(result > 0, result, np.where(result != result, result, 0.0))
        frame.write(out, half_bits(result, name).view(bits.numpy))

    return step


@HANDLERS.add("add.f16", "add.bf16")
def add(d: Decode) -> Step:
    return halves(d, "ab", add_odd)


@HANDLERS.add("sub.f16", "sub.bf16")
def subtract(d: Decode) -> Step:
    return halves(d, "ab", lambda a, b: add_odd(a, -b))


@HANDLERS.add("mul.f16", "mul.bf16")
def multiply(d: Decode) -> Step:
    return halves(d, "ab", np.multiply)


@HANDLERS.add("fma.f16", "fma.relu.f16", "fma.bf16")
def multiply_add(d: Decode) -> Step:
    """The product of two halves is exact in double precision."""
    return halves(d, "abc", lambda a, b, c: add_odd(a * b, c))


@HANDLERS.add(*(f"{name}.{kind}" for name in ("min", "max", "min.xorsign", "max.xorsign") for kind in ("f16", "bf16")))
def minmax(d: Decode) -> Step:
    least = d.match.form.base == "min"
    words = d.instruction.modifiers
    nan, xorsign = "NaN" in words, "xorsign" in words
    return halves(d, "ab", lambda a, b: least_or_greatest(a, b, least, nan, xorsign), exact=True)


@HANDLERS.add("neg.f16", "neg.bf16", "abs.f16", "abs.bf16")
def sign(d: Decode) -> Step:
    operation = {"neg": np.negative, "abs": np.absolute}[d.match.form.base]
    return halves(d, "a", operation, exact=True)


@HANDLERS.add("tanh.f16", "tanh.bf16", "ex2.f16", "ex2.bf16")
def approximate(d: Decode) -> Step:
    """The double precision value rounded once: within the ISA's bounds, not bit for bit what hardware gives."""
    return halves(d, "a", {"tanh": np.tanh, "ex2": np.exp2}[d.match.form.base])
