"""Conversions, PTX ISA 9.7.9.21 and 9.7.9.22.

Float to integer clamps; NaN becomes 0, or the bits 100…0 if a 64-bit type is involved. Everything that rounds goes
through double precision, where every narrower value is exact. Results are extended to a wider register with copies of
the sign (signed types) or zeros (all others).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...asm.nodes import Sink
from ...errors import UnsupportedInstructionError
from ...isa import dtypes
from ...isa.dtypes import DType
from ...isa.instructions import convert as rows
from ..machine.frame import Frame
from ..numerics.rounding import (
    FORMATS,
    NAN32,
    bf16_to_f32,
    directed64,
    f32_to_bf16,
    flush,
    half_bits,
    half_values,
    make_odd,
    round32,
    round_to,
    saturate,
    to_integral,
    two_sum,
)
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import spread

HANDLERS = Handlers()

Reader = Callable[[Frame], np.ndarray]


def destination(d: Decode, kind: DType) -> int:
    """The slot of the destination as an integer of the register's own width, so that a write extends the value."""
    if isinstance(d.operands["d"], Sink):
        return d.destination("d", dtypes.ALL[f"b{max(kind.bits, 16)}"])
    bits = max(d.register_bits("d"), kind.bits)
    if bits > 64:
        d.error(UnsupportedInstructionError, "the emulator writes results of cvt to registers of at most 64 bits")
    return d.destination("d", dtypes.ALL[f"{'s' if kind.is_signed else 'u'}{bits}"])


def words(d: Decode) -> tuple[DType, DType]:
    """The destination's and the source's type: the last two words of the opcode."""
    target, source = d.instruction.modifiers[-2:]
    return dtypes.ALL[target], dtypes.ALL[source]


def reader(d: Decode, name: str, kind: DType, flushes: bool = False) -> Reader:
    """A float operand as doubles (exact for all types but f64); NaN payloads do not matter afterwards."""
    if kind.name in ("f16", "bf16"):
        slot = d.source(name, dtypes.b16)
        return lambda frame: half_values(spread(frame, slot), kind.name)
    slot = d.source(name, kind)
    if flushes and kind is dtypes.f32:
        return lambda frame: np.asarray(flush(frame.values[slot])).astype(np.float64)
    return lambda frame: np.asarray(frame.values[slot]).astype(np.float64)


def bits_of(x: np.ndarray, kind: DType) -> np.ndarray:
    """Doubles that are values of a float type, as its bits, with canonical NaNs below double precision."""
    if kind.name in ("f16", "bf16"):
        return half_bits(x, kind.name)
    if kind is dtypes.f32:
        return np.where(x != x, NAN32, x.astype(np.float32)).view(np.uint32)
    return x.view(np.uint64)


# -- integers ----------------------------------------------------------------------------------------------------


@HANDLERS.add("cvt.integer")
def between_integers(d: Decode) -> Step:
    target, source = words(d)
    a, out = d.source("a", source), destination(d, target)
    if d.modifiers.get("sat"):
        from_info, to_info = np.iinfo(source.numpy), np.iinfo(target.numpy)
        low = source.numpy.type(max(from_info.min, to_info.min))
        high = source.numpy.type(min(from_info.max, to_info.max))

        def clamped(frame: Frame) -> None:
            frame.write(out, np.clip(frame.values[a], low, high).astype(target.numpy))

        return clamped
    if target.bits == source.bits and target.is_signed != source.is_signed:
        # The bits stay and the destination's signedness decides how a wider register is filled.
        same = d.source("a", target)

        def relabelled(frame: Frame) -> None:
            frame.write(out, frame.values[same])

        return relabelled

    def resized(frame: Frame) -> None:
        frame.write(out, frame.values[a].astype(target.numpy))

    return resized


@HANDLERS.add("cvt.to_integer.f32", "cvt.to_integer.f64", "cvt.to_integer.f16", "cvt.to_integer.bf16")
def to_integer(d: Decode) -> Step:
    target, source = words(d)
    read = reader(d, "a", source, bool(d.modifiers.get("ftz")))
    rounded = to_integral(d.modifier("rnd"))
    out = destination(d, target)
    info = np.iinfo(target.numpy)
    wide = source.bits == 64 or target.bits == 64
    nan = target.numpy.type(0 if not wide else info.min if target.is_signed else 1 << target.bits - 1)
    low, high = float(info.min), float(info.max)  # the upper one rounds up to a power of two for 64 bits
    least, most = target.numpy.type(info.min), target.numpy.type(info.max)
    middle = np.dtype(np.uint64 if target is dtypes.u64 else np.int64)

    def step(frame: Frame) -> None:
        x = read(frame)
        whole = rounded(x)
        over, under = whole >= high, whole <= low
        result = np.where(over | under | (x != x), 0.0, whole).astype(middle).astype(target.numpy)
        result = np.where(over, most, np.where(under, least, np.where(x != x, nan, result)))
        frame.write(out, result)

    return step


def integer_as_double(x: np.ndarray) -> np.ndarray:
    """An integer as a double, exact or rounded to odd: the halves of 64 bits are exact, and so is their sum's error."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    high = (x >> x.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (x & x.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return make_odd(*two_sum(high, low))


@HANDLERS.add("cvt.from_integer.f32", "cvt.from_integer", "cvt.from_integer.bf16")
def from_integer(d: Decode) -> Step:
    target, source = words(d)
    mode = d.modifier("rnd")
    a, out = d.source("a", source), destination(d, target)
    clamps = bool(d.modifiers.get("sat"))

    def convert(x: np.ndarray) -> np.ndarray:
        if target is dtypes.f64:
            if mode == "rn" or source.bits < 64:
                return x.astype(np.float64)
            high = (x >> x.dtype.type(32)).astype(np.float64) * 2.0**32
            return directed64("add", mode, high, (x & x.dtype.type(0xFFFFFFFF)).astype(np.float64))
        if target is dtypes.f32:
            return x.astype(np.float32) if mode == "rn" else round32(integer_as_double(x), mode)
        return round_to(integer_as_double(x), FORMATS[target.name], mode)

    def step(frame: Frame) -> None:
        result = np.atleast_1d(np.asarray(convert(np.asarray(frame.values[a]))).astype(np.float64))
        frame.write(out, bits_of(saturate(result) if clamps else result, target))

    return step


# -- floats ------------------------------------------------------------------------------------------------------


def relu_of(x: np.ndarray) -> np.ndarray:
    """Negative values (and -0) to +0; NaN stays."""
    return np.where(x > 0, x, np.where(x != x, x, x.dtype.type(0)))


@HANDLERS.add(*(form.key for form in rows.FORMS if form.key.startswith("cvt.round.")))
def round_to_integral(d: Decode) -> Step:
    target, source = words(d)
    flushes = bool(d.modifiers.get("ftz"))
    read = reader(d, "a", source, flushes)
    mode, clamps = d.modifier("rnd"), bool(d.modifiers.get("sat"))
    out = destination(d, target)
    if target is dtypes.f32 and not (mode or flushes or clamps):
        same = d.source("a", dtypes.u32)

        def moved(frame: Frame) -> None:  # NaNs keep all their bits
            frame.write(out, frame.values[same])

        return moved

    def step(frame: Frame) -> None:
        x = np.atleast_1d(read(frame))
        if mode:
            x = np.copysign(to_integral(mode)(x), x)
        frame.write(out, bits_of(saturate(x) if clamps else x, target))

    return step


_NARROW = tuple(
    form.key for form in rows.FORMS if form.key.split(".")[1] in ("narrow", "relu", "satfinite", "directed", "ftz")
)


_QUIET: dict[str, tuple[Any, Any]] = {
    "f32": (np.uint32(0x7FC00000), np.uint32(0xFFC00000)),
    "f16": (np.uint16(0x7E00), np.uint16(0xFE00)),
    "bf16": (np.uint16(0x7FC0), np.uint16(0xFFC0)),
}
"""The quiet NaNs without a payload, the positive and the negative one."""


@HANDLERS.add(*_NARROW)
def narrow(d: Decode) -> Step:
    target, source = words(d)
    modifiers = d.instruction.modifiers
    # An H200 does not flush values that it rounds to half precision, which shows when rounding away from zero.
    flushes = "ftz" in modifiers and target is not dtypes.f16
    mode = d.modifier("rnd", "rn")
    out = destination(d, target)
    convert = rounder(target, source, mode, "satfinite" in modifiers)
    relu, clamps = "relu" in modifiers, "sat" in modifiers
    if target is dtypes.bf16 and source is dtypes.f32 and mode == "rn" and len(modifiers) == 4:
        a = d.source("a")

        def fast(frame: Frame) -> None:
            frame.write(out, f32_to_bf16(spread(frame, a)))

        return fast
    read = reader(d, "a", source, flushes)
    # From double precision a NaN becomes the quiet NaN of its sign, as on an H200 (tests/golden/conformance.npz).
    plus, minus = _QUIET[target.name]

    def step(frame: Frame) -> None:
        x = np.atleast_1d(read(frame))
        result = convert(x)
        if flushes and target is dtypes.f32:
            result = flush(result, 2.0**-126)
        if relu:
            result = relu_of(result)
        if clamps:
            result = saturate(result)
        bits = bits_of(result, target)
        if source is dtypes.f64 and np.count_nonzero(result != result):
            bits = np.where(result != result, np.where(np.signbit(x), minus, plus), bits)
        frame.write(out, bits)

    return step


def rounder(target: DType, source: DType, mode: str, finite: bool) -> Callable[[np.ndarray], np.ndarray]:
    """From exact doubles to doubles that are values of the target."""
    if target is dtypes.f32:
        return lambda x: round32(x, mode).astype(np.float64)
    return lambda x: round_to(x, FORMATS[target.name], mode, finite)


@HANDLERS.add(*(form.key for form in rows.FORMS if form.key.startswith("cvt.widen.")))
def widen(d: Decode) -> Step:
    target, source = words(d)
    out = destination(d, target)
    flushes, clamps = bool(d.modifiers.get("ftz")), bool(d.modifiers.get("sat"))
    if source is dtypes.bf16 and target is dtypes.f32 and not flushes:
        a = d.source("a", dtypes.b16)

        def shifted(frame: Frame) -> None:  # NaN: PTX leaves the result open; the payload is kept
            frame.write(out, bf16_to_f32(spread(frame, a)).view(np.uint32))

        return shifted
    read, double = reader(d, "a", source, flushes), target is dtypes.f64

    def step(frame: Frame) -> None:
        x = np.atleast_1d(read(frame))
        if flushes:
            x = flush(x, 2.0**-126)
        if double:
            # NaNs are quieted and keep their payload; with .ftz they become canonical singles before they are widened.
            x = np.where(x != x, np.float64(NAN32), x) if flushes else x * 1.0
        frame.write(out, bits_of(saturate(x) if clamps else x, target))

    return step
