"""`grouped_matmul`: rows of A in groups, each group with a matrix of its own, in one launch (mixture of experts).

Two ways to say which rows are whose, as `torch._grouped_mm` and its peers have them:

    contiguous   a (Rows, K), offsets (Groups,): rows up to offsets[g] that no earlier group has are group g's
    masked       a (Groups, Room, K), sizes (Groups,): the first sizes[g] rows of a[g] are group g's

Offsets and sizes lie on the GPU and are read there: nothing waits for them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..isa import dtypes
from ..isa.dtypes import s32, s64
from ..runtime import on_cpu, on_gpu
from ..runtime.arrays import ArrayView, view
from ..runtime.bind import Shape
from ..runtime.dispatch import Call
from ..runtime.machine import H200
from ..settings import config as settings
from .problem import product_of
from .views import (
    copy_into,
    new_array,
    padded_like,
    restrided,
    rows_addressable,
    rows_storable,
    to_array,
    transposed,
    with_rows,
)

FEW_ROWS = 64
"""Groups of no more rows than this on average get the smaller tile."""


def grouped_matmul(
    a: Any,
    b: Any,
    *,
    offsets: Any = None,
    sizes: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    config: Any = None,
) -> Any:
    """D[rows of g] = A[rows of g] B[g], for every group g, in one launch.

    Args:
        a: (Rows, K) with `offsets`, (Groups, Room, K) with `sizes`.
        b: (Groups, K, N), each matrix contiguous along k: a weight stored (Groups, N, K) is passed as w.mT.
        offsets: (Groups,) s32, where each group ends; ascending, at most Rows.
        sizes: (Groups,) s32, how many rows of each group's room are filled.
        out: (Rows, N) or (Groups, Room, N). Rows of no group are not written.
        out_dtype: as matmul's.
        config: a configuration of kernels.hopper.grouped.

    bf16, f16, e4m3 and e5m2, s8, f32 as tf32. Raises ArgumentError, ArgumentTypeError.
    """
    left, right = view(a, "a"), view(b, "b")
    if (offsets is None) == (sizes is None):
        raise ArgumentError("grouped_matmul takes either offsets= or sizes=", expected="one of them")
    rank = 2 if sizes is None else 3
    if len(left.shape) != rank or len(right.shape) != 3:
        form = "(Rows, K)" if rank == 2 else "(Groups, Room, K)"
        raise ArgumentError(
            "the operands have other ranks", expected=f"a {form}, b (Groups, K, N)", got=f"{left.shape}, {right.shape}"
        )
    groups, k, n = right.shape
    if left.shape[-1] != k:
        raise ArgumentError(
            "the inner sizes of `a` and `b` differ",
            expected=f"b of shape ({groups}, {left.shape[-1]}, N)",
            got=right.shape,
            hint="a weight stored (Groups, N, K) is passed as w.mT",
        )  # fmt: skip
    wanted = None if out_dtype is None else dtypes.of(out_dtype)
    product = product_of(left.dtype, right.dtype, wanted or (view(out, "out").dtype if out is not None else None))
    marks = view(offsets if sizes is None else sizes, "offsets" if sizes is None else "sizes")
    _check_marks(marks, "offsets" if sizes is None else "sizes", groups)
    if len({(each.device, each.index) for each in (left, right, marks)}) > 1:
        raise ArgumentError(
            "the arguments of grouped_matmul are on different devices",
            expected="all on one GPU, or all on the CPU",
            got=f"`a` on {left.place}, `b` on {right.place}, the groups on {marks.place}",
        )
    room = 0 if sizes is None else left.shape[1]
    if sizes is not None and left.shape[0] != groups:
        raise ArgumentError("`a` has another number of groups than `b`", expected=groups, got=left.shape[0])
    shape = (*left.shape[:-1], n)
    result = out if out is not None else _zeros(left, shape, product.out)
    target = replace(view(result, "out"), writable=True)
    if target.shape != shape or target.dtype is not product.out:
        raise ArgumentError(
            "`out` has the wrong shape or type", expected=f"{shape} {product.out}", got=target.describe()
        )
    if 0 in (*shape, k, groups):
        return result
    begins, ends = _limits(marks, groups, room)
    from ..kernels.hopper import grouped as kernels

    rows = left.size // k
    chosen = config or (kernels.SMALL_GROUPS if rows <= groups * FEW_ROWS else kernels.CONFIG)
    kernel = kernels.build(product, chosen)
    operand = _rows(restrided(left, (rows, k), left.strides[-2:]) if rank == 2 else _flat(left, "a"), "a")
    weights = _rows(_flat(transposed(right), "b"), "b")
    stored = target if rank == 2 else _flat(target, "out")
    if not rows_storable(stored):
        raise ArgumentError(
            "the rows of the result are no whole 16-byte pieces, which are what TMA stores",
            expected=f"N a multiple of {16 // product.out.bytes}", got=f"N = {n}",
        )  # fmt: skip
    arrays = (operand, weights, begins, ends, with_rows(stored))
    call = Call(kernel.program(), arrays, {})
    if left.device == "cpu":
        options = settings.emulator
        tiles = (rows // chosen.tile_m + groups) * -(-n // chosen.tile_n)
        report = on_cpu.run(
            call, list(arrays), Shape(), H200(sms=min(132, tiles)), check=options.check, schedule=options.schedule,
            seed=options.seed, max_steps=None,
        )  # fmt: skip
        if options.check:
            report.raise_on_findings()
    else:
        on_gpu.run(call, list(arrays), Shape(), None)
    return result


def _check_marks(marks: ArrayView, name: str, groups: int) -> None:
    if marks.dtype not in (s32, s64):
        raise ArgumentTypeError(f"`{name}` has the wrong type", expected="s32", got=marks.describe())
    if marks.shape != (groups,):
        raise ArgumentError(
            f"`{name}` has another length than there are groups", expected=f"({groups},)", got=marks.shape
        )
    if (
        marks.device == "cpu"
        and marks.host is not None
        and np.any(np.diff(marks.host, prepend=0) < 0)
        and name == "offsets"
    ):
        raise ArgumentError("`offsets` descend", expected="where each group ends, ascending", got=marks.host.tolist())


def _limits(marks: ArrayView, groups: int, room: int) -> tuple[ArrayView, ArrayView]:
    """First row of each group and the one behind its last, s32, made where the marks lie."""
    if marks.host is not None:
        values = marks.host.astype(np.int32)
        if room:
            begins = np.arange(groups, dtype=np.int32) * room
            return view(begins, "begins"), view((begins + np.minimum(values, room)).astype(np.int32), "ends")
        return view(np.concatenate([[0], values[:-1]]).astype(np.int32), "begins"), view(values, "ends")
    import torch

    ends = to_array(marks).to(torch.int32)
    if room:
        begins = torch.arange(groups, dtype=torch.int32, device=ends.device) * room
        ends = begins + ends.clamp(max=room)
    else:
        begins = torch.nn.functional.pad(ends[:-1], (1, 0))
    return view(begins, "begins"), view(ends.contiguous(), "ends")


def _flat(array: ArrayView, name: str) -> ArrayView:
    """(Groups, R, C) as (Groups * R, C), copied where the groups have gaps between them."""
    groups, rows, columns = array.shape
    outer, inner, last = array.strides
    if groups == 1 or outer == rows * inner:
        return restrided(array, (groups * rows, columns), (inner, last))
    if name == "out":
        raise ArgumentError(
            "the groups of `out` have gaps between them", expected="a contiguous array", got=array.strides
        )
    copy = replace(view(new_array(array, array.shape, array.dtype), name), writable=True)
    copy_into(copy, array)
    return restrided(copy, (groups * rows, columns), copy.strides[-2:])


def _rows(array: ArrayView, name: str) -> ArrayView:
    """A matrix that TMA can read, copied where it cannot."""
    if rows_addressable(array):
        return with_rows(array)
    copy = padded_like(array, array.shape, array.dtype)
    copy_into(copy, array)
    return with_rows(copy)


def _zeros(model: ArrayView, shape: tuple[int, ...], dtype: Any) -> Any:
    """A result whose rows of no group are zeros."""
    result = new_array(model, shape, dtype)
    made = replace(view(result, "out"), writable=True)
    (made.host if made.host is not None else to_array(made))[...] = 0
    return result
