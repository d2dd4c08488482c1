"""Integer arithmetic, PTX ISA 9.7.1.1 to 9.7.1.13: everything wraps at the width of its type.

Division by zero gives all ones for quotient and remainder, and the smallest integer divided by -1 gives itself. This
is what the code that ptxas emits for 32-bit division computes; PTX leaves the first unspecified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()

_LOW32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def elementwise(d: Decode, operation: np.ufunc, *names: str, **call: object) -> Step:
    """A step that is one ufunc call from sources to the destination."""
    out = d.destination("d")
    if len(names) == 1:
        a = d.source(names[0])

        def one(frame: Frame) -> None:
            v = frame.values
            operation(v[a], out=v[out], where=frame.mask, **call)

        return one
    a, b = (d.source(name) for name in names)

    def two(frame: Frame) -> None:
        v = frame.values
        operation(v[a], v[b], out=v[out], where=frame.mask, **call)

    return two


def computed(d: Decode, names: str, function: Callable[..., Any], out: str = "d") -> Step:
    """A step that applies `function` to the sources' values, lane by lane; a letter for each source."""
    slots, target = [d.source(name) for name in names], d.destination(out)

    def step(frame: Frame) -> None:
        v = frame.values
        frame.write(target, function(*[v[slot] for slot in slots]))

    return step


_OF_NUMPY: dict[str, tuple[np.ufunc, str]] = {
    "add": (np.add, "ab"), "sub": (np.subtract, "ab"), "min": (np.minimum, "ab"), "max": (np.maximum, "ab"),
    "abs": (np.absolute, "a"), "neg": (np.negative, "a"),
}  # fmt: skip


@HANDLERS.add(*(f"{name}.integer" for name in _OF_NUMPY))
def of_numpy(d: Decode) -> Step:
    function, names = _OF_NUMPY[d.match.form.base]
    return elementwise(d, function, *names)


def clamp32(x: np.ndarray) -> np.ndarray:
    """64-bit values to the range of s32."""
    return np.clip(x, -(2**31), 2**31 - 1)


@HANDLERS.add("add.saturate", "sub.saturate")
def add_saturate(d: Decode) -> Step:
    operation = np.add if d.match.form.base == "add" else np.subtract
    return computed(d, "ab", lambda a, b: clamp32(operation(a, b, dtype=np.int64)))


@HANDLERS.add("min.relu", "max.relu")
def minmax_relu(d: Decode) -> Step:
    operation = np.minimum if d.match.form.base == "min" else np.maximum
    return computed(d, "ab", lambda a, b: np.maximum(operation(a, b), np.int32(0)))


@HANDLERS.add("add.integer_x2", "min.u16x2", "max.u16x2", "min.s16x2", "max.s16x2")
def packed(d: Decode) -> Step:
    """Two 16-bit operations side by side."""
    base = d.match.form.base
    operation = {"add": np.add, "min": np.minimum, "max": np.maximum}[base]
    signed = "s16x2" in d.instruction.opcode
    half = np.dtype(np.int16 if signed else np.uint16)
    relu = bool(d.modifier("relu"))
    a, b, out = d.source("a"), d.source("b"), d.destination("d")

    def step(frame: Frame) -> None:
        x, y = spread(frame, a).view(half), spread(frame, b).view(half)
        result = operation(x, y)
        if relu:
            result = np.maximum(result, half.type(0))
        frame.write(out, result.view(np.uint32))

    return step


def spread(frame: Frame, slot: int) -> np.ndarray:
    """A slot's value with one contiguous element for each lane, so that it can be viewed as another type."""
    value = frame.values[slot]
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    return np.full(frame.lanes, value)


# -- products ----------------------------------------------------------------------------------------------------


def high_half(a: np.ndarray, b: np.ndarray, bits: int, signed: bool) -> np.ndarray:
    """The upper half of the double-width product."""
    if bits < 64:
        wide = np.int64 if signed else np.uint64
        return np.multiply(a, b, dtype=wide) >> wide(bits)
    with np.errstate(over="ignore"):
        x, y = np.asarray(a).astype(np.uint64), np.asarray(b).astype(np.uint64)
        x0, x1, y0, y1 = x & _LOW32, x >> _32, y & _LOW32, y >> _32
        middle = x1 * y0 + (x0 * y0 >> _32)
        high = x1 * y1 + (middle >> _32) + ((x0 * y1 + (middle & _LOW32)) >> _32)
        if signed:
            zero = np.uint64(0)
            high = high - np.where(np.asarray(a) < 0, y, zero) - np.where(np.asarray(b) < 0, x, zero)
            high = high.view(np.int64) if isinstance(high, np.ndarray) else np.int64(high)
    return high


@HANDLERS.add("mul.integer")
def multiply(d: Decode) -> Step:
    if d.modifier("half") == "lo":
        return elementwise(d, np.multiply, "a", "b")
    kind = d.type("a")
    return computed(d, "ab", lambda a, b: high_half(a, b, kind.bits, kind.is_signed))


@HANDLERS.add(*(f"mul.wide.{kind}" for kind in ("u16", "s16", "u32", "s32")))
def multiply_wide(d: Decode) -> Step:
    return elementwise(d, np.multiply, "a", "b", dtype=d.type("d").numpy)


@HANDLERS.add("mad.integer", *(f"mad.wide.{kind}" for kind in ("u16", "s16", "u32", "s32")))
def multiply_add(d: Decode) -> Step:
    kind, result = d.type("a"), d.type("d").numpy
    if d.modifier("half") != "hi":
        a, b, c, out = d.source("a"), d.source("b"), d.source("c"), d.destination("d")

        def low(frame: Frame) -> None:
            v = frame.values
            np.add(np.multiply(v[a], v[b], dtype=result), v[c], out=v[out], where=frame.mask)

        return low

    def high(x: np.ndarray, y: np.ndarray, added: np.ndarray) -> np.ndarray:
        return np.add(np.asarray(high_half(x, y, kind.bits, kind.is_signed)).astype(kind.numpy), added)

    return computed(d, "abc", high)


@HANDLERS.add("mad.saturate")
def multiply_add_saturate(d: Decode) -> Step:
    return computed(d, "abc", lambda a, b, c: clamp32(high_half(a, b, 32, True) + c))


def _product24(a: np.ndarray, b: np.ndarray, signed: bool, high: bool) -> np.ndarray:
    """Bits 47..16 or 31..0 of the product of the low 24 bits, as int64."""
    if signed:
        product = np.multiply((a << np.int32(8)) >> np.int32(8), (b << np.int32(8)) >> np.int32(8), dtype=np.int64)
    else:
        product = np.multiply(a & np.uint32(0xFFFFFF), b & np.uint32(0xFFFFFF), dtype=np.int64)
    return product >> np.int64(16) if high else product


@HANDLERS.add("mul24", "mad24", "mad24.saturate")
def multiply24(d: Decode) -> Step:
    kind = d.type("a")
    saturates = "sat" in d.instruction.modifiers
    high = saturates or d.modifier("half") == "hi"

    def result(a: np.ndarray, b: np.ndarray, c: Any = 0) -> np.ndarray:
        product = _product24(a, b, kind.is_signed, high)
        # the 32-bit half is a signed number before c is added
        return clamp32(product.astype(np.int32).astype(np.int64) + c) if saturates else product + c

    return computed(d, "abc" if d.has("c") else "ab", result)


@HANDLERS.add("sad")
def sum_of_difference(d: Decode) -> Step:
    return computed(d, "abc", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c)


# -- division ----------------------------------------------------------------------------------------------------


@HANDLERS.add("div.integer")
def divide(d: Decode) -> Step:
    kind = d.type("a")
    ones = np.array(-1).astype(kind.numpy)[()]

    def unsigned(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(y == 0, ones, np.floor_divide(x, y))

    def signed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        quotient = np.floor_divide(x, y)
        # From floor to truncation: add one if the signs differ and there is a remainder.
        quotient = quotient + ((quotient < 0) & (np.multiply(quotient, y) != x))
        return np.where(y == 0, ones, np.where((y == -1), np.negative(x), quotient))

    return computed(d, "ab", signed if kind.is_signed else unsigned)


@HANDLERS.add("rem")
def remainder(d: Decode) -> Step:
    kind = d.type("a")
    ones = np.array(-1).astype(kind.numpy)[()]
    return computed(d, "ab", lambda a, b: np.where(b == 0, ones, np.fmod(a, b)))
