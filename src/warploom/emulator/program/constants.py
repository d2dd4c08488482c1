"""PTX literals as NumPy scalars of the type an instruction computes in."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...asm.nodes import Float
from ...isa.dtypes import DType, Kind


def integer_constant(value: int, dtype: DType) -> Any:
    """An integer literal as a constant of a type; wraps at the type's width, as in ptxas."""
    if dtype.kind is Kind.PREDICATE:
        return np.bool_(value != 0)
    if dtype.bits == 128:
        return np.array((value & (2**64 - 1), value >> 64 & (2**64 - 1)), dtype.numpy)[()]
    if dtype.is_float and dtype.numpy.kind == "f" and dtype.bits >= 32:
        return dtype.numpy.type(value)
    unsigned = np.dtype(f"u{dtype.bytes}")
    return np.array(value & ((1 << dtype.bits) - 1), unsigned).view(dtype.numpy)[()]


def float_constant(operand: Float, dtype: DType) -> Any:
    """A floating-point literal as a constant of a type."""
    if operand.bits == 32:
        value: Any = np.array(operand.raw, np.uint32).view(np.float32)[()]
    else:
        value = np.array(operand.raw, np.uint64).view(np.float64)[()]
    if dtype.kind is Kind.BITS:
        if operand.bits == dtype.bits:
            return np.array(operand.raw, dtype.numpy)[()]
        return (
            np.array(value, np.float32).view(np.uint32)[()] if dtype.bits == 32 else np.array(value).view(np.uint64)[()]
        )
    return dtype.numpy.type(value)
