"""Video instructions on the bytes or half-words of two words, lane by lane. PTX ISA 9.7.18.2.

Those of one value each are in `video_scalar.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa import dtypes
from ...isa.instructions.video import OPERATIONS
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
