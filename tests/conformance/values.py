"""Inputs derived from a name: every bit is a function of `SEED` and the case's name, with every NumPy.

NumPy does not guarantee the same random stream across versions, so the bits come from SHAKE-128.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

import numpy as np

SEED = 1
_FORMATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52), "tf32": (32, 23)}
"""Bits and fraction bits. tf32 values stand in f32 containers, their low bits random."""


class Source:
    """A stream of bits that belongs to a name."""

    def __init__(self, name: str) -> None:
        self.name, self.asked = name, 0

    def bits(self, count: int, width: int) -> np.ndarray:
        """`count` words of 8, 16, 32 or 64 random bits."""
        self.asked += 1
        stream = hashlib.shake_128(f"{SEED}/{self.name}/{self.asked}".encode()).digest(count * width // 8)
        return np.frombuffer(stream, f"<u{width // 8}").copy()

    def below(self, limit: int, count: int) -> np.ndarray:
        """`count` integers from 0 to limit - 1."""
        return (self.bits(count, 64) % np.uint64(limit)).astype(np.int64)

    def pick(self, items: Sequence[int], count: int, width: int) -> np.ndarray:
        return np.array(items, np.uint64)[self.below(len(items), count)].astype(f"u{width // 8}")

    def uniform(self, low: float, high: float, count: int) -> np.ndarray:
        return low + (high - low) * (self.bits(count, 64) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integer_edges(width: int) -> list[int]:
    """0, 1, -1, the largest and the smallest, and their neighbours, most telling first."""
    top = 1 << width - 1
    mask = (1 << width) - 1
    half = 1 << width // 2
    return [0, 1, mask, top, top - 1, 2, mask - 1, top + 1, 7, half, half - 1, 0x55 * (mask // 255)]


def float_edges(kind: str) -> list[int]:
    """Zeros, ones, infinities, NaNs, subnormals, the largest, and ties, most telling first."""
    width, fraction = _FORMATS[kind]
    sign = 1 << width - 1
    infinity = ((1 << width - 1 - fraction) - 1) << fraction
    one = ((1 << (width - 2 - fraction)) - 1) << fraction
    half, two = one - (1 << fraction), one + (1 << fraction)
    quiet, signalling = infinity | 1 << fraction - 1, infinity | 1
    smallest = 1 << fraction
    return [
        0, sign, one, sign | infinity, quiet, 1, sign | one, infinity, infinity - 1, sign | smallest, half,
        sign | smallest - 1, smallest, signalling, sign | quiet | 5, two, sign | two, one | 1, one - 1,
        sign | infinity - 1, two | 1 << fraction - 1, sign | half, smallest | 1, 3 << fraction,
        one | (1 << fraction) - 1,
    ]  # fmt: skip


def random_floats(source: Source, kind: str, count: int) -> np.ndarray:
    """Any bits; exponents near 1; few fraction bits, so that sums and products tie; halves of small integers; ties
    between two values of the narrower formats."""
    width, fraction = _FORMATS[kind]
    word = f"u{width // 8}"
    one = ((1 << (width - 2 - fraction)) - 1) << fraction
    found = source.bits(count, width)
    near = source.bits(count, width) & np.array((1 << fraction) - 1, word)
    near |= (source.below(9, count) - 4 + (one >> fraction)).astype(word) << np.array(fraction, word)
    near |= source.bits(count, width) & np.array(1 << width - 1, word)
    keep = np.array(~((1 << fraction - min(4, fraction)) - 1) & ((1 << width) - 1), word)
    found[1::6] = near[1::6]
    found[2::6] = near[2::6]
    found[3::6] = near[3::6] & keep
    if width >= 32:
        found[4::6] = _halves(source, kind, found[4::6].size)
        cut = source.pick([13, 16] if width == 32 else [29, 42], count, width)
        low = (np.array(1, word) << cut) - np.array(1, word)
        tie = (near & ~low) | (np.array(1, word) << (cut - np.array(1, word)))
        found[5::6] = (tie + source.pick([0, 0, 0, 1, (1 << width) - 1], count, width))[5::6]
    else:
        found[4::6] = near[4::6] & keep
    return found


def _halves(source: Source, kind: str, count: int) -> np.ndarray:
    quarters = (source.below(1 << 12, count) - (1 << 11)) * np.array([1, 1, 2, 2**20], np.int64)[source.below(4, count)]
    dtype = np.float32 if kind in ("f32", "tf32") else np.float64
    return (quarters.astype(np.float64) / 4).astype(dtype).view(f"u{np.dtype(dtype).itemsize}")


def random_integers(source: Source, width: int, count: int) -> np.ndarray:
    """Any bits, small ones of both signs, and edges."""
    found = source.bits(count, width)
    found[1::4] = (source.below(64, count) - 32).astype(f"u{width // 8}")[1::4]
    found[2::4] = source.pick(integer_edges(width), count, width)[2::4]
    found[3::4] >>= source.below(width, count).astype(found.dtype)[3::4]
    return found


def edges(kind: str) -> list[int]:
    """Edge values of a type as raw bits."""
    if kind in _FORMATS:
        return float_edges(kind)
    if kind == "pred":
        return [0, 1]
    if kind.endswith("x2") and kind[:-2] in _FORMATS:
        low = float_edges(kind[:-2])
        return [a | b << 16 for a, b in zip(low, [*low[3:], *low[:3]], strict=True)]
    if kind.endswith("16x2"):
        low = integer_edges(16)
        return [a | b << 16 for a, b in zip(low, [*low[2:], *low[:2]], strict=True)]
    return integer_edges(int(kind.lstrip("usb")))


def width_of(kind: str) -> int:
    if kind in _FORMATS:
        return _FORMATS[kind][0]
    if kind.endswith("x2"):
        return 32
    return 8 if kind == "pred" else int(kind.lstrip("usb"))


def random(source: Source, kind: str, count: int) -> np.ndarray:
    """Random values of a type as raw bits."""
    if kind in _FORMATS:
        return random_floats(source, kind, count)
    if kind == "pred":
        return source.bits(count, 8) & np.uint8(1)
    if kind.endswith("x2"):
        part = kind[:-2]
        halves = random_floats(source, part, 2 * count) if part in _FORMATS else random_integers(source, 16, 2 * count)
        found = halves.view("<u4").copy()
        found[::5] = source.pick(edges(kind), count, 32)[::5]
        return found
    return random_integers(source, width_of(kind), count)


_CROSSED = {1: 64, 2: 11, 3: 5, 4: 3, 5: 2, 6: 2}


def operands(source: Source, kinds: Sequence[str], count: int, chosen: Sequence[object] = ()) -> list[np.ndarray]:
    """Operands for `count` threads: every combination of edges first, then random ones.

    kinds: types. chosen: per operand None, or a function (source, count) -> values instead of all of that.
    """
    made = [random(source, kind, count) for kind in kinds]
    lists = [edges(kind)[: _CROSSED[len(kinds)]] for kind in kinds]
    for row, combination in enumerate(itertools.islice(itertools.product(*lists), count)):
        for values, value in zip(made, combination, strict=True):
            values[row] = value
    for at, special in enumerate(chosen):
        if special is not None:
            made[at] = special(source, count).astype(made[at].dtype)  # type: ignore[operator]
    return made
