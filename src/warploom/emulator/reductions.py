"""The element-wise operations of reducing copies and stores. PTX ISA 9.7.9.25.4.2 (cp.reduce.async.bulk).

Integers wrap; floating-point sums round to nearest even; f32 addition flushes subnormals to signed zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..isa.dtypes import DType

_TINY = np.float32(np.finfo(np.float32).tiny)


def combine(operation: str, dtype: DType, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """`old operation new`, element by element, as `dtype`.

    Args:
        operation: "add", "min", "max", "inc", "dec", "and", "or", "xor".
        old, new: arrays of one shape whose bytes are elements of `dtype` (any NumPy type of that size).

    Returns an array of `dtype.numpy`.
    """
    element = np.dtype(dtype.numpy)
    left, right = np.ascontiguousarray(old).view(element), np.ascontiguousarray(new).view(element)
    if operation == "add":
        if dtype.name == "f32":
            return _flushed(_flushed(left) + _flushed(right))
        return (left + right).astype(element, copy=False)
    return _OPERATIONS[operation](left, right).astype(element, copy=False)


def _flushed(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) < _TINY, np.copysign(np.float32(0), values), values)


def _less(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The smaller of each pair, a number before a NaN."""
    with np.errstate(invalid="ignore"):
        return np.where((left <= right) | (right != right), left, right)


def _greater(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The greater of each pair, a number before a NaN."""
    with np.errstate(invalid="ignore"):
        return np.where((left >= right) | (right != right), left, right)


def _increment(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.where(left >= right, 0, left + 1)


def _decrement(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.where((left == 0) | (left > right), right, left - 1)


_OPERATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "min": _less,
    "max": _greater,
    "inc": _increment,
    "dec": _decrement,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
