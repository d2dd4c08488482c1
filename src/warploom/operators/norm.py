"""`rms_norm`: rows divided by their root mean square, for 16-bit floats. The kernel is `kernels.rms_norm`."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from numbers import Real
from typing import Any

from ..annotated import shown
from ..errors import ArgumentError, ArgumentTypeError
from ..isa.dtypes import DType, bf16, f16
from ..kernels.rms_norm import MOST_CHUNKS, PIECE, WARP, WARPS, build, shape_of
from ..runtime.arrays import given_back, view
from ..runtime.launch_cache import LaunchCache
from ..runtime.program import Program
from .binding import Binding
from .execute import launch
from .outputs import check_apart, check_output
from .views import new_array

MOST_COLUMNS = MOST_CHUNKS * WARPS * WARP * PIECE
CACHE = LaunchCache()
"""The launches of `rms_norm`, by the numbers among its arguments."""


def rms_norm(
    x: Any, weight: Any, eps: float = 1e-6, *, out: Any = None, round_first: bool = False, centred: bool = False,
    unit_offset: bool = False, residual: Any = None,
) -> Any:  # fmt: skip
    """x / sqrt(mean(x²) + eps) * weight, over the last dimension, plus a residual if there is one, in one kernel.

    Args:
        x: (…, C), bf16 or f16, contiguous; C a multiple of 8, at most 16384.
        weight: (C,), x's type.
        eps: a number added to the mean of the squares.
        out: (…, C), x's type and shape.
        round_first: round the quotient to x's type before multiplying it by the weight, as Hugging Face language models
            do; otherwise the result is rounded once, as in `torch.nn.functional.rms_norm`.
        centred: subtract the mean of x first, which gives a layer norm without bias.
        unit_offset: use weight + 1 as the factor.
        residual: (…, C), x's type and shape, contiguous. It is added to the rounded result, and the sum is rounded.

    CUDA arrays run on their GPU, on the caller's stream; NumPy arrays and CPU tensors are emulated. No gradient.
    Raises ArgumentError for sizes, ArgumentTypeError for types.
    """
    flags = round_first, centred, unit_offset
    if out is None and (found := norm_again(x, weight, eps, *flags, residual)) is not None:
        return found
    tensors = {"x": x, "weight": weight} | ({} if residual is None else {"residual": residual})
    static = eps, *flags, residual is None
    try:
        outs = () if out is None else (out,)
        made = CACHE.again(static, tuple(tensors.values()), outs, form=_form(x, weight, eps, *flags, residual))
        if made is not None:
            return made[0]
    except (AttributeError, TypeError):  # not torch tensors
        pass
    if unfit := why_not(x, weight, residual):
        raise unfit
    if not isinstance(eps, Real) or not 0 <= eps < math.inf:
        raise ArgumentError("`eps` is not a number of at least 0", got=shown(eps))
    shape = tuple(x.shape)
    seen = view(x, "x")
    if out is not None:
        given = check_output(view(out, "out"), "out", shape, seen.dtype)
        check_apart(given, "out", ((name, view(each, name)) for name, each in tensors.items()))
        if not given.contiguous:
            raise ArgumentError("`out` is not contiguous", expected="rows without gaps", got=given.strides,
                                code="wrong-layout")  # fmt: skip
    if 0 in shape:
        return given_back(new_array(seen, shape, seen.dtype), [seen]) if out is None else out
    rows = math.prod(shape[:-1]), shape[-1]
    result = new_array(seen, shape, seen.dtype) if out is None else out
    flat = {name: view(each if name == "weight" else each.reshape(rows), name) for name, each in tensors.items()}
    target = replace(view(result.reshape(rows), "out"), writable=True)
    bound = Binding((*flat.values(), target), (*flat, "out"), {"EPS": float(eps)})
    program = _program(seen.dtype, *shape_of(rows[1]), *map(bool, flags), residual is not None)
    launched = launch(program, bound)
    if launched is not None and all(flat[name].pointer == view(each, name).pointer for name, each in tensors.items()):
        CACHE.remember(static, tensors, {"out": result}, [launched])  # nothing was copied
    return given_back(result, [seen]) if out is None else out


def _form(
    x: Any, weight: Any, eps: float, round_first: bool, centred: bool, unit_offset: bool, residual: Any
) -> tuple[Any, ...]:
    """Everything that a launch depends on except what a guard checks."""
    added = None if residual is None else residual.nbytes
    return eps, round_first, centred, unit_offset, x.nbytes, weight.nbytes, added


def norm_again(
    x: Any, weight: Any, eps: float, round_first: bool, centred: bool, unit_offset: bool, residual: Any = None
) -> Any:
    """The result of `rms_norm` if it has computed such a call before, which a guard of the tensors decides; or None."""
    try:
        given = (x, weight) if residual is None else (x, weight, residual)
        made = CACHE.fresh(_form(x, weight, eps, round_first, centred, unit_offset, residual), given)
    except (AttributeError, RuntimeError, TypeError):  # not torch tensors
        return None
    return None if made is None else made[0]


def why_not(x: Any, weight: Any, residual: Any = None) -> ArgumentError | ArgumentTypeError | None:
    """Why the kernel does not support these arrays, as the error that `rms_norm` raises."""
    seen, factors = view(x, "x"), view(weight, "weight")
    if seen.dtype not in (bf16, f16) or factors.dtype is not seen.dtype:
        return ArgumentTypeError("rms_norm takes 16-bit floats of one type", expected="bf16 or f16, twice",
                                 got=f"{seen.describe()} and {factors.describe()}")  # fmt: skip
    columns = seen.shape[-1] if seen.shape else 0
    if factors.shape != (columns,):
        return ArgumentError("`weight` has the wrong shape", expected=(columns,), got=factors.shape, code="wrong-shape")
    if columns % PIECE or not 0 < columns <= MOST_COLUMNS:
        return ArgumentError("rms_norm does not support this row length",
                             expected=f"a multiple of {PIECE} to {MOST_COLUMNS}", got=columns)  # fmt: skip
    if residual is not None:
        addend = view(residual, "residual")
        if addend.dtype is not seen.dtype:
            return ArgumentTypeError("`residual` has another type than `x`", expected=seen.dtype.name,
                                     got=addend.describe(), code="wrong-type")  # fmt: skip
        if addend.shape != seen.shape:
            return ArgumentError("`residual` has the wrong shape", expected=seen.shape, got=addend.shape,
                                 code="wrong-shape")  # fmt: skip
    return None


@lru_cache(maxsize=64)
def _program(
    dtype: DType, warps: int, chunks: int, rounded: bool, centred: bool, unit_offset: bool, added: bool
) -> Program:
    return build(dtype, warps, chunks, rounded, centred, unit_offset, added).program()
