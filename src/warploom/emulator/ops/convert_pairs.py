"""Conversions to and from packed pairs, and to tf32, PTX ISA 9.7.9.21 and 9.7.9.22; see `convert`."""

from __future__ import annotations

import numpy as np

from ...isa import dtypes
from ..machine.frame import Frame
from ..numerics.rounding import FORMATS, f16_bits, f32_to_bf16, half_bits, half_values, round_to
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .convert import bits_of, destination, reader, relu_of
from .integer import spread

HANDLERS = Handlers()


@HANDLERS.add("cvt.pair.f16x2.f32", "cvt.pair.bf16x2.f32")
def pair(d: Decode) -> Step:
    """`a` goes to the upper half, `b` to the lower."""
    name = d.type("d").name.removesuffix("x2")
    mode, relu, finite = d.modifier("rnd"), bool(d.modifiers.get("relu")), bool(d.modifiers.get("satfinite"))
    a, b, out = d.source("a"), d.source("b"), destination(d, dtypes.u32)
    target = FORMATS[name]
    nearest = {"f16": f16_bits, "bf16": f32_to_bf16}[name]

    def bits(x: np.ndarray) -> np.ndarray:
        if mode == "rn" and not finite:
            return nearest(relu_of(x) if relu else x)
        result = round_to(x.astype(np.float64), target, mode, finite)
        return half_bits(relu_of(result) if relu else result, name)

    def step(frame: Frame) -> None:
        both = np.empty((frame.lanes, 2), np.uint16)
        both[:, 0], both[:, 1] = bits(spread(frame, b)), bits(spread(frame, a))
        frame.write(out, both.view(np.uint32)[:, 0])

    return step


@HANDLERS.add("cvt.rna.tf32.f32")
def tf32_away(d: Decode) -> Step:
    """Ties away from zero: add half of the last kept place and truncate. Exponent 255 is only truncated, so that some
    NaNs become infinite; with .satfinite a result with exponent 255, infinite or not, is reduced by one place. This
    matches an H200 (tests/golden/unary.npz and conformance.npz)."""
    a, out = d.source("a", dtypes.b32), d.destination("d")
    finite = bool(d.modifiers.get("satfinite"))
    exponent, cut = np.uint32(0x7F800000), np.uint32(0xFFFFE000)

    def step(frame: Frame) -> None:
        x = spread(frame, a)
        special = (x & exponent) == exponent
        result = np.where(special, x, x + np.uint32(0x1000)) & cut
        if finite:
            result = np.where((result & exponent) == exponent, result - np.uint32(0x2000), result)
        frame.write(out, result)

    return step


@HANDLERS.add("cvt.tf32.f32")
def tf32(d: Decode) -> Step:
    mode, relu, finite = d.modifier("rnd"), bool(d.modifiers.get("relu")), bool(d.modifiers.get("satfinite"))
    read, out = reader(d, "a", dtypes.f32), d.destination("d")

    def step(frame: Frame) -> None:
        result = round_to(np.atleast_1d(read(frame)), FORMATS["tf32"], mode, finite)
        bits = bits_of(relu_of(result) if relu else result, dtypes.f32)
        frame.write(out, bits & np.uint32(0xFFFFE000))  # truncates NaNs: all other values end in zeros

    return step


def fp8_bits(x: np.ndarray, name: str, relu: bool) -> np.ndarray:
    """Doubles to "e4m3" or "e5m2" bits (uint8), to nearest even and saturating; NaN becomes 0x7F."""
    result = round_to(relu_of(x) if relu else x, FORMATS[name], "rn", True)
    return np.where(result != result, np.uint8(0x7F), result.astype(dtypes.ALL[name].numpy).view(np.uint8))


@HANDLERS.add("cvt.fp8x2.f32", "cvt.fp8x2.f32.sm_90")
def fp8_from_singles(d: Decode) -> Step:
    name, relu = d.modifier("dtype").removesuffix("x2"), bool(d.modifiers.get("relu"))
    first, second, out = reader(d, "a", dtypes.f32), reader(d, "b", dtypes.f32), d.destination("d")

    def step(frame: Frame) -> None:
        upper, lower = fp8_bits(first(frame), name, relu), fp8_bits(second(frame), name, relu)
        frame.write(out, (upper.astype(np.uint16) << np.uint16(8)) | lower)

    return step


@HANDLERS.add("cvt.fp8x2.f16x2", "cvt.fp8x2.f16x2.sm_90")
def fp8_from_halves(d: Decode) -> Step:
    name, relu = d.modifier("dtype").removesuffix("x2"), bool(d.modifiers.get("relu"))
    a, out = d.source("a", dtypes.b32), d.destination("d")

    def step(frame: Frame) -> None:
        values = half_values(spread(frame, a).view(np.uint16), "f16")
        frame.write(out, fp8_bits(values, name, relu).view(np.uint16))

    return step


@HANDLERS.add("cvt.f16x2.fp8x2", "cvt.f16x2.fp8x2.sm_90")
def halves_from_fp8(d: Decode) -> Step:
    """Exact. The upper byte goes to the upper half."""
    kind = dtypes.ALL[d.modifier("atype").removesuffix("x2")].numpy
    relu = bool(d.modifiers.get("relu"))
    a, out = d.source("a"), d.destination("d", dtypes.b32)

    def step(frame: Frame) -> None:
        values = spread(frame, a).view(np.uint8).view(kind).astype(np.float32)
        frame.write(out, f16_bits(relu_of(values) if relu else values).view(np.uint32))

    return step


@HANDLERS.add("cvt.pack", "cvt.pack.merge")
def pack(d: Decode) -> Step:
    """Two integers, clamped and placed side by side, `b` lowest; the rest are the low bits of `c`."""
    word = d.modifier("dtype")
    size, signed = int(word[1:]), word[0] == "s"
    low, high = (-(1 << size - 1), (1 << size - 1) - 1) if signed else (0, (1 << size) - 1)
    field = np.uint32((1 << size) - 1)
    a, b, out = d.source("a"), d.source("b"), destination(d, dtypes.u32)
    c = d.source("c") if d.has("c") else None

    def clamped(x: np.ndarray) -> np.ndarray:
        return np.clip(np.asarray(x).astype(np.int64), low, high).astype(np.uint32) & field

    def step(frame: Frame) -> None:
        v = frame.values
        result = clamped(v[b]) | (clamped(v[a]) << np.uint32(size))
        if c is not None:
            result = result | (v[c] << np.uint32(2 * size))
        frame.write(out, result)

    return step
