"""Scales of e4m3 arrays: one number per array, or one per batch and head. Sinks as the kernels read them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError
from ...isa.dtypes import DType, e4m3, f32
from ...runtime.arrays import ArrayView

SMALLEST, LARGEST = 2.0**-100, 2.0**100
"""Range of scales, whose products with each other and with log2(e) must fit in f32."""


def arrays_and_numbers(**given: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """Split the given scales into arrays and numbers."""
    scales = {name: value for name, value in given.items() if value is not None}
    numbers = {name: value for name, value in scales.items() if isinstance(value, (int, float))}
    return {name: value for name, value in scales.items() if name not in numbers}, numbers


def check_scales(
    seen: Mapping[str, ArrayView], numbers: Mapping[str, float], wanted: Mapping[str, tuple[int, ...]],
    narrow: Iterable[str],
) -> None:  # fmt: skip
    """Raise ArgumentError, ArgumentTypeError unless scales and types match.

    Args:
        seen: all arrays.
        numbers: scales that are numbers.
        wanted: all possible scales, with their shapes as arrays.
        narrow: the scaled arrays, which must be e4m3 if `k` is.
    """
    names = list(wanted)
    given = sorted({*numbers, *(name for name in names if name in seen)})
    if seen["k"].dtype is not e4m3:
        if given:
            raise ArgumentError(
                "scales belong to arrays of eight bits", expected=f"e4m3 {' and '.join(narrow)}, or no scales",
                got=f"{seen['k'].dtype}, {', '.join(given)}",
            )  # fmt: skip
        return
    for name in narrow:
        if seen[name].dtype is not e4m3:
            raise ArgumentTypeError(
                f"{', '.join(narrow)} must have one type", expected="e4m3", got=f"{name} {seen[name].dtype}",
                hint="warploom.quantize makes e4m3",
            )  # fmt: skip
    arrays = [name for name in names if name in seen]
    if 0 < len(arrays) < len(names):
        raise ArgumentError(
            "the scales are partly numbers and partly arrays",
            expected=f"{', '.join(names)} as numbers, or all of them as arrays", got=f"arrays: {', '.join(arrays)}",
        )  # fmt: skip
    for name, shape in wanted.items():
        if name in seen and (seen[name].shape != shape or seen[name].dtype is not f32):
            raise ArgumentError(
                f"`{name}` has a factor for each batch and head", expected=f"{shape} f32", got=seen[name].describe()
            )
        if name in numbers:
            positive(numbers[name], name)


def positive(value: Any, name: str) -> float:
    """Return a positive factor as float. Raises ArgumentError if it is not a positive number in range."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not SMALLEST <= value <= LARGEST:
        raise ArgumentError(f"`{name}` is a positive number", expected="2^-100 to 2^100", got=repr(value))
    return float(value)


def check_fast(fast_accumulation: Any, dtype: DType) -> None:
    """Raise ArgumentError unless it is False, or True for 8 bits."""
    if not isinstance(fast_accumulation, (bool, np.bool_)):
        raise ArgumentError("`fast_accumulation` is not a flag", expected="True or False", got=repr(fast_accumulation))
    if fast_accumulation and dtype is not e4m3:
        raise ArgumentError(
            "`fast_accumulation` is for 8 bits", expected="q, k and v in e4m3", got=dtype,
            hint="leave it out: products of 16 bits are added up in f32 at full speed",
        )  # fmt: skip


def in_f32(sinks: Any) -> Any:
    """Sinks of 16 bits as the kernels read them, if they are torch's: a call that copies is not remembered."""
    torch = sys.modules.get("torch")
    narrow = () if torch is None else (torch.bfloat16, torch.float16)
    return sinks.float() if getattr(sinks, "dtype", None) in narrow else sinks
