"""D = (A scaled)·(B scaled) + C of one tcgen05.mma with block scaling, from raw bits to raw bits.

Each row of A and of B has one factor for `block` elements of k: UE8M0 (a power of two) or UE4M3 (its sign ignored).

*exact*     factors times elements in float64, one rounding to nearest even.
*hardware*  the published models for the B200 (Xie et al., "MMA-Sim", arXiv 2511.10909); not compared with a chip by us.
            mxf8f6f4: as without scaling, with the exponents of both factors added to that of each product.
            mxf4, mxf4nvf4: the products of 16 elements are summed exactly, times the significands of the two factors,
            at the exponent of the factors alone; then these sums and C are truncated to 35 bits and added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .tensor_core import Product, cut, exponents, rounded, values

_GROUP = 16
"""Elements whose products are summed exactly in the 4-bit kinds."""
_FRACTION = 25
_FRACTION_4BIT = 35
_FLOOR = -133


@dataclass(frozen=True)
class Scaling:
    """The factors: `kind` "ue8m0" or "ue4m3", one for `block` elements of k."""

    kind: str
    block: int


def multiply_scaled(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None,
    kind: Product,
    scaling: Scaling,
    factors_a: np.ndarray,
    factors_b: np.ndarray,
    mode: str = "exact",
) -> np.ndarray:
    """D of one instruction.

    Args:
        a, b: (m, k) and (n, k) codes, one to a byte.
        c: (m, n) f32 bits, or None.
        factors_a, factors_b: (m, k / block) and (n, k / block) codes of the factors.

    Returns (m, n) f32 bits.
    """
    with np.errstate(all="ignore"):
        left, right = values(a, kind.a), values(b, kind.b)
        by_a = np.repeat(values(factors_a, scaling.kind), scaling.block, 1)
        by_b = np.repeat(values(factors_b, scaling.kind), scaling.block, 1)
        third = None if c is None else values(c, "f32")
        plain = (left * by_a) @ (right * by_b).T
        if third is not None:
            plain += third
        if mode != "hardware":
            return rounded(plain, "f32")
        four_bits = kind.a == kind.b == "e2m1" and a.shape[1] >= 64
        if four_bits:
            total = _groups(left, right, third, factors_a, factors_b, scaling)
        else:
            total = _products(left, right, third, kind, by_a, by_b)
        return cut(np.where(np.isfinite(plain), total, plain), "f32")


def _products(
    left: np.ndarray, right: np.ndarray, third: np.ndarray | None, kind: Product, by_a: np.ndarray, by_b: np.ndarray
) -> np.ndarray:
    """The fused sum of products, each with the exponents of its two factors (powers of two)."""
    exponents_a = exponents(left, kind.a) + _exponent_of(by_a)
    exponents_b = exponents(right, kind.b) + _exponent_of(by_b)
    scaled_a, scaled_b = left * by_a, right * by_b
    largest = np.full((left.shape[0], right.shape[0]), _FLOOR, np.int64)
    if third is not None:
        np.maximum(largest, exponents(third, "f32"), out=largest)
    for k in range(left.shape[1]):
        np.maximum(largest, exponents_a[:, None, k] + exponents_b[None, :, k], out=largest)
    shift = _FRACTION - largest
    total = np.zeros(largest.shape) if third is None else np.trunc(np.ldexp(third, shift))
    for k in range(left.shape[1]):
        total += np.trunc(np.ldexp(scaled_a[:, None, k] * scaled_b[None, :, k], shift))
    return np.ldexp(total, -shift)


def _groups(
    left: np.ndarray,
    right: np.ndarray,
    third: np.ndarray | None,
    factors_a: np.ndarray,
    factors_b: np.ndarray,
    scaling: Scaling,
) -> np.ndarray:
    """The sum over groups of 16 products, each group truncated at the exponent of its factors."""
    significand_a, exponent_a = _parts(factors_a, scaling)
    significand_b, exponent_b = _parts(factors_b, scaling)
    steps = left.shape[1] // _GROUP
    largest = np.full((left.shape[0], right.shape[0]), _FLOOR, np.int64)
    if third is not None:
        np.maximum(largest, exponents(third, "f32"), out=largest)
    terms = []
    for step in range(steps):
        at, of = slice(step * _GROUP, (step + 1) * _GROUP), step * _GROUP // scaling.block
        exponent = exponent_a[:, None, of] + exponent_b[None, :, of]
        product = left[:, at] @ right[:, at].T
        product *= significand_a[:, None, of] * significand_b[None, :, of]
        terms.append((product, exponent))
        np.maximum(largest, np.where(product == 0, _FLOOR, exponent), out=largest)
    shift = _FRACTION_4BIT - largest
    total = np.zeros(largest.shape) if third is None else np.trunc(np.ldexp(third, shift))
    for product, exponent in terms:
        total += np.trunc(np.ldexp(product, exponent + shift))
    return np.ldexp(total, -shift)


def _parts(factors: np.ndarray, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
    """Significand and exponent of factors: value = significand * 2^exponent, 1 <= significand < 2 if normal."""
    if scaling.kind == "ue8m0":
        return np.ones(factors.shape), factors.astype(np.int64) - 127
    exponent = np.maximum((factors.astype(np.int64) >> 3 & 15) - 7, -6)
    value = np.nan_to_num(values(factors, scaling.kind))
    return np.ldexp(value, -exponent), exponent


def _exponent_of(powers: np.ndarray) -> np.ndarray:
    """The exponent of powers of two; 0 for NaN."""
    return np.frexp(np.where(np.isfinite(powers), powers, 1.0))[1] - 1
