"""Counting, finding and moving bits, and short dot products: PTX ISA 9.7.1.14 to 9.7.1.24."""

from __future__ import annotations

import numpy as np

from ...isa import dtypes
from ...isa.dtypes import DType
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import computed, elementwise, spread

HANDLERS = Handlers()

_ALL_ONES = np.uint32(0xFFFFFFFF)
_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


def bit_length(x: np.ndarray) -> np.ndarray:
    """Number of significant bits of unsigned values, int32. A double holds 32 bits exactly."""
    x = np.asarray(x)
    if x.dtype.itemsize < 8:
        return np.frexp(x.astype(np.float64))[1]
    high = x >> np.uint64(32)
    low = x & np.uint64(0xFFFFFFFF)
    return np.where(high != 0, np.frexp(high.astype(np.float64))[1] + 32, np.frexp(low.astype(np.float64))[1])


@HANDLERS.add("popc")
def count_ones(d: Decode) -> Step:
    return elementwise(d, np.bitwise_count, "a", casting="unsafe")


@HANDLERS.add("clz")
def leading_zeros(d: Decode) -> Step:
    width = d.type("a").bits
    return computed(d, "a", lambda a: width - bit_length(a))


@HANDLERS.add("bfind")
def find_first(d: Decode) -> Step:
    kind = d.type("a")
    unsigned = {32: dtypes.u32, 64: dtypes.u64}[kind.bits]
    shift = bool(d.modifier("shiftamt"))

    def position_in(x: np.ndarray) -> np.ndarray:
        if kind.is_signed:
            x = np.where(x < 0, ~x, x)
        position = bit_length(np.asarray(x).astype(unsigned.numpy)) - 1
        if shift:
            position = np.where(position < 0, position, kind.bits - 1 - position)
        return position

    return computed(d, "a", position_in)


@HANDLERS.add("fns")
def find_nth(d: Decode) -> Step:
    mask, base, offset, out = d.source("mask"), d.source("base"), d.source("offset"), d.destination("d")

    def step(frame: Frame) -> None:
        masks, bases, offsets = (spread(frame, slot).tolist() for slot in (mask, base, offset))
        found = [_nth_set(m, p, n) for m, p, n in zip(masks, bases, offsets, strict=True)]
        frame.write(out, np.array(found, np.uint32))

    return step


def _nth_set(mask: int, base: int, offset: int) -> int:
    """Position of the |offset|-th set bit from `base`, upward or downward; 0xFFFFFFFF if there is none."""
    if base > 31:
        return 0xFFFFFFFF  # undefined in PTX
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    positions = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [position for position in positions if mask >> position & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF


@HANDLERS.add("brev")
def reverse(d: Decode) -> Step:
    kind = d.type("a")
    a, out = d.source("a"), d.destination("d")

    def step(frame: Frame) -> None:
        octets = spread(frame, a).view(np.uint8).reshape(frame.lanes, kind.bytes)
        frame.write(out, np.ascontiguousarray(_REVERSED[octets[:, ::-1]]).view(kind.numpy)[:, 0])

    return step


def _used_bits(kind: DType) -> np.uint32:
    """The significant bits of a position or length: eight by PTX and for 32-bit fields; an H200 uses the whole
    register for 64-bit ones (tests/golden/conformance.npz)."""
    return np.uint32(255) if kind.bits == 32 else _ALL_ONES


@HANDLERS.add("bfe")
def extract(d: Decode) -> Step:
    """Shift the field to the top, then down again filled with copies of its highest bit or with zeros."""
    kind = d.type("a")
    number = kind.numpy.type
    used = _used_bits(kind)
    last = kind.bits - 1

    def signed(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        start = np.minimum((b & used).astype(np.int64), last)  # past the top only sign bits are left
        length = (c & used).astype(np.int64)
        up = last - (np.minimum(start + np.maximum(length, 1), last + 1) - 1)
        result = np.right_shift(np.left_shift(a, up.astype(kind.numpy)), (up + start).astype(kind.numpy))
        return np.where(length == 0, number(0), result)

    def unsigned(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        start = (b & used).astype(kind.numpy)
        length = np.minimum(c & used, np.uint32(last + 1)).astype(kind.numpy)
        return np.right_shift(a, start) & (np.left_shift(number(1), length) - number(1))

    return computed(d, "abc", signed if kind.is_signed else unsigned)


@HANDLERS.add("bfi")
def insert(d: Decode) -> Step:
    kind = d.type("a").numpy.type
    width = d.type("a").bits
    used = _used_bits(d.type("a"))

    def result(a: np.ndarray, b: np.ndarray, c: np.ndarray, size: np.ndarray) -> np.ndarray:
        start = (c & used).astype(kind)
        length = np.minimum(size & used, np.uint32(width)).astype(kind)
        field = np.left_shift(np.left_shift(kind(1), length) - kind(1), start)
        return (b & ~field) | (np.left_shift(a, start) & field)

    return computed(d, "abcd", result, "f")


@HANDLERS.add("szext")
def extend(d: Decode) -> Step:
    kind = d.type("a")
    clamp = d.modifier("mode") == "clamp"
    a, b, out = d.source("a", dtypes.u32), d.source("b"), d.destination("d", dtypes.u32)

    def step(frame: Frame) -> None:
        v = frame.values
        width = v[b] & np.uint32(31)
        above = np.left_shift(_ALL_ONES, width)
        if clamp:
            above = np.where(v[b] >= 32, np.uint32(0), above)
        result = v[a] & ~above
        if kind.is_signed:
            sign = np.right_shift(v[a], (width - np.uint32(1)) & np.uint32(31)) & np.uint32(1)
            result = np.where((sign != 0) & (width != 0), result | above, result)
        frame.write(out, result)

    return step


@HANDLERS.add("bmsk")
def make_mask(d: Decode) -> Step:
    clamp = d.modifier("mode") == "clamp"

    def result(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        start, width = (np.asarray(each).astype(np.int64) for each in (a, b))
        if not clamp:
            start, width = start & 31, width & 31
        start, width = np.minimum(start, 32), np.minimum(width, 32)
        return ((np.left_shift(np.int64(1), width) - 1) << start) & np.int64(0xFFFFFFFF)

    return computed(d, "ab", result)


@HANDLERS.add("dp4a", "dp2a")
def dot(d: Decode) -> Step:
    """Four products of bytes, or two of a 16-bit half with a byte, added to c; the sum wraps at 32 bits."""
    four = d.match.form.base == "dp4a"
    narrow = {"s32": np.int8, "u32": np.uint8}
    left = narrow[d.modifier("atype")] if four else {"s32": np.int16, "u32": np.uint16}[d.modifier("atype")]
    right = narrow[d.modifier("btype")]
    first = 2 if d.modifier("half") == "hi" else 0
    a, b, c, out = d.source("a"), d.source("b"), d.source("c"), d.destination("d")

    def step(frame: Frame) -> None:
        x = spread(frame, a).view(left).reshape(frame.lanes, -1).astype(np.int64)
        y = spread(frame, b).view(right).reshape(frame.lanes, 4).astype(np.int64)
        if not four:
            y = y[:, first : first + 2]
        frame.write(out, ((x * y).sum(axis=1) + frame.values[c]) & np.int64(0xFFFFFFFF))

    return step
