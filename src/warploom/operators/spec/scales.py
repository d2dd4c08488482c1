"""The scales among the arguments of `matmul`: their kind, and the layout of block scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

from ...errors import ArgumentError, ArgumentTypeError
from ...isa.dtypes import DType, f32, s8
from ...runtime.arrays import ArrayView, view
from ..views import restrided, transposed
from .problem import Problem

SCALES = ("tensor", "row", "block128")
"""Their kinds: one number; one per row of A and column of B; one per block."""
BLOCK = 128
"""Elements of k, and of n, that share one scale of a block-scaled product."""


def as_float(value: Real, name: str) -> float:
    """A number among the arguments. Raises ArgumentError if it is too large for a float."""
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{name}= is too large", expected="a number in the range of a float") from None


def read_scales(
    options: Mapping[str, Any], dtype: DType, m: int, n: int, k: int, precise: bool = False
) -> tuple[ArrayView | None, ArrayView | None, str | None, float]:
    """scale_a and scale_b in the kernel's layout, their kind, and the factor that plain numbers contribute to alpha.

    precise: shapes that fit both rows and blocks (N = 1, K = 128) count as blocks.
    """
    given = {name: options.get(name) for name in ("scale_a", "scale_b")}
    numbers = {name: value for name, value in given.items() if isinstance(value, Real)}
    if all(value is None for value in given.values()):
        return None, None, None, 1.0
    if dtype is s8:
        raise ArgumentTypeError("s8 x s8 gives exact s32 sums, without scales", expected="no scale_a=, scale_b=")
    factor = 1.0
    for name, value in numbers.items():
        factor *= as_float(value, name)
    arrays = {name: view(value, name) for name, value in given.items() if value is not None and name not in numbers}
    if not arrays:
        return None, None, None, factor
    if len(arrays) < 2:
        (missing,) = set(given) - set(arrays)
        (have,) = arrays
        raise ArgumentError(
            f"`{have}` is an array and `{missing}` is not",
            expected="two arrays: one number each, or one per row of a and one per column of b",
            got=f"{missing}={given[missing]!r}",
        )
    for name, array in arrays.items():
        if array.dtype is not f32:
            raise ArgumentTypeError(
                f"`{name}` has the wrong type", expected="f32", got=array.describe(), code="wrong-type"
            )
    a, b = arrays["scale_a"], arrays["scale_b"]
    if a.size == 1 and b.size == 1 and (m, n) != (1, 1) or (a.shape in ((), (1,)) and b.shape in ((), (1,))):
        return restrided(a, (1,), (4,)), restrided(b, (1,), (4,)), "tensor", factor
    blocks = -(-k // BLOCK)
    of_blocks = a.shape == (m, blocks) and b.shape == (blocks, -(-n // BLOCK))
    if of_blocks and precise:
        return a, b, "block128", factor
    if a.shape in ((m, 1), (m,)) and b.shape in ((1, n), (n,)):
        along_b = b.strides[-1]
        return restrided(a, (m,), (a.strides[0],)), restrided(b, (n,), (along_b,)), "row", factor
    if of_blocks:
        return a, b, "block128", factor
    raise ArgumentError(
        "the shapes of `scale_a` and `scale_b` do not match",
        expected=f"one number each; or ({m}, 1) and (1, {n}); or, for blocks of {BLOCK}, ({m}, {blocks}) and "
        f"({blocks}, {-(-n // BLOCK)})",
        got=f"{a.shape} and {b.shape}",
    )


def check_blocks(kind: str | None) -> None:
    """Raise ArgumentError if a kernel with one scale per block cannot take scales of this kind."""
    if kind == "row":
        raise ArgumentError(
            'accumulate="precise" needs one scale for a whole block of 128 columns of `b`',
            expected="scales of the tensors, or of blocks of 128",
            got="one scale per row of a and one per column of b",
        )


def with_majors(problem: Problem, a: ArrayView | None, b: ArrayView | None) -> Problem:
    """A problem with block scales, completed with the memory layout of a (M, K/128) and b (K/128, N/128).

    The kernel reads either layout. Scales that are contiguous in neither are copied into the usual one, and so is one
    number that applies to all blocks.
    """
    if _only_as_it_is(a):
        problem = replace(problem, scale_a_major="K")
    if _only_as_it_is(b):
        problem = replace(problem, scale_b_major="MN")
    return problem


def _only_as_it_is(scales: ArrayView | None) -> bool:
    """True if block scales are contiguous, but would not be after a transposition."""
    return scales is not None and scales.size > 1 and scales.contiguous and not transposed(scales).contiguous
