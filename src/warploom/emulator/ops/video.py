"""Video instructions on the bytes or half-words of two words, lane by lane. PTX ISA 9.7.18.2.

Those of one value each are in `video_scalar.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...asm.nodes import Register
from ...isa import dtypes
from ...isa.instructions.video import OPERATIONS, SELECTOR
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import spread

HANDLERS = Handlers()

Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]

_OPERATIONS: dict[str, Binary] = {
    "add": np.add,
    "sub": np.subtract,
    # Halves are rounded up for non-negative sums, and down for negative ones.
    "avrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "absdiff": lambda a, b: np.abs(a - b),
    "min": np.minimum,
    "max": np.maximum,
}
COMPARISONS: dict[str, Binary] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def selected(d: Decode, name: str) -> tuple[int, str]:
    """The slot of an operand, and which part of it is selected; "" for all."""
    operand = d.operands[name]
    if isinstance(operand, Register):
        whole, _, selector = operand.name.rpartition(".")
        if whole and SELECTOR.fullmatch(selector):
            return d.slot_of(Register(whole), dtypes.u32), selector
        return d.slot_of(Register(operand.name), dtypes.u32), ""
    return d.source(name, dtypes.u32), ""


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
    compared = COMPARISONS[d.modifier("cmp")]
    lanes = int(d.match.form.key[-1])
    return _lane_by_lane(d, lanes, lambda a, b: compared(a, b).astype(np.int64), bool(d.modifier("add")))


def _lane_by_lane(d: Decode, lanes: int, result: Binary, accumulates: bool) -> Step:
    """The step for a function of signed lanes: their low bits side by side, or their sum and c.

    Lanes that a mask leaves out are c's, or not added.
    """
    width = 4 // lanes
    (a, of_a), (b, of_b), (out, mask) = selected(d, "a"), selected(d, "b"), selected(d, "d")
    c = d.source("c", dtypes.u32)
    kinds = [np.dtype(f"{'i' if d.modifier(name) == 's32' else 'u'}{width}") for name in ("atype", "btype")]
    chosen = [_lanes(of_a) or [*range(lanes)], _lanes(of_b) or [*range(lanes, 2 * lanes)]]
    written = _lanes(mask) or [*range(lanes)]

    def step(frame: Frame) -> None:
        words = np.stack([spread(frame, a), spread(frame, b)], axis=1)
        left, right = (words.view(kind)[:, at].astype(np.int64) for kind, at in zip(kinds, chosen, strict=True))
        values = result(left, right)
        third = np.ascontiguousarray(spread(frame, c))
        if accumulates:
            frame.write(out, (third + values[:, written].sum(1)).astype(np.uint32))
        else:
            kept = third.view(f"u{width}").reshape(frame.lanes, lanes).copy()
            kept[:, written] = values[:, written].astype(f"u{width}")
            frame.write(out, kept.view(np.uint32)[:, 0])

    return step


def _lanes(selector: str) -> list[int]:
    """The lanes that a selector names, lowest first."""
    return [int(digit) for digit in reversed(selector[1:])]
