"""The arithmetic of a tensor core: D = A·B + C of one instruction, from raw bits to raw bits.

Two modes for floating point:

*exact*     the sum in float64, rounded once to D's type per instruction (nearest even). It models no chip; error
            bounds are stated against it.
*hardware*  Hopper's arithmetic, bit for bit: each product and C is truncated to F bits below the largest exponent,
            the terms are summed exactly, and the sum is truncated to D's type. The model is Xie et al., "MMA-Sim"
            (arXiv 2511.10909), with two corrections measured on an H200; tests/golden holds its recordings.

Integer, single-bit and f64 products are the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import ml_dtypes
import numpy as np

from .rounding import fma32, fma64

MODES = ("exact", "hardware")
NO_NUMERICS = "none"
"""Asynchronous operations compute no products and move no data: only their timing is of interest."""
_NAN: dict[str, np.generic] = {"f32": np.uint32(0x7FFFFFFF), "f16": np.uint16(0x7FFF)}
_SMALLEST_EXPONENT = {
    "bf16": -126, "tf32": -126, "f32": -126, "f16": -14, "e4m3": -6, "e5m2": -14, "e2m3": 0, "e3m2": -2, "e2m1": 0,
}  # fmt: skip
_EXPONENT_FLOOR = -133
"""No term is aligned below this exponent: measured, tests/golden/bf16.npz, class "tiny"."""
_NO_EXPONENT = -20000
_FP8 = ("e4m3", "e5m2")
_SMALL: dict[str, type] = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn, "ue8m0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip


@dataclass(frozen=True)
class Product:
    """The kind of multiply-accumulate of an instruction.

    Attributes:
        a, b: element types: bf16 f16 tf32 e4m3 e5m2 e2m3 e3m2 e2m1 f64 s8 u8 s4 u4 b1.
        accumulator: type of C and D: f32, f16, s32, f64.
        unit: "warpgroup", "mma", "mma.sp", "tcgen05" or "volta" (mma.m8n8k4 with f16); the hardware mode differs.
        saturate: clamp an integer sum instead of wrapping it.
        operation: for b1, "and" or "xor"; otherwise "multiply".
        c: type of C if it is not D's (mma.m8n8k4 with f16 C and f32 D).
        passes: number of successive products along k that the hardware performs for one (wmma with tf32: two).
    """

    a: str
    b: str
    accumulator: str
    unit: str = "warpgroup"
    saturate: bool = False
    operation: str = "multiply"
    c: str = ""
    passes: int = 1


def multiply_accumulate(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None, kind: Product, mode: str = "exact"
) -> np.ndarray:
    """D = A·B + C of one instruction, or of many at once (leading dimensions).

    Args:
        a: (..., m, k) raw bits as unsigned integers; elements below 8 bits one to a byte.
        b: (..., n, k) likewise.
        c: (..., m, n) raw bits of the accumulator, or None for D = A·B.
        kind: the types.
        mode: "exact" or "hardware".

    Returns (..., m, n) raw bits (uint16, uint32 or uint64).
    """
    if kind.accumulator == "s32":
        return _integer(a, b, c, kind)
    with np.errstate(all="ignore"):
        if kind.accumulator == "f64":
            return _double(a, b, c)
        if mode == "hardware":
            return _hardware(a, b, c, kind)
        total = np.matmul(values(a, kind.a), values(b, kind.b).swapaxes(-1, -2))
        if c is not None:
            total += values(c, kind.c or kind.accumulator)
        return rounded(total, kind.accumulator)


# -- bits and values -----------------------------------------------------------------------------------------------


def values(bits: np.ndarray, kind: str) -> np.ndarray:
    """The values of raw bits of a floating-point type, as float64."""
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if kind == "f32":
        return bits.view(np.float32).astype(np.float64)
    if kind == "f64":
        return bits.view(np.float64)
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return np.take(_value_table(kind), bits)


@cache
def _value_table(kind: str) -> np.ndarray:
    if kind == "f16":
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    if kind == "ue4m3":  # the sign is ignored
        return np.abs(_value_table("e4m3"))
    count = {"e2m1": 16, "e2m3": 64, "e3m2": 64}.get(kind, 256)
    return np.arange(count, dtype=np.uint8).view(_SMALL[kind]).astype(np.float64)


def rounded(total: np.ndarray, accumulator: str) -> np.ndarray:
    """float64 to the accumulator's type, to nearest even; one NaN, no negative zero, as in hardware."""
    result: np.ndarray = total.astype(np.float32 if accumulator == "f32" else np.float16)
    result += result.dtype.type(0)
    return _one_nan(result, accumulator)


@cache
def _zeros(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


def _one_nan(result: np.ndarray, accumulator: str) -> np.ndarray:
    bits = result.view(_NAN[accumulator].dtype)
    flat = result.reshape(-1).astype(np.float32, copy=False)
    if np.dot(flat, _zeros(flat.size)) != 0:  # true for NaN and infinity only, and cheaper than testing each
        bits[np.isnan(result)] = _NAN[accumulator]
    return bits


# -- integers and doubles ------------------------------------------------------------------------------------------


def _integer(a: np.ndarray, b: np.ndarray, c: np.ndarray | None, kind: Product) -> np.ndarray:
    """Exact sums; they stay below 2^24, so a float32 product holds them."""
    left, right = _whole(a, kind.a), _whole(b, kind.b)
    product = np.matmul(left, right.swapaxes(-1, -2))
    if kind.operation == "xor":
        product = left.sum(-1)[..., :, None] + right.sum(-1)[..., None, :] - 2 * product
    total = product.astype(np.int64)
    if c is not None:
        total += c.view(np.int32)
    if kind.saturate:
        np.clip(total, -(2**31), 2**31 - 1, out=total)
    return total.astype(np.uint32)


def _whole(bits: np.ndarray, kind: str) -> np.ndarray:
    if kind == "s8":
        return bits.view(np.int8).astype(np.float32)
    if kind == "s4":
        return ((bits ^ np.uint8(8)).astype(np.int8) - np.int8(8)).astype(np.float32)
    return bits.astype(np.float32)


def _double(a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
    """Fused multiply-adds in the order of k, each rounded once (PTX ISA 9.7.14.5.14)."""
    left, right = a.view(np.float64), b.view(np.float64)
    total = np.zeros((*left.shape[:-1], right.shape[-2])) if c is None else c.view(np.float64)
    for step in range(left.shape[-1]):
        factors = np.broadcast_arrays(left[..., :, None, step], right[..., None, :, step], total)
        total = fma64(*(part.ravel() for part in factors)).reshape(total.shape)
    return np.ascontiguousarray(total).view(np.uint64)


# -- the hardware's arithmetic -------------------------------------------------------------------------------------


def _hardware(a: np.ndarray, b: np.ndarray, c: np.ndarray | None, kind: Product) -> np.ndarray:
    if kind.passes > 1:
        once, step = replace(kind, passes=1), a.shape[-1] // kind.passes
        for start in range(0, a.shape[-1], step):
            c = _hardware(a[..., start : start + step], b[..., start : start + step], c, once)
        assert c is not None
        return c
    left, right = values(a, kind.a), values(b, kind.b)
    third = None if c is None else values(c, kind.c or kind.accumulator)
    if kind.unit == "volta" and third is not None:
        return _without_tensor_core(left, right, third, kind.accumulator)
    if kind.unit in _HALF and kind.a in _FP8:
        return _fp8_by_halves(left, right, third, kind.accumulator, _HALF[kind.unit])
    fp8 = kind.a in _FP8 and kind.unit != "tcgen05"
    if kind.c and kind.c != kind.accumulator:
        # C and D of different widths: the hardware works on singles, with plain conversions before and after.
        bits = cut(_fused(left, right, third, kind.a, kind.b, "f32", 25), "f32")
        return bits if kind.accumulator == "f32" else _nearest_half(bits)
    total = _fused(left, right, third, kind.a, kind.b, kind.accumulator, 13 if fp8 else 25)
    return cut(total, kind.accumulator, short=fp8)


def _nearest_half(bits: np.ndarray) -> np.ndarray:
    """Bits of singles as bits of f16, to nearest even; zeros keep their sign."""
    half = bits.view(np.float32).astype(np.float16)
    return np.where(np.isnan(half), _NAN["f16"], half.view(np.uint16))


_HALF = {"mma": 2, "mma.sp": 4}
"""Adjacent elements along k that a thread has in half a register: for a sparse A two are stored."""


def _fp8_by_halves(
    left: np.ndarray, right: np.ndarray, third: np.ndarray | None, accumulator: str, half: int
) -> np.ndarray:
    """mma.sync and mma.sp with fp8 on Hopper: ptxas 13.0 turns each into two f16 products, over the lower halves of A's
    registers and then the upper ones (k%4 in {0,1} and {2,3}; for a sparse A k%8 below 4 and the rest), and an ordinary
    addition of C. tests/golden/conformance.npz."""
    first = np.arange(left.shape[-1]) // half % 2 == 0
    second = ~first
    start = cut(_fused(left[..., first], right[..., first], None, "f16", "f16", accumulator, 25), accumulator)
    middle = values(start, accumulator)
    product = _fused(left[..., second], right[..., second], middle, "f16", "f16", accumulator, 25)
    bits = cut(product, accumulator)
    if third is None:
        return bits
    return rounded(values(bits, accumulator) + third, accumulator)


def _without_tensor_core(left: np.ndarray, right: np.ndarray, third: np.ndarray, accumulator: str) -> np.ndarray:
    """The Volta shape on Hopper: single precision fused multiply-adds in the order of k, then an ordinary addition of
    C, all to nearest even. The chain starts from +0, for f16 results from -0: a sum of only -0 stays -0. Determined
    by experiments on an H200 (tests/golden/conformance.npz)."""
    total: np.ndarray = np.full(third.shape, -0.0 if accumulator == "f16" else 0.0, np.float32)
    for k in range(left.shape[-1]):
        total = fma32(left[..., :, None, k], right[..., None, :, k], total)
    bits = (total + third.astype(np.float32)).view(np.uint32)
    return _nearest_half(bits) if accumulator == "f16" else _one_nan(bits.view(np.float32), accumulator)


def exponents(value: np.ndarray, kind: str) -> np.ndarray:
    """The exponent with which each operand is held: that of its leading bit, but at least the type's smallest."""
    _, exponent = np.frexp(value)
    exponent = np.maximum(exponent - 1, _SMALLEST_EXPONENT[kind])
    return np.where(value == 0, _NO_EXPONENT, exponent)


def _fused(
    left: np.ndarray, right: np.ndarray, third: np.ndarray | None, a: str, b: str, c: str, fraction: int
) -> np.ndarray:
    """The fused sum before truncation to D's type: every term is truncated toward zero to `fraction` bits below the
    largest exponent, then added exactly. float64 holds all of it. One step for each k, so that the work stays in cache.
    """
    steps = range(left.shape[-1])
    left_exponents, right_exponents = exponents(left, a), exponents(right, b)
    largest = np.full((*left.shape[:-1], right.shape[-2]), _EXPONENT_FLOOR, left_exponents.dtype)
    if third is not None:
        np.maximum(largest, exponents(third, c), out=largest)
    for k in steps:
        np.maximum(largest, left_exponents[..., :, None, k] + right_exponents[..., None, :, k], out=largest)
    shift = fraction - largest
    scale = np.ldexp(1.0, shift)
    total = np.zeros(largest.shape) if third is None else np.trunc(third * scale)
    for k in steps:
        term = left[..., :, None, k] * right[..., None, :, k]
        term *= scale
        total += np.trunc(term, out=term)
    total = np.ldexp(total, -shift)
    # If the plain sum is finite, so are all its terms; otherwise it is the infinity or NaN of the result.
    if np.isfinite(left).all() and np.isfinite(right).all() and (third is None or np.isfinite(third).all()):
        return total
    plain = np.matmul(left, right.swapaxes(-1, -2))
    if third is not None:
        plain += third
    return np.where(np.isfinite(plain), total, plain)


def cut(total: np.ndarray, accumulator: str, short: bool = False) -> np.ndarray:
    """The sum in D's type: f16 to nearest even; f32 toward zero, and for a warpgroup's fp8 (`short`) to 13 mantissa
    bits. Above the largest f32, rounding toward zero stops there, but from 2^128 up it is infinite: measured."""
    if accumulator == "f16":
        return rounded(total, accumulator)
    result = total.astype(np.float32)
    away = np.abs(result.astype(np.float64)) > np.abs(total)
    result = np.where(away & (np.abs(total) < 2.0**128), np.nextafter(result, np.float32(0)), result)
    result += np.float32(0)
    bits = result.view(np.uint32)
    if short:
        bits &= np.uint32(0xFFFFFC00)
        result = bits.view(np.float32)
        result += np.float32(0)
    return _one_nan(result, "f32")
