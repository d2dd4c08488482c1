"""Conversions to and from floats of 4, 6 and 8 bits, PTX ISA 9.7.9.21; see `convert`.

Implemented from the text of the ISA, not recorded on hardware. The text defines the order of random bits only in
figures: here all values that share a half of `rbits` are rounded by the same bits. The sign of a value converted to
ue8m0 is dropped.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa import dtypes
from ..machine.frame import Frame
from ..numerics.rounding import FORMATS, f16_bits, half_bits, half_values, round_stochastically, round_to
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .convert import destination, reader, relu_of
from .convert_pairs import fp8_bits
from .integer import spread

HANDLERS = Handlers()

_WITHOUT_NAN = ("e2m1", "e2m3", "e3m2")
_NARROWEST = -127
"""Exponent of the smallest ue8m0."""
_NO_NUMBER = np.uint8(0xFF)


def narrow_bits(x: np.ndarray, name: str, relu: bool) -> np.ndarray:
    """Doubles to the bits of a narrow float (uint8), to nearest even and saturating; NaN to the largest value if
    the type has none."""
    if name not in _WITHOUT_NAN:
        return fp8_bits(x, name, relu)
    return encoded(round_to(relu_of(x) if relu else x, FORMATS[name], "rn", True), name)


def encoded(values: np.ndarray, name: str) -> np.ndarray:
    """Doubles that are values of a narrow float as its bits (uint8)."""
    if name in _WITHOUT_NAN:
        values = np.where(values != values, FORMATS[name].greatest, values)
        return values.astype(dtypes.ALL[name].numpy).view(np.uint8)
    return np.where(values != values, np.uint8(0x7F), values.astype(dtypes.ALL[name].numpy).view(np.uint8))


def decoded(bits: np.ndarray, name: str) -> np.ndarray:
    """The bits of a narrow float (uint8) as singles."""
    return np.ascontiguousarray(bits).view(dtypes.ALL[name].numpy).astype(np.float32)


def _pairs(d: Decode) -> Callable[[Frame], tuple[np.ndarray, np.ndarray]]:
    """The values of operands `a` and `b`, or of the upper and the lower half of `a`."""
    if d.has("b"):
        first, second = reader(d, "a", dtypes.f32), reader(d, "b", dtypes.f32)
        return lambda frame: (np.atleast_1d(first(frame)), np.atleast_1d(second(frame)))
    name, slot = d.type("a").name.removesuffix("x2"), d.source("a", dtypes.b32)

    def halves(frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        values = half_values(spread(frame, slot).view(np.uint16), name).reshape(-1, 2)
        return values[:, 1], values[:, 0]

    return halves


def _relu(d: Decode) -> bool:
    return bool(d.modifiers.get("relu"))


@HANDLERS.add("cvt.fp6x2.f32")
def six_bits(d: Decode) -> Step:
    name, relu, values, out = d.type("d").name.removesuffix("x2"), _relu(d), _pairs(d), destination(d, dtypes.u16)

    def step(frame: Frame) -> None:
        upper, lower = (narrow_bits(x, name, relu).astype(np.uint16) for x in values(frame))
        frame.write(out, upper << np.uint16(8) | lower)

    return step


@HANDLERS.add("cvt.fp4x2.f32", "cvt.fp4x2.f16x2")
def four_bits(d: Decode) -> Step:
    relu, values, out = _relu(d), _pairs(d), destination(d, dtypes.u8)

    def step(frame: Frame) -> None:
        upper, lower = (narrow_bits(x, "e2m1", relu) for x in values(frame))
        frame.write(out, upper << np.uint8(4) | lower)

    return step


@HANDLERS.add("cvt.f16x2.fp6x2", "cvt.f16x2.fp4x2")
def halves_from_narrow(d: Decode) -> Step:
    """Exact. The upper element goes to the upper half."""
    name, relu = d.type("a").name.removesuffix("x2"), _relu(d)
    a, out = d.source("a", dtypes.u8 if name == "e2m1" else dtypes.u16), d.destination("d", dtypes.b32)

    def step(frame: Frame) -> None:
        packed = spread(frame, a)
        if name == "e2m1":
            packed = packed.astype(np.uint16)
            packed = (packed & np.uint16(0xF0)) << np.uint16(4) | packed & np.uint16(0xF)
        values = decoded((packed & np.uint16(0x3F3F)).view(np.uint8), name)
        frame.write(out, f16_bits(relu_of(values) if relu else values).view(np.uint32))

    return step


def scale_bits(x: np.ndarray, up: bool, finite: bool) -> np.ndarray:
    """Doubles to ue8m0 bits (uint8), the exponent of a power of two: down, or `up`. NaN becomes 0xFF."""
    size = np.abs(x)
    mantissa, exponent = np.frexp(np.where(np.isfinite(size) & (size > 0), size, 1.0))
    power = np.where(size > 0, exponent - 1 + ((mantissa > 0.5) & up), _NARROWEST)
    codes = np.clip(power, _NARROWEST, 127) + 127
    over = (power > 127) | np.isinf(size)
    return np.where((x != x) | (over & (not finite)), _NO_NUMBER, np.where(over, 254, codes).astype(np.uint8))


@HANDLERS.add("cvt.ue8m0x2.f32", "cvt.ue8m0x2.bf16x2")
def scales(d: Decode) -> Step:
    up, finite = d.modifier("rnd") == "rp", bool(d.modifiers.get("satfinite"))
    values, out = _pairs(d), destination(d, dtypes.u16)

    def step(frame: Frame) -> None:
        upper, lower = (scale_bits(x, up, finite).astype(np.uint16) for x in values(frame))
        frame.write(out, upper << np.uint16(8) | lower)

    return step


@HANDLERS.add("cvt.bf16x2.ue8m0x2")
def from_scales(d: Decode) -> Step:
    a, out = d.source("a", dtypes.u16), d.destination("d", dtypes.b32)

    def step(frame: Frame) -> None:
        values = decoded(spread(frame, a).view(np.uint8), "ue8m0").astype(np.float64)
        frame.write(out, half_bits(values, "bf16").view(np.uint32))

    return step


# -- stochastic rounding -----------------------------------------------------------------------------------------

_RANDOM_BITS = {"f16": 13, "bf16": 16}


def _rounded(x: np.ndarray, name: str, random: np.ndarray, bits: int, relu: bool, finite: bool) -> np.ndarray:
    return round_stochastically(relu_of(x) if relu else x, FORMATS[name], random, bits, finite)


@HANDLERS.add("cvt.rs.pair")
def stochastic_pair(d: Decode) -> Step:
    """The upper half of `rbits` rounds `a`, the lower `b`; of each the low 13 bits for f16."""
    name = d.type("d").name.removesuffix("x2")
    bits, relu, finite = _RANDOM_BITS[name], _relu(d), bool(d.modifiers.get("satfinite"))
    values, random, out = _pairs(d), d.source("rbits", dtypes.b32), destination(d, dtypes.u32)
    field = np.uint32((1 << bits) - 1)

    def step(frame: Frame) -> None:
        numbers = spread(frame, random)
        both = np.empty((frame.lanes, 2), np.uint16)
        for half, x in zip((1, 0), values(frame), strict=True):
            mine = numbers >> np.uint32(16 * half) & field
            both[:, half] = half_bits(_rounded(x, name, mine, bits, relu, finite), name)
        frame.write(out, both.view(np.uint32)[:, 0])

    return step


@HANDLERS.add("cvt.rs.four", "cvt.rs.fp4x4")
def stochastic_four(d: Decode) -> Step:
    """The upper half of `rbits` rounds the first two values, the lower the others; for e2m1 8 bits for each value."""
    name = d.type("d").name.removesuffix("x4")
    four = name == "e2m1"
    relu, random, values = _relu(d), d.source("rbits", dtypes.b32), d.registers("a", dtypes.f32)
    out = destination(d, dtypes.u16 if four else dtypes.u32)
    slots, width, bits = values.slots, 4 if four else 8, 8 if four else 16

    def step(frame: Frame) -> None:
        numbers = spread(frame, random)
        result = np.zeros(frame.lanes, np.uint32)
        for place, slot in enumerate(slots):
            # e2m1: the upper bytes of both halves of rbits are for the first two values, the lower for the others.
            at = (16 - 16 * (place % 2) + (8 if place < 2 else 0)) if four else (16 if place < 2 else 0)
            mine = numbers >> np.uint32(at) & np.uint32((1 << bits) - 1)
            x = spread(frame, slot).astype(np.float64)
            codes = encoded(_rounded(x, name, mine, bits, relu, True), name)
            result |= codes.astype(np.uint32) << np.uint32(width * (3 - place))
        frame.write(out, result.astype(np.uint16) if four else result)

    return step
