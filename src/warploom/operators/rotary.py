"""`rotary_embedding`: queries and keys rotated by their positions, 16-bit floats. The kernel is `kernels.rotary`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..errors import ArgumentError, ArgumentTypeError
from ..isa.dtypes import DType, bf16, f16
from ..kernels.rms_norm import PIECE
from ..kernels.rotary import build
from ..runtime.arrays import ArrayView, given_back, view
from ..runtime.launch_cache import LaunchCache
from ..runtime.program import Program
from .binding import Binding
from .execute import launch
from .views import new_array, restrided

CACHE = LaunchCache()
"""The launches of `rotary_embedding`: no number but the shapes decides them."""


def rotary_embedding(q: Any, k: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
    """x * cos + rotate_half(x) * sin for queries and keys, in one kernel; rotate_half(x1, x2) = (-x2, x1).

    Args:
        q, k: (B, S, H, D) and (B, S, G, D), bf16 or f16. The heads of a token must be adjacent; tokens may be apart,
            as in the result of one product for queries, keys and values.
        cos, sin: (B, S, R), or (1, S, R) for all sequences; q's type, contiguous. Elements of a head after the first R
            are copied. D and R are multiples of 16.

    Returns new arrays of q's and k's shapes, contiguous. Products and sums are in f32, rounded once. CUDA arrays run on
    their GPU, on the caller's stream; NumPy arrays and CPU tensors are emulated. No gradient.
    Raises ArgumentError for sizes and strides, ArgumentTypeError for types.
    """
    given = q, k, cos, sin
    if (found := embedded_again(*given)) is not None:
        return found
    if unfit := why_not(*given):
        raise unfit
    seen = [view(each, name) for each, name in zip(given, ("q", "k", "cos", "sin"), strict=True)]
    (_, _, heads, dim), key_heads, rotary_dim = q.shape, k.shape[2], cos.shape[2]
    results = [new_array(each, each.shape, each.dtype) for each in seen[:2]]
    if 0 in q.shape:
        return given_back(results[0], seen), given_back(results[1], seen)
    outs = [replace(view(each, "out"), writable=True) for each in results]
    widths = heads * dim, key_heads * dim, rotary_dim, rotary_dim, heads * dim, key_heads * dim
    flat = tuple(_rows(each, width) for each, width in zip((*seen, *outs), widths, strict=True))
    names = ("q", "k", "cos", "sin", "new q", "new k")
    program = _program(seen[0].dtype, heads, key_heads, dim, rotary_dim)
    launched = launch(program, Binding(flat, names, {}))
    if launched is not None:
        tensors = {"q": q, "k": k, "cos": cos, "sin": sin}
        CACHE.remember("rotary", tensors, {"new q": results[0], "new k": results[1]}, [launched])
    return given_back(results[0], seen), given_back(results[1], seen)


def embedded_again(q: Any, k: Any, cos: Any, sin: Any) -> tuple[Any, Any] | None:
    """The results of `rotary_embedding` if it has computed such a call before, which a guard of the tensors decides."""
    given = q, k, cos, sin
    try:
        form = q.nbytes, k.nbytes, cos.nbytes
        made = CACHE.fresh(form, given) or CACHE.again("rotary", given, form=form)
    except (AttributeError, RuntimeError, TypeError):  # not torch tensors
        return None
    return None if made is None else (made[0], made[1])


def why_not(q: Any, k: Any, cos: Any, sin: Any) -> ArgumentError | ArgumentTypeError | None:
    """Why the kernel does not support these arrays, as the error that `rotary_embedding` raises."""
    seen = [view(each, name) for each, name in zip((q, k, cos, sin), ("q", "k", "cos", "sin"), strict=True)]
    dtype = seen[0].dtype
    if dtype not in (bf16, f16) or any(each.dtype is not dtype for each in seen):
        return ArgumentTypeError("rotary_embedding takes 16-bit floats of one type", expected="bf16 or f16, four times",
                                 got=", ".join(each.describe() for each in seen))  # fmt: skip
    shapes = [tuple(each.shape) for each in seen]
    alike = [len(shape) for shape in shapes] == [4, 4, 3, 3] and shapes[2] == shapes[3]
    if not alike or shapes[0][:2] != shapes[1][:2] or shapes[0][3] != shapes[1][3] or (
        shapes[2][:2] not in (shapes[0][:2], (1, shapes[0][1]))
    ):  # fmt: skip
        return ArgumentError("shapes of rotary_embedding do not agree", got=shapes, code="wrong-shape",
                             expected="q (B, S, H, D), k (B, S, G, D), cos and sin (B or 1, S, R)")  # fmt: skip
    dim, rotary_dim = shapes[0][3], shapes[2][2]
    if dim % (2 * PIECE) or rotary_dim % (2 * PIECE) or not 0 < rotary_dim <= dim:
        return ArgumentError("rotary_embedding does not support this head dimension", got=f"D {dim}, R {rotary_dim}",
                             expected=f"multiples of {2 * PIECE}, R at most D")  # fmt: skip
    if not all(each.contiguous for each in seen[2:]) or not all(map(_adjacent_heads, seen[:2])):
        return ArgumentError("rotary_embedding does not support these strides", code="wrong-layout",
                             expected="the heads of a token adjacent, tokens at one stride, cos and sin contiguous",
                             got=[each.strides for each in seen])  # fmt: skip
    return None


def _adjacent_heads(seen: ArrayView) -> bool:
    """True if an array (B, S, H, D) is rows of H * D elements at one stride that keeps 16 bytes aligned."""
    (batch, rows, heads, dim), (far, apart, head, one) = seen.shape, seen.strides
    unit = seen.dtype.bytes
    if one != unit or (heads > 1 and head != dim * unit) or seen.pointer % 16:
        return False
    step = apart if rows > 1 else far if batch > 1 else heads * dim * unit
    return step % 16 == 0 and step >= heads * dim * unit and not (batch > 1 and rows > 1 and far != rows * apart)


def _rows(seen: ArrayView, width: int) -> ArrayView:
    """Leading dimensions as one: rows of that width."""
    (batch, rows), (far, apart), unit = seen.shape[:2], seen.strides[:2], seen.dtype.bytes
    step = apart if rows > 1 else far if batch > 1 else width * unit
    return restrided(seen, (batch * rows, width), (step, unit))


@lru_cache(maxsize=64)
def _program(dtype: DType, heads: int, key_heads: int, dim: int, rotary_dim: int) -> Program:
    return build(dtype, heads, key_heads, dim, rotary_dim).program()
