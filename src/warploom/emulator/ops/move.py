"""Moves, vectors packed and unpacked, and byte permutation: PTX ISA 9.7.9.3, 9.7.9.4, 9.7.9.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...asm.nodes import Integer
from ...isa import dtypes
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import spread

HANDLERS = Handlers()


@HANDLERS.add("mov", "mov.b128")
def move(d: Decode) -> Step:
    if d.negated("a"):
        read, target = d.predicate("a"), d.destination("d")

        def inverted(frame: Frame) -> None:
            np.copyto(frame.values[target], read(frame), where=frame.mask)

        return inverted
    a, out = d.source("a"), d.destination("d")

    def step(frame: Frame) -> None:
        v = frame.values
        np.copyto(v[out], v[a], where=frame.mask)

    return step


@HANDLERS.add("mov.vector")
def move_all(d: Decode) -> Step:
    values, out = d.registers("a"), d.registers("d")

    def step(frame: Frame) -> None:
        out.write(frame, values.read(frame))  # a copy: both may name the same registers

    return step


def _part(d: Decode, name: str, whole: str) -> tuple[dtypes.DType, int]:
    """The type and number of the parts of a vector."""
    count = len(d.registers(name))
    return dtypes.ALL[f"b{d.type(whole).bits // count}"], count


@HANDLERS.add("mov.pack.b16x2", "mov.pack.b32x2", "mov.pack.b32x4", "mov.pack.b64x2", "mov.pack.b64x4", "mov.pack.b128")
def pack(d: Decode) -> Step:
    kind, count = _part(d, "a", "d")
    parts, out = d.registers("a", kind).slots, d.destination("d")

    def step(frame: Frame) -> None:
        v = frame.values
        # Parts have their own bank, so that writing one never changes another.
        fields = v[out].view(kind.numpy).reshape(frame.lanes, count)
        for index, part in enumerate(parts):
            np.copyto(fields[:, index], v[part], where=frame.mask)

    return step


@HANDLERS.add(
    "mov.unpack.b16x2", "mov.unpack.b32x2", "mov.unpack.b32x4", "mov.unpack.b64x2", "mov.unpack.b64x4",
    "mov.unpack.b128",
)  # fmt: skip
def unpack(d: Decode) -> Step:
    kind, count = _part(d, "d", "a")
    a, parts = d.source("a"), d.registers("d", kind).slots

    def step(frame: Frame) -> None:
        v = frame.values
        fields = spread(frame, a).view(kind.numpy).reshape(frame.lanes, count)
        for index, part in enumerate(parts):
            np.copyto(v[part], fields[:, index], where=frame.mask)

    return step


# -- prmt --------------------------------------------------------------------------------------------------------

# The source byte for each byte of the result, lowest first, for the four values of the selector.
_MODES = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


@HANDLERS.add("prmt")
def permute(d: Decode) -> Step:
    a, b, c, out = d.source("a"), d.source("b"), d.source("c"), d.destination("d")
    mode = d.modifier("mode")
    if mode:
        table = np.array([sum(byte << 4 * at for at, byte in enumerate(row)) for row in _MODES[mode]], np.uint32)

        def by_mode(frame: Frame) -> None:
            v = frame.values
            frame.write(out, _permute(v[a], v[b], table[v[c] & np.uint32(3)]))

        return by_mode
    control = d.operands["c"]
    if isinstance(control, Integer):
        constant = _permute_constant(control.value)

        def by_constant(frame: Frame) -> None:
            v = frame.values
            frame.write(out, constant(v[a], v[b]))

        return by_constant

    def generic(frame: Frame) -> None:
        v = frame.values
        frame.write(out, _permute(v[a], v[b], v[c]))

    return generic


def _permute(a: np.ndarray, b: np.ndarray, control: np.ndarray) -> np.ndarray:
    both = np.left_shift(np.asarray(b).astype(np.uint64), np.uint64(32)) | a
    result: Any = np.uint64(0)
    for at in range(4):
        select = np.asarray(control >> np.uint32(4 * at)).astype(np.uint64)
        byte = (both >> ((select & np.uint64(7)) << np.uint64(3))) & np.uint64(255)
        sign = (byte >> np.uint64(7)) * np.uint64(255)
        result = result | (np.where(select & np.uint64(8), sign, byte) << np.uint64(8 * at))
    return result


def _permute_constant(control: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The permutation for one control word: bytes that move together are one shift and one mask."""
    moves: dict[tuple[bool, int], int] = {}
    signs = []
    for at in range(4):
        select = control >> 4 * at & 15
        second, byte = select & 4 > 0, select & 3
        if select & 8:
            signs.append((second, np.uint32(8 * byte), np.uint32(8 * at)))
        else:
            moves[second, 8 * (at - byte)] = moves.get((second, 8 * (at - byte)), 0) | 255 << 8 * at
    groups = [
        (second, np.left_shift if shift > 0 else np.right_shift, np.uint32(abs(shift)), np.uint32(mask))
        for (second, shift), mask in moves.items()
    ]

    def apply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result: Any = None
        for second, move, amount, mask in groups:
            part = move(b if second else a, amount) & mask
            result = part if result is None else result | part
        for second, low, at in signs:
            part = ((((b if second else a) >> low) >> np.uint32(7)) & np.uint32(1)) * np.uint32(255) << at
            result = part if result is None else result | part
        return result

    return apply
