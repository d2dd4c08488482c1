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


# The product of two halves is exact in double precision; tanh and ex2 are the double precision value rounded once,
# within the ISA's bounds, but not bit-identical to hardware.
_ROUNDED: dict[str, tuple[Function, str]] = {
    "add": (add_odd, "ab"), "sub": (lambda a, b: add_odd(a, -b), "ab"), "mul": (np.multiply, "ab"),
    "fma": (lambda a, b, c: add_odd(a * b, c), "abc"), "tanh": (np.tanh, "a"), "ex2": (np.exp2, "a"),
}  # fmt: skip


@HANDLERS.add("fma.relu.f16", *(f"{name}.{kind}" for name in _ROUNDED for kind in ("f16", "bf16")))
def rounded(d: Decode) -> Step:
    function, names = _ROUNDED[d.match.form.base]
    return halves(d, names, function)


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
