"""The launch of the kernel that computes what each query needs: lse2 and delta."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ...isa.dtypes import DType
from ...runtime.arrays import ArrayView, view
from ...runtime.launch_template import Launched
from ...runtime.program import Program
from ...settings import config as settings
from ..kernel_cache import kept
from ..views import copy_into, new_array, restrided
from .named_launch import launch_named
from .request import Request, one_batch


def launch_rows(
    request: Request, given: tuple[ArrayView, ...], made: dict[str, ArrayView], ends: ArrayView | None, packed: int,
    folded: bool, cleared: dict[str, ArrayView],
) -> Launched | None:  # fmt: skip
    """Launch the kernel that computes lse2 and delta from O, dO, the log-sum-exp and, if given, its gradient.

    packed: queries per tile of packed sequences. cleared: parts of the workspace, which it sets to zeros.
    """
    out, grad, *sums = (_contiguous(array) for array in given)
    if request.layout == "thd":
        out, grad = one_batch(out), one_batch(grad)
    heads_first, folder = request.layout == "bhsd", None if out.device == "cpu" else settings.cache_dir
    kind = request.of.dtype, out.shape[-1], heads_first
    program = _rows_program(*kind, packed, len(sums) > 1, folded, tuple(cleared), folder)
    arrays = {"O": out, "dO": grad, "LSE": sums[0], "lse2": made["lse2"], "delta": made["delta"]}
    arrays |= {} if len(sums) == 1 else {"dLSE": sums[1]}
    arrays |= {} if ends is None else {"ends": ends}
    launched = launch_named(program, arrays | cleared, {})
    if launched is None:
        return None
    return replace(launched, arrays=tuple("q_ends" if name == "ends" else name for name in launched.arrays))


@lru_cache(maxsize=16)
def _rows_program(
    dtype: DType, value_dim: int, heads_first: bool, packed: int, logarithms: bool, folded: bool,
    cleared: tuple[str, ...], folder: Path | None,
) -> Program:  # fmt: skip
    def trace() -> Program:
        from ...kernels.hopper.attention_backward_rows import build_rows

        return build_rows(dtype, value_dim, heads_first, packed, logarithms, folded, cleared).program()

    flags = {f"packed {packed}": packed, "logarithms": logarithms, "folded": folded, **dict.fromkeys(cleared, True)}
    name = " ".join([f"attention rows {dtype} {value_dim} {heads_first}", *(flag for flag in flags if flags[flag])])
    return trace() if folder is None else kept(name, trace, folder)


def _contiguous(array: ArrayView) -> ArrayView:
    """Return the array, or a contiguous copy."""
    if array.contiguous:
        width, strides = array.dtype.bytes, []
        for length in reversed(array.shape):
            strides.append(width)
            width *= length
        return restrided(array, array.shape, strides[::-1])
    copy = replace(view(new_array(array, array.shape, array.dtype), "copy"), writable=True)
    copy_into(copy, array)
    return copy
