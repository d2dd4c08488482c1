"""Matrix elements as raw bits, by class: values that reveal a tensor core's rounding, alignment and special rules."""

from __future__ import annotations

import numpy as np

from .values import Source

# bits, fraction bits, exponent bias, largest exponent field of a finite number, NaN, infinity (0: none)
_FORMATS = {
    "f16": (16, 10, 15, 30, 0x7E01, 0x7C00), "bf16": (16, 7, 127, 254, 0x7FC1, 0x7F80),
    "f32": (32, 23, 127, 254, 0x7FC00001, 0x7F800000), "tf32": (32, 23, 127, 254, 0x7FC02000, 0x7F800000),
    "e4m3": (8, 3, 7, 14, 0x7F, 0), "e5m2": (8, 2, 15, 30, 0x7E, 0x7C),
    "f64": (64, 52, 1023, 2046, 0x7FF8000000000001, 0x7FF0000000000000),
}  # fmt: skip

CLASSES = ("ordinary", "few bits", "spread", "any", "tiny", "huge", "zeros", "special")
"""ordinary: exponents -2 to 0; few bits: sums cancel and tie; spread: exponents -9 to 8; any: all exponents; tiny:
subnormals and their neighbours; huge: sums overflow; zeros: half of them, of both signs; special: one in 64 is an
infinity or a NaN."""
WHOLE = ("random", "extreme", "small")
"""Classes of integers."""
ORDINARY_BITS = 2
"""Ordinary elements are below 2^1 in size, their products below 2^ORDINARY_BITS."""


def floats(source: Source, kind: str, count: int, name: str) -> np.ndarray:
    """`count` elements of a floating-point type of a class, as raw bits."""
    bits, fraction, bias, last, nan, infinity = _FORMATS[kind]
    word = np.dtype(f"u{bits // 8}")
    low, high = {
        "ordinary": (bias - 2, bias), "few bits": (bias - 2, bias + 1), "spread": (bias - 9, bias + 8),
        "any": (0, last), "tiny": (0, 3), "huge": (last - 3, last), "zeros": (bias - 2, bias),
        "special": (bias - 2, bias),
    }[name]  # fmt: skip
    low, high = max(low, 0), min(high, last)
    exponent = (source.below(high - low + 1, count) + low).astype(word) << word.type(fraction)
    mantissa = source.bits(count, bits) & word.type((1 << fraction) - 1)
    if name == "few bits":
        mantissa &= word.type(((1 << fraction) - 1) & ~((1 << max(fraction - 2, 0)) - 1))
    sign = source.bits(count, bits) & word.type(1 << bits - 1)
    found = sign | exponent | mantissa
    if name == "zeros":
        found = np.where(source.below(2, count) == 0, sign, found)
    if name == "special":
        odd = source.pick([nan, infinity or nan, infinity or nan, 0], count, bits)
        found = np.where(source.below(64, count) == 0, odd | sign, found)
    return found.astype(word)


def integers(source: Source, bits: int, count: int, name: str) -> np.ndarray:
    """`count` integers of 8 or 32 bits (4-bit and single-bit ones lie packed in the 8) of a class, as raw bits."""
    found = source.bits(count, bits)
    if name == "extreme":
        top = 1 << bits - 1
        return source.pick([top, top - 1, (1 << bits) - 1, 0], count, bits)
    if name == "small":
        return (found % found.dtype.type(7) - found.dtype.type(3)).astype(found.dtype)
    return found


def elements(source: Source, kind: str, count: int, name: str) -> np.ndarray:
    """`count` elements of any type a tensor core takes; types of less than 8 bits are packed to bytes."""
    if kind in _FORMATS:
        return floats(source, kind, count, name)
    if kind == "s32":
        return integers(source, 32, count, name)
    bits = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}[kind]
    return integers(source, 8, count * bits // 8, name)


def classes(kind: str) -> tuple[str, ...]:
    return CLASSES if kind in _FORMATS else WHOLE
