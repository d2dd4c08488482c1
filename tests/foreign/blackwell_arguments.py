"""Arguments of kernels of Triton and Gluon for sm_100a, as their launchers pass them."""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom.emulator.engines.tma import TensorMapArgument
from warploom.isa import dtypes
from warploom.isa.tensor_map import TensorMapSpec


def descriptor(array: np.ndarray, rows: int, dtype: dtypes.DType = dtypes.f16, inner: int = 0) -> list[Any]:
    """A row-major tensor: a map with boxes of `rows` rows, then shape and strides, which the kernels do not read.

    inner: bytes in a box's row, and the swizzle's; by default as many as a swizzle spans.
    """
    size = array.dtype.itemsize
    inner = inner or min(array.shape[1] * size, 128)
    spec = TensorMapSpec(
        dtype=dtype, dims=array.shape[::-1], strides=(array.shape[1] * size,), box=(inner // size, rows),
        swizzle=f"{inner}B",
    )  # fmt: skip
    shape = [np.uint32(extent) for extent in array.shape]
    return [TensorMapArgument(spec, array), *shape, np.uint64(array.shape[1]), np.uint64(1)]


def atoms(scales: np.ndarray) -> np.ndarray:
    """Factors (rows, blocks) as atoms of 128 x 4 bytes: row m, factor f at 16 (m % 32) + 4 (m / 32) + f."""
    rows, blocks = scales.shape
    return np.ascontiguousarray(scales.reshape(rows // 128, 4, 32, blocks // 4, 4).transpose(0, 3, 2, 1, 4))
