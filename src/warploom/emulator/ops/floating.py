"""Single and double precision arithmetic, correctly rounded: PTX ISA 9.7.3.

A NaN result in single precision is 0x7FFFFFFF. In double precision it is what the host's processor produces: a quieted
operand, or a new NaN with its sign set. GPUs have been observed to do the same; PTX leaves it open. The directed
modes of double precision run lane by lane in rational arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa import dtypes
from ..machine.frame import Frame
from ..numerics.rounding import F64, NAN32, add32, directed64, flush, fma32, fma64, round32, saturate, suspicious
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import computed, elementwise, spread

HANDLERS = Handlers()

Function = Callable[..., np.ndarray]


def write32(frame: Frame, out: int, result: np.ndarray) -> None:
    """Write singles with canonical NaNs."""
    if np.count_nonzero(result != result):
        result = np.where(result != result, NAN32, result)
    np.copyto(frame.values[out], result, where=frame.mask)


def step32(d: Decode, names: str, function: Function) -> Step:
    """A step from singles through `function` to a single; operands and result flushed, result clamped, as required."""
    slots = [d.source(name) for name in names]
    out = d.destination("d")
    flushes, clamps = bool(d.modifiers.get("ftz")), bool(d.modifiers.get("sat"))
    flushes = flushes or "ftz" in d.instruction.modifiers

    def step(frame: Frame) -> None:
        v = frame.values
        if flushes:
            result = flush(function(*(flush(v[slot]) for slot in slots)))
        else:
            result = function(*(v[slot] for slot in slots))
        write32(frame, out, saturate(result) if clamps else result)

    return step


def ufunc32(d: Decode, operation: np.ufunc) -> Step:
    """The fast path: one ufunc, and a check for NaNs."""
    a, b, out = d.source("a"), d.source("b"), d.destination("d")

    def step(frame: Frame) -> None:
        v = frame.values
        target = v[out]
        operation(v[a], v[b], out=target, where=frame.mask)
        bad = target != target
        if np.count_nonzero(bad):
            np.copyto(target, NAN32, where=bad & frame.mask)

    return step


def is_plain(d: Decode) -> bool:
    """True if it rounds to nearest, without a modifier that changes operands or result."""
    return d.modifier("rnd", "rn") == "rn" and not d.modifiers.get("ftz") and not d.modifiers.get("sat")


def doubles(function: Function) -> Function:
    return lambda *operands: function(*(np.asarray(x).astype(np.float64) for x in operands))


_NEAREST = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def rounded(base: str, mode: str) -> Function:
    """add, sub, mul or fma of singles in a rounding mode."""
    if base == "fma":
        return lambda a, b, c: fma32(a, b, c, mode)
    if mode == "rn":
        return _NEAREST[base]
    directed: dict[str, Function] = {
        "add": lambda a, b: add32(a, b, mode),
        "sub": lambda a, b: add32(a, -b, mode),
        "mul": lambda a, b: round32(a * b, mode),
    }
    return doubles(directed[base])


@HANDLERS.add("add.f32", "sub.f32", "mul.f32")
def arithmetic32(d: Decode) -> Step:
    base = d.match.form.base
    if is_plain(d):
        return ufunc32(d, _NEAREST[base])
    return step32(d, "ab", rounded(base, d.modifier("rnd", "rn")))


@HANDLERS.add("fma.f32", "mad.f32")
def multiply_add32(d: Decode) -> Step:
    mode = d.modifier("rnd")
    if not is_plain(d):
        return step32(d, "abc", lambda a, b, c: fma32(a, b, c, mode))
    a, b, c, out = d.source("a"), d.source("b"), d.source("c"), d.destination("d")

    def step(frame: Frame) -> None:
        v = frame.values
        total = v[a].astype(F64) * v[b].astype(F64) + v[c].astype(F64)
        result = total.astype(np.float32)
        if suspicious(total, result):
            result = fma32(v[a], v[b], v[c])
        write32(frame, out, result)

    return step


@HANDLERS.add("div.f32", "rcp.f32", "sqrt.f32")
def division32(d: Decode) -> Step:
    """Quotients and roots of singles are far enough from rounding boundaries that rounding to double first is safe."""
    mode = d.modifier("rnd")
    base = d.match.form.base
    functions: dict[str, Function] = {
        "div": lambda a, b: round32(a / b, mode),
        "rcp": lambda a: round32(1.0 / a, mode),
        "sqrt": lambda a: round32(np.sqrt(a), mode),
    }
    return step32(d, "ab" if base == "div" else "a", doubles(functions[base]))


@HANDLERS.add("abs.f32", "neg.f32", "abs.f64", "neg.f64")
def sign(d: Decode) -> Step:
    """A NaN becomes 0x7FFFFFFF in single precision; in double it is quieted and keeps its sign, as on an H200
    (tests/golden/conformance.npz)."""
    operation = {"abs": np.absolute, "neg": np.negative}[d.match.form.base]
    a, out = d.source("a"), d.destination("d")
    flushes, single = bool(d.modifiers.get("ftz")), d.type("a") is dtypes.f32

    def step(frame: Frame) -> None:
        v = frame.values
        x = flush(v[a]) if flushes else v[a]
        result = operation(x)
        if np.count_nonzero(x != x):
            result = np.where(x != x, NAN32 if single else x * x.dtype.type(1), result)
        np.copyto(v[out], result, where=frame.mask)

    return step


def least_or_greatest(x: np.ndarray, y: np.ndarray, least: bool, nan: bool, xorsign: bool = False) -> np.ndarray:
    """min or max by PTX's rules: -0 < +0; a number beats one NaN, unless `nan`."""
    sign = None
    if xorsign:
        sign = np.signbit(x) ^ np.signbit(y)
        x, y = np.abs(x), np.abs(y)
    if nan:
        result = np.minimum(x, y) if least else np.maximum(x, y)
    else:
        result = np.fmin(x, y) if least else np.fmax(x, y)
    if np.count_nonzero(result == 0):
        negative = np.signbit(x) | np.signbit(y) if least else np.signbit(x) & np.signbit(y)
        zero = result.dtype.type(0)
        result = np.where((x == 0) & (y == 0), np.where(negative, -zero, zero), result)
    return result if sign is None else np.where(sign, -result, result)


@HANDLERS.add("min.f32", "max.f32", "min.xorsign.f32", "max.xorsign.f32")
def minmax32(d: Decode) -> Step:
    least = d.match.form.base == "min"
    nan, xorsign = bool(d.modifier("NaN")), "xorsign" in d.instruction.modifiers
    return step32(d, "ab", lambda a, b: least_or_greatest(a, b, least, nan, xorsign))


@HANDLERS.add("min.f64", "max.f64")
def minmax64(d: Decode) -> Step:
    least = d.match.form.base == "min"
    return computed(d, "ab", lambda a, b: least_or_greatest(a, b, least, False))


@HANDLERS.add("add.f64", "sub.f64", "mul.f64", "fma.f64", "mad.f64", "div.f64", "rcp.f64", "sqrt.f64")
def arithmetic64(d: Decode) -> Step:
    base = {"mad": "fma"}.get(d.match.form.base, d.match.form.base)
    mode = d.modifier("rnd", "rn")
    operation = (_NEAREST | {"div": np.divide}).get(base)
    if mode == "rn" and operation is not None:
        return elementwise(d, operation, "a", "b")
    slots = [d.source(name) for name in {"fma": "abc", "rcp": "a", "sqrt": "a"}.get(base, "ab")]
    out = d.destination("d")
    nearest: dict[str, Function] = {"fma": fma64, "rcp": lambda a: 1.0 / a, "sqrt": np.sqrt}
    function: Function
    if mode == "rn":
        function = nearest[base]
    elif base == "rcp":
        function = lambda a: directed64("div", mode, np.ones_like(a), a)  # noqa: E731
    else:
        function = lambda *operands: directed64(base, mode, *operands)  # noqa: E731

    def step(frame: Frame) -> None:
        frame.write(out, function(*(spread(frame, slot) for slot in slots)))

    return step


@HANDLERS.add("copysign")
def copy_sign(d: Decode) -> Step:
    """The sign is that of `a`, the magnitude that of `b`: the opposite of C."""
    return elementwise(d, np.copysign, "b", "a")


@HANDLERS.add("testp")
def test_property(d: Decode) -> Step:
    """Zeros count as normal."""
    tiny = np.finfo(d.type("a").numpy).smallest_normal
    functions: dict[str, Function] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: x == x,
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & ((np.abs(x) >= tiny) | (x == 0)),
        "subnormal": lambda x: (np.abs(x) < tiny) & (x != 0),
    }
    return computed(d, "a", functions[d.modifier("op")], "p")
