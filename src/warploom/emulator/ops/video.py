"""Video instructions: of one value each, and of the bytes or half-words of two words, lane by lane. PTX ISA 9.7.18."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...asm.nodes import Register
from ...isa import dtypes
from ...isa.instructions.video import OPERATIONS, SCALAR, SELECTORS
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import spread

HANDLERS = Handlers()

Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]

_OPERATIONS: dict[str, Binary] = {
    "add": np.add,
    "sub": np.subtract,
    # Halves are rounded up for sums that are not negative, and down for those that are.
    "avrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "absdiff": lambda a, b: np.abs(a - b),
    "min": np.minimum,
    "max": np.maximum,
}
_COMPARISONS: dict[str, Binary] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@HANDLERS.add(*(f"video.{operation}{lanes}" for operation in OPERATIONS for lanes in (2, 4)))
def arithmetic(d: Decode) -> Step:
    lanes, second = int(d.match.form.key[-1]), d.modifier("second")
    operation = _OPERATIONS[d.match.form.key.removeprefix("video.")[:-1]]
    limits = np.iinfo(f"{'i' if d.modifier('dtype') == 's32' else 'u'}{4 // lanes}")

    def result(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        values = operation(a, b)
        return np.clip(values, limits.min, limits.max) if second == "sat" else values

    return _lane_by_lane(d, lanes, result, accumulates=second == "add")


@HANDLERS.add("video.set2", "video.set4")
def compare(d: Decode) -> Step:
    compared = _COMPARISONS[d.modifier("cmp")]
    lanes = int(d.match.form.key[-1])
    return _lane_by_lane(d, lanes, lambda a, b: compared(a, b).astype(np.int64), bool(d.modifier("add")))


def _lane_by_lane(d: Decode, lanes: int, result: Binary, accumulates: bool) -> Step:
    """The step for a function of signed lanes: their low bits side by side, or their sum and c."""
    width = 4 // lanes
    a, b, c = (d.source(name, dtypes.u32) for name in "abc")
    out = d.destination("d", dtypes.u32)
    kinds = [np.dtype(f"{'i' if d.modifier(name) == 's32' else 'u'}{width}") for name in ("atype", "btype")]

    def step(frame: Frame) -> None:
        left, right = (
            spread(frame, slot).view(kind).reshape(frame.lanes, lanes).astype(np.int64)
            for slot, kind in zip((a, b), kinds, strict=True)
        )
        values = result(left, right)
        if accumulates:
            frame.write(out, (spread(frame, c) + values.sum(1)).astype(np.uint32))
        else:
            frame.write(out, np.ascontiguousarray(values.astype(f"u{width}")).view(np.uint32)[:, 0])

    return step


# -- one value each --------------------------------------------------------------------------------------------------

_SECOND: dict[str, Callable[[int, int], int]] = {"add": lambda x, c: x + c, "min": min, "max": max}
_KINDS = ("add", "sub", "absdiff", "min", "max", "shl", "shr", "set")


def _selected(d: Decode, name: str) -> tuple[int, str]:
    """The slot of an operand, and which part of it is meant; "" for all."""
    operand = d.operands[name]
    if isinstance(operand, Register):
        whole, _, selector = operand.name.rpartition(".")
        if selector in SELECTORS and whole:
            return d.slot_of(Register(whole), dtypes.u32), selector
    return d.source(name, dtypes.u32), ""


def _part_of(word: int, selector: str, signed: bool) -> int:
    """A byte, a half-word or the whole of a word, extended by its type's sign."""
    bits = {"b": 8, "h": 16}.get(selector[:1], 32)
    value = word >> bits * int(selector[1:] or 0) & (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


def _limits(selector: str, signed: bool) -> tuple[int, int]:
    bits = {"b": 8, "h": 16}.get(selector[:1], 32)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _scalar_result(d: Decode, kind: str) -> Callable[[int, int], int]:
    """The operation on two integers of any size."""
    clamp, compared = d.modifier("mode") == "clamp", _COMPARISONS.get(d.modifier("cmp"))
    plain: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "absdiff": lambda a, b: abs(a - b),
        "min": min,
        "max": max,
        "shl": lambda a, b: a << (min(b, 32) if clamp else b & 31),
        "shr": lambda a, b: a >> (min(b, 32) if clamp else b & 31),
        "set": lambda a, b: int(compared(a, b)),  # type: ignore[misc, call-overload, arg-type]
    }
    return plain[kind]


@HANDLERS.add(*(SCALAR + kind + row for kind in _KINDS for row in ("", ".second", ".merge")))
def scalar(d: Decode) -> Step:
    """Exact on Python's integers: the instructions are rare, their intermediate results have 34 bits and more."""
    kind = d.match.form.key.removeprefix(SCALAR).split(".")[0]
    compute = _scalar_result(d, kind)
    signed = [d.modifier(name, "u32") == "s32" for name in ("atype", "btype", "dtype")]
    (a, part_a), (b, part_b) = _selected(d, "a"), _selected(d, "b")
    out, part = _selected(d, "d")
    c = d.source("c", dtypes.u32) if d.has("c") else None
    second, saturates = _SECOND.get(d.modifier("second")), bool(d.modifiers.get("sat"))
    low, high = _limits(part, signed[2])

    def one(left: int, right: int, third: int) -> int:
        value = compute(_part_of(left, part_a, signed[0]), _part_of(right, part_b, signed[1]))
        if saturates:
            value = min(max(value, low), high)
        if second is not None:
            value = second(value, _part_of(third, "", signed[2]))
        if not part:
            return value & 0xFFFFFFFF
        bits = 8 if part[0] == "b" else 16
        mask = ((1 << bits) - 1) << bits * int(part[1:])
        return third & ~mask & 0xFFFFFFFF | value << bits * int(part[1:]) & mask

    return _one_by_one(a, b, c, out, one)


@HANDLERS.add(SCALAR + "mad")
def multiply_add(d: Decode) -> Step:
    signed = [d.modifier(name) == "s32" for name in ("atype", "btype")]
    (a, part_a), (b, part_b) = _selected(d, "a"), _selected(d, "b")
    c, out = d.source("c", dtypes.u32), d.destination("d", dtypes.u32)
    plus, saturates = int(bool(d.modifiers.get("po"))), bool(d.modifiers.get("sat"))
    shift = {"shr7": 7, "shr15": 15}.get(d.modifier("scale"), 0)
    low, high = _limits("", any(signed))

    def one(left: int, right: int, third: int) -> int:
        product = _part_of(left, part_a, signed[0]) * _part_of(right, part_b, signed[1])
        value = product + _part_of(third, "", any(signed)) + plus >> shift
        return (min(max(value, low), high) if saturates else value) & 0xFFFFFFFF

    return _one_by_one(a, b, c, out, one)


def _one_by_one(a: int, b: int, c: int | None, out: int, one: Callable[[int, int, int], int]) -> Step:
    def step(frame: Frame) -> None:
        words = [spread(frame, slot).tolist() for slot in (a, b)]
        thirds = spread(frame, c).tolist() if c is not None else [0] * frame.lanes
        frame.write(out, np.array([one(*each) for each in zip(*words, thirds, strict=True)], np.uint32))

    return step
