"""The element-wise operations of reducing copies, stores and atomics. PTX ISA 9.7.9.25.4.2 (cp.reduce.async.bulk).

Integers wrap; floating-point sums round to nearest even and keep subnormals: the ISA says that f32 addition flushes
them, but an H200 does not (tests/golden/conformance.npz).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa.dtypes import DType


def combine(operation: str, dtype: DType, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """`old operation new`, element by element, as `dtype`.

    Args:
        operation: "add", "min", "max", "inc", "dec", "and", "or", "xor".
        old, new: arrays of one shape whose bytes are elements of `dtype` (any NumPy type of that size).

    Returns an array of `dtype.numpy`.
    """
    element = np.dtype(dtype.numpy)
    left, right = np.ascontiguousarray(old).view(element), np.ascontiguousarray(new).view(element)
    if operation in ("add", "min", "max") and dtype.is_float:
        with np.errstate(all="ignore"):
            return canonical(_FLOATS[operation](left, right).astype(element, copy=False))
    return INTEGER_OPERATIONS[operation](left, right).astype(element, copy=False)


def canonical(values: np.ndarray) -> np.ndarray:
    """The same numbers, with every NaN as in hardware: all bits set but the sign; in double precision the quiet
    one without payload (tests/golden/conformance.npz)."""
    if values.itemsize == 8:
        return np.where(values != values, np.nan, values)
    whole = np.dtype(f"i{values.itemsize}")
    positive = np.array(np.iinfo(whole).max, whole).view(values.dtype)
    return np.where(values != values, positive, values)


def _less(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The smaller of each pair; a number beats a NaN, -0 is below +0."""
    return np.where((left < right) | (right != right) | ((left == right) & np.signbit(left)), left, right)


def _greater(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The greater of each pair; a number beats a NaN, +0 is above -0."""
    return np.where((left > right) | (right != right) | ((left == right) & ~np.signbit(left)), left, right)


def _increment(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.where(left >= right, 0, left + 1)


def _decrement(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.where((left == 0) | (left > right), right, left - 1)


INTEGER_OPERATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "inc": _increment,
    "dec": _decrement,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_FLOATS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"add": np.add, "min": _less, "max": _greater}
