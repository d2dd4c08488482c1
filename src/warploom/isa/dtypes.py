"""The scalar types of PTX and their equivalents in NumPy, ml_dtypes, PyTorch and JAX.

Names are PTX's own (`bf16`, `u32`, `e4m3`). `of` accepts a DType, its name, a NumPy dtype, a torch dtype or a JAX
scalar type. PTX ISA 5.2 (types), 5.2.3 (alternate floating point).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import ArgumentTypeError


class Kind(Enum):
    """The interpretation of a type's bits."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BITS = "bits"
    PREDICATE = "predicate"


@dataclass(frozen=True)
class DType:
    """A PTX scalar type.

    Attributes:
        name: PTX spelling without the dot.
        bits: width in bits; a predicate counts as 1.
        kind: the interpretation of the bits.
        numpy: the NumPy dtype with the same bytes; `.bN` types map to unsigned integers.
        register_bits: width of the register that holds one value (16 for 8-bit and fp8 values, except pairs of 4-bit
            floats, which are in .b8).
    """

    name: str
    bits: int
    kind: Kind
    numpy: np.dtype

    @cached_property
    def bytes(self) -> int:
        """Bytes of one value in memory."""
        return (self.bits + 7) // 8

    @cached_property
    def register_bits(self) -> int:
        return 1 if self.kind is Kind.PREDICATE else 8 if self.name == "e2m1x2" else max(self.bits, 16)

    @cached_property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @cached_property
    def is_integer(self) -> bool:
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @cached_property
    def is_signed(self) -> bool:
        return self.kind is Kind.SIGNED

    def __hash__(self) -> int:
        return hash(self.name)  # hashing all fields takes three times as long, and types are looked up often

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """Pickle by name: types are compared by identity, so a copy from another process must be this object."""
        return of, (self.name,)

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


def _dtype(name: str, bits: int, kind: Kind, numpy: Any) -> DType:
    return DType(name, bits, kind, np.dtype(numpy))


pred = _dtype("pred", 1, Kind.PREDICATE, np.bool_)
b8 = _dtype("b8", 8, Kind.BITS, np.uint8)
b16 = _dtype("b16", 16, Kind.BITS, np.uint16)
b32 = _dtype("b32", 32, Kind.BITS, np.uint32)
b64 = _dtype("b64", 64, Kind.BITS, np.uint64)
b128 = _dtype("b128", 128, Kind.BITS, np.dtype([("low", np.uint64), ("high", np.uint64)]))
u8 = _dtype("u8", 8, Kind.UNSIGNED, np.uint8)
u16 = _dtype("u16", 16, Kind.UNSIGNED, np.uint16)
u32 = _dtype("u32", 32, Kind.UNSIGNED, np.uint32)
u64 = _dtype("u64", 64, Kind.UNSIGNED, np.uint64)
s8 = _dtype("s8", 8, Kind.SIGNED, np.int8)
s16 = _dtype("s16", 16, Kind.SIGNED, np.int16)
s32 = _dtype("s32", 32, Kind.SIGNED, np.int32)
s64 = _dtype("s64", 64, Kind.SIGNED, np.int64)
f16 = _dtype("f16", 16, Kind.FLOAT, np.float16)
bf16 = _dtype("bf16", 16, Kind.FLOAT, ml_dtypes.bfloat16)
f32 = _dtype("f32", 32, Kind.FLOAT, np.float32)
tf32 = _dtype("tf32", 32, Kind.FLOAT, np.float32)
f64 = _dtype("f64", 64, Kind.FLOAT, np.float64)
e4m3 = _dtype("e4m3", 8, Kind.FLOAT, ml_dtypes.float8_e4m3fn)
e5m2 = _dtype("e5m2", 8, Kind.FLOAT, ml_dtypes.float8_e5m2)
f16x2 = _dtype("f16x2", 32, Kind.FLOAT, np.uint32)
bf16x2 = _dtype("bf16x2", 32, Kind.FLOAT, np.uint32)
e4m3x2 = _dtype("e4m3x2", 16, Kind.FLOAT, np.uint16)
e5m2x2 = _dtype("e5m2x2", 16, Kind.FLOAT, np.uint16)
e2m1 = _dtype("e2m1", 4, Kind.FLOAT, ml_dtypes.float4_e2m1fn)
e2m3 = _dtype("e2m3", 6, Kind.FLOAT, ml_dtypes.float6_e2m3fn)
e3m2 = _dtype("e3m2", 6, Kind.FLOAT, ml_dtypes.float6_e3m2fn)
ue8m0 = _dtype("ue8m0", 8, Kind.FLOAT, ml_dtypes.float8_e8m0fnu)
ue4m3 = _dtype("ue4m3", 8, Kind.FLOAT, ml_dtypes.float8_e4m3fn)
e2m1x2 = _dtype("e2m1x2", 8, Kind.FLOAT, np.uint8)
e2m3x2 = _dtype("e2m3x2", 16, Kind.FLOAT, np.uint16)
e3m2x2 = _dtype("e3m2x2", 16, Kind.FLOAT, np.uint16)
ue8m0x2 = _dtype("ue8m0x2", 16, Kind.FLOAT, np.uint16)
e2m1x4 = _dtype("e2m1x4", 16, Kind.FLOAT, np.uint16)
e2m3x4 = _dtype("e2m3x4", 32, Kind.FLOAT, np.uint32)
e3m2x4 = _dtype("e3m2x4", 32, Kind.FLOAT, np.uint32)
e4m3x4 = _dtype("e4m3x4", 32, Kind.FLOAT, np.uint32)
e5m2x4 = _dtype("e5m2x4", 32, Kind.FLOAT, np.uint32)
f32x2 = _dtype("f32x2", 64, Kind.FLOAT, np.uint64)

ALL: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        pred, b8, b16, b32, b64, b128, u8, u16, u32, u64, s8, s16, s32, s64,
        f16, bf16, f32, tf32, f64, e4m3, e5m2, f16x2, bf16x2, e4m3x2, e5m2x2,
        e2m1, e2m3, e3m2, ue8m0, ue4m3, e2m1x2, e2m3x2, e3m2x2, ue8m0x2, e2m1x4, e2m3x4, e3m2x4, e4m3x4, e5m2x4, f32x2,
    )
}  # fmt: skip
"""All types by PTX name."""

_FRAMEWORK_NAMES = {
    "bool": pred,
    "uint8": u8, "uint16": u16, "uint32": u32, "uint64": u64,
    "int8": s8, "int16": s16, "int32": s32, "int64": s64,
    "float16": f16, "bfloat16": bf16, "float32": f32, "float64": f64,
    "float8_e4m3fn": e4m3, "float8_e5m2": e5m2,
    "float8_e8m0fnu": ue8m0, "float6_e2m3fn": e2m3, "float6_e3m2fn": e3m2, "float4_e2m1fn": e2m1,
}  # fmt: skip
OF_ARRAYS = tuple(dict.fromkeys(_FRAMEWORK_NAMES.values()))
"""The types that arrays of a framework can have."""


def of(value: object) -> DType:
    """The DType of a user's description.

    Accepts a DType, a PTX or framework name ("bf16", "bfloat16"), a NumPy or ml_dtypes dtype, a torch dtype, a
    JAX scalar type. Raises ArgumentTypeError for anything else.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in ALL:
        return ALL[value]
    text = value if isinstance(value, str) else str(value)
    name = text.removeprefix("torch.")
    if name in _FRAMEWORK_NAMES:
        return _FRAMEWORK_NAMES[name]
    letter = isinstance(value, str) and len(value) < 2  # NumPy has a type for nearly every letter
    try:
        name = "" if value is None or letter else np.dtype(value).name  # type: ignore[call-overload]
    except (TypeError, ValueError):
        name = ""
    if name in _FRAMEWORK_NAMES:
        return _FRAMEWORK_NAMES[name]
    raise ArgumentTypeError(
        f"{value!r} is not a type a kernel can use",
        expected=f"one of {', '.join(ALL)}, or its NumPy, torch or JAX equivalent",
        got=repr(value),
    )


def torch_name(dtype: DType) -> str:
    """The name of the torch dtype with the same bytes (`torch.<name>`); JAX's `jnp.<name>` is the same word."""
    for name, candidate in _FRAMEWORK_NAMES.items():
        if candidate is dtype:
            return name
    same_width = {8: "uint8", 16: "int16", 32: "float32" if dtype is tf32 else "int32", 64: "int64"}
    return same_width[dtype.bits]
