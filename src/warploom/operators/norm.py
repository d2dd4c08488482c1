"""`rms_norm`: rows divided by their root mean square, for 16-bit floats. The kernel is `kernels.rms_norm`."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..errors import ArgumentError, ArgumentTypeError
from ..isa.dtypes import DType, bf16, f16
from ..kernels.rms_norm import MOST_CHUNKS, PIECE, WARP, WARPS, build, shape_of
from ..runtime.arrays import view
from ..runtime.launch_cache import LaunchCache
from ..runtime.program import Program
from .binding import Binding
from .execute import launch
from .views import new_array

MOST_COLUMNS = MOST_CHUNKS * WARPS * WARP * PIECE
CACHE = LaunchCache()
"""The launches of `rms_norm`, by the numbers among its arguments."""


def rms_norm(
    x: Any, weight: Any, eps: float = 1e-6, *, out: Any = None, round_first: bool = False, centred: bool = False,
    unit_offset: bool = False,
) -> Any:  # fmt: skip
    """x / sqrt(mean(x²) + eps) * weight, over the last dimension, in one kernel.

    Args:
        x: (…, C), bf16 or f16, contiguous; C a multiple of 8, at most 16384.
        weight: (C,), x's type.
        eps: a number added to the mean of the squares.
        out: (…, C), x's type and shape.
        round_first: round the quotient to x's type before multiplying it by the weight, as Hugging Face language models
            do; otherwise the result is rounded once, as in `torch.nn.functional.rms_norm`.
        centred: subtract the mean of x first, which gives a layer norm without bias.
        unit_offset: use weight + 1 as the factor.

    CUDA arrays run on their GPU, on the caller's stream; NumPy arrays and CPU tensors are emulated. No gradient.
    Raises ArgumentError for sizes, ArgumentTypeError for types.
    """
    if out is None and (found := norm_again(x, weight, eps, round_first, centred, unit_offset)) is not None:
        return found
    static = (eps, round_first, centred, unit_offset)
    try:
        outs, form = () if out is None else (out,), (*static, x.shape, weight.shape)
        made = CACHE.again(static, (x, weight), outs, form=form)
        if made is not None:
            return made[0]
    except (AttributeError, TypeError):  # not torch tensors
        pass
    if unfit := why_not(x, weight):
        raise unfit
    shape = tuple(x.shape)
    if out is not None and tuple(out.shape) != shape:
        raise ArgumentError("`out` has the wrong shape", expected=shape, got=tuple(out.shape), code="wrong-shape")
    if 0 in shape:
        return x.copy() if out is None and hasattr(x, "copy") else x if out is None else out
    if out is not None and not view(out, "out").contiguous:
        raise ArgumentError("`out` is not contiguous", expected="rows without gaps", got=view(out, "out").strides,
                            code="wrong-layout")  # fmt: skip
    rows = math.prod(shape[:-1]), shape[-1]
    seen = view(x, "x")
    result = new_array(seen, shape, seen.dtype) if out is None else out
    flat = view(x.reshape(rows), "x")
    bound = Binding(
        (flat, view(weight, "weight"), replace(view(result.reshape(rows), "out"), writable=True)),
        ("x", "weight", "out"), {"EPS": float(eps)},
    )  # fmt: skip
    flags = bool(round_first), bool(centred), bool(unit_offset)
    launched = launch(_program(seen.dtype, *shape_of(rows[1]), *flags), bound)
    if launched is not None and flat.pointer == seen.pointer:  # x was not copied
        CACHE.remember(static, {"x": x, "weight": weight}, {"out": result}, [launched])
    return result


def norm_again(x: Any, weight: Any, eps: float, round_first: bool, centred: bool, unit_offset: bool) -> Any:
    """The result of `rms_norm` if it has computed such a call before, which a guard of the tensors decides; or None."""
    try:
        made = CACHE.fresh((eps, round_first, centred, unit_offset, x.shape, weight.shape), (x, weight))
    except (AttributeError, RuntimeError, TypeError):  # not torch tensors
        return None
    return None if made is None else made[0]


def why_not(x: Any, weight: Any) -> ArgumentError | ArgumentTypeError | None:
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
    return None


@lru_cache(maxsize=64)
def _program(dtype: DType, warps: int, chunks: int, rounded: bool, centred: bool, unit_offset: bool) -> Program:
    return build(dtype, warps, chunks, rounded, centred, unit_offset).program()
