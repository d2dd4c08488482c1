"""Scalar video instructions, as ptxas 13 builds them for sm_90: on 64-bit words. PTX ISA 9.7.18.1.

ptxas deviates from the PTX ISA when a result exceeds 32 bits. These are the rules of the code it emits, which an H200
confirmed for whole registers and for their parts (`tests/golden/conformance.npz`):

    value        exact in 64 bits with a sign, of vshl too. vmad takes whole words as signed, whatever their types say.
                 A minus before an operand negates the product or c, and makes the shift and the limits signed
    .sat         to s32: both limits. To u32: sums, differences, minima and maxima become 0 below it, and keep their
                 low 32 bits above it; vshl, vshr (in 34 bits with a sign) and vmad also stop at the upper limit
    .sat, part   a value with any bit above the part's largest value, which a negative one has, becomes that value;
                 vshl and vshr saturate to 32 bits and lose the rest
    part         gets the value's low bits; but .h1 gets its bits 16 to 31, not the lower half that the PTX ISA names
    second       64-bit values, compared as signed for s32 and as unsigned for u32, to which c is extended. A sum or
                 difference, and what vshl and vshr saturated, come into it as their low 32 bits, extended by bit 31
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa import dtypes
from ...isa.instructions.video import MULTIPLY_ADD, SCALAR, signs
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import spread
from .video import COMPARISONS, selected

HANDLERS = Handlers()

_KINDS = ("add", "sub", "absdiff", "min", "max", "shl", "shr", "set")
_NARROW = ("add", "sub")
_SHIFTS = ("shl", "shr")
_WORD, _LONG = (1 << 32) - 1, (1 << 64) - 1

Unary = Callable[[int], int]
Pair = Callable[[int, int], int]


def _bits(selector: str) -> int:
    return {"b": 8, "h": 16}.get(selector[:1], 32)


def _with_sign(value: int, bits: int) -> int:
    """The low bits of a value as a signed integer."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _part_of(word: int, selector: str, signed: bool) -> int:
    """A byte, a half-word or the whole of a word, extended by its type's sign."""
    bits = _bits(selector)
    value = word >> bits * int(selector[1:] or 0) & (1 << bits) - 1
    return _with_sign(value, bits) if signed else value


def _clamped(value: int, signed: bool) -> int:
    """A value at the limits of 32 bits."""
    return min(max(value, -(1 << 31)), (1 << 31) - 1) if signed else min(max(value, 0), _WORD)


def _operation(d: Decode, kind: str) -> Pair:
    """The operation on two extended operands, in 64 bits."""
    clamp, compared = d.modifier("mode") == "clamp", COMPARISONS.get(d.modifier("cmp"))
    plain: dict[str, Pair] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "absdiff": lambda a, b: abs(a - b),
        "min": min,
        "max": max,
        "shl": lambda a, b: _with_sign(a << (min(b, 32) if clamp else b & 31), 64),
        "shr": lambda a, b: a >> (min(b, 32) if clamp else b & 31),
        "set": lambda a, b: int(compared(a, b)),  # type: ignore[misc, arg-type]
    }
    return plain[kind]


def _saturation(kind: str, signed: bool, part: str) -> Unary:
    """What .sat does to a 64-bit value."""
    if kind in _SHIFTS:
        return lambda value: _clamped(_with_sign(value, 34), signed)
    if part:
        highest = (1 << _bits(part) - int(signed)) - 1
        return lambda value: min(value & _LONG, highest)
    if signed:
        return lambda value: _clamped(value, True)
    return lambda value: max(value, 0)


def _second(d: Decode, signed: bool, narrow: bool) -> Pair:
    """The operation on a 64-bit value and the word c. narrow: the value's low 32 bits count, extended by their sign."""
    kind = d.modifier("second")
    if kind == "add":
        return lambda value, c: value + c
    pick: Callable[..., int] = min if kind == "min" else max

    def compared(value: int, c: int) -> int:
        value, c = _with_sign(value, 32) if narrow else value, _part_of(c, "", signed)
        return pick(value, c) if signed else pick(value & _LONG, c)

    return compared


@HANDLERS.add(*(SCALAR + kind + row for kind in _KINDS for row in ("", ".second", ".merge")))
def scalar(d: Decode) -> Step:
    """Uses Python integers: the instructions are rare, and their values have up to 64 bits."""
    kind = d.match.form.key.removeprefix(SCALAR).split(".")[0]
    compute = _operation(d, kind)
    signed = [d.modifier(name, "u32") == "s32" for name in ("atype", "btype", "dtype")]
    (a, part_a), (b, part_b) = selected(d, "a"), selected(d, "b")
    out, part = selected(d, "d")
    c = d.source("c", dtypes.u32) if d.has("c") else None
    saturates = bool(d.modifiers.get("sat"))
    saturate = _saturation(kind, signed[2], part) if saturates else None
    # vset has no result type: the compared type decides.
    narrow = kind in _NARROW or saturates and kind in _SHIFTS
    second = _second(d, signed[0] if kind == "set" else signed[2], narrow) if d.modifier("second") else None
    bits = _bits(part)
    at = bits * int(part[1:] or 0)
    mask, taken_from = (1 << bits) - 1 << at, 0 if part == "h1" else at

    def one(left: int, right: int, third: int) -> int:
        value = compute(_part_of(left, part_a, signed[0]), _part_of(right, part_b, signed[1]))
        if saturate is not None:
            value = saturate(value)
        if second is not None:
            value = second(value, third)
        return third & ~mask & _WORD | value << taken_from & mask

    return _one_by_one(a, b, c, out, one)


@HANDLERS.add(MULTIPLY_ADD)
def multiply_add(d: Decode) -> Step:
    signed = [d.modifier(name) == "s32" for name in ("atype", "btype")]
    (a, part_a), (b, part_b) = selected(d, "a"), selected(d, "b")
    (c, _), out = selected(d, "c"), d.destination("d", dtypes.u32)
    of_product, of_third = (int(sign) for sign in signs([name for name in "abc" if d.negated(name)], False))
    has_sign = any(signed) or of_product * of_third < 0
    plus, saturates = int(bool(d.modifiers.get("po"))), bool(d.modifiers.get("sat"))
    shift = {"shr7": 7, "shr15": 15}.get(d.modifier("scale"), 0)

    def factor(word: int, part: str, extends: bool) -> int:
        return _part_of(word, part, extends or not part)

    def one(left: int, right: int, third: int) -> int:
        product = factor(left, part_a, signed[0]) * factor(right, part_b, signed[1])
        value = of_product * product + of_third * _with_sign(third, 32) + plus
        value = value >> shift if has_sign else _with_sign((value & _LONG) >> shift, 64)
        return (_clamped(value, has_sign) if saturates else value) & _WORD

    return _one_by_one(a, b, c, out, one)


def _one_by_one(a: int, b: int, c: int | None, out: int, one: Callable[[int, int, int], int]) -> Step:
    def step(frame: Frame) -> None:
        words = [spread(frame, slot).tolist() for slot in (a, b)]
        thirds = spread(frame, c).tolist() if c is not None else [0] * frame.lanes
        frame.write(out, np.array([one(*each) for each in zip(*words, thirds, strict=True)], np.uint32))

    return step
