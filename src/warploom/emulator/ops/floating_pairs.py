"""Single precision arithmetic of Blackwell: pairs in one register, a half precision operand, three operands.

PTX ISA 9.7.3.3 to .6, .11, .12 and 9.7.5. Each result is rounded like in the scalar instruction; that NaNs are also
the scalar instruction's is not recorded on hardware.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa import dtypes
from ..machine.frame import Frame
from ..numerics.rounding import NAN32, flush, half_values, saturate
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .floating import least_or_greatest, rounded, step32, write32
from .integer import spread

HANDLERS = Handlers()

Function = Callable[..., np.ndarray]


@HANDLERS.add("add.f32x2", "sub.f32x2", "mul.f32x2", "fma.f32x2")
def pairs(d: Decode) -> Step:
    base = d.match.form.base
    function = rounded(base, d.modifier("rnd", "rn"))
    slots = [d.source(name, dtypes.b64) for name in ("abc" if base == "fma" else "ab")]
    out, flushes = d.destination("d", dtypes.b64), bool(d.modifiers.get("ftz"))

    def step(frame: Frame) -> None:
        singles = [spread(frame, slot).view(np.float32) for slot in slots]
        result = function(*(map(flush, singles) if flushes else singles))
        result = flush(result) if flushes else result
        frame.write(out, np.where(result != result, NAN32, result).astype(np.float32).view(np.uint64))

    return step


@HANDLERS.add("add.mixed", "sub.mixed", "fma.mixed")
def mixed(d: Decode) -> Step:
    """The half precision operands are exact as singles; the single comes last, and is what `sub` subtracts."""
    base, kind = d.match.form.base, d.modifier("type")
    function = rounded(base, d.modifier("rnd", "rn"))
    halves = [d.source(name, dtypes.b16) for name in ("ab" if base == "fma" else "a")]
    c, out, clamps = d.source("c"), d.destination("d"), bool(d.modifiers.get("sat"))

    def step(frame: Frame) -> None:
        wide = [half_values(spread(frame, slot), kind).astype(np.float32) for slot in halves]
        result = function(*wide, frame.values[c])
        write32(frame, out, saturate(result) if clamps else result)

    return step


@HANDLERS.add("min.three.f32", "max.three.f32")
def three(d: Decode) -> Step:
    least, nan = d.match.form.base == "min", bool(d.modifiers.get("NaN"))
    size: Function = np.abs if d.modifiers.get("abs") else lambda x: x

    def of_three(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        first = least_or_greatest(size(a), size(b), least, nan)
        return least_or_greatest(first, size(c), least, nan)

    return step32(d, "abc", of_three)
