"""`grouped_matmul`: groups of rows of A, each multiplied by its own matrix, in one launch (mixture of experts).

There are two ways to assign rows to groups, as in `torch._grouped_mm` and similar functions:

    contiguous   a (Rows, K), offsets (Groups,): group g has the rows from the end of the previous group to offsets[g]
    masked       a (Groups, MaxRows, K), sizes (Groups,): the first sizes[g] rows of a[g] are group g's

Offsets and sizes are read on the GPU without synchronising; the tile is chosen for the average group (`select`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..isa.dtypes import DType, s32
from ..kernels.blackwell import description as blackwell
from ..kernels.hopper.description import Config
from ..runtime.arrays import ArrayView, given_back, view
from ..runtime.launch_template import Launched
from ..runtime.machine import for_arch
from ..runtime.program import Program
from .binding import Binding
from .dispatch_hook import refuse_gradients
from .execute import launch
from .families import family_of, from_text
from .first_run_check import check_groups, warn_unproven
from .grouped_request import Grouped, read
from .kernel_cache import ready
from .launches import CACHE
from .outputs import check_apart, check_output
from .select import choose
from .spec.gpu import BLACKWELL, HOPPER, check_gpu, emulated, gpu_of
from .views import (
    contiguous,
    copy_into,
    new_array,
    padded_like,
    restrided,
    rows_addressable,
    rows_storable,
    to_array,
    transposed,
    with_rows,
    writable,
)


def grouped_matmul(
    a: Any,
    b: Any,
    *,
    offsets: Any = None,
    sizes: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    bias: Any = None,
    activation: str | None = None,
    config: Any = None,
) -> Any:
    """D[rows of g] = activation(scale_a scale_b (A[rows of g] B[g]) + bias[g]), for every group g, in one launch.

    Args:
        a: (Rows, K) with `offsets`, (Groups, MaxRows, K) with `sizes`.
        b: (Groups, K, N), each matrix contiguous along k: pass a weight stored as (Groups, N, K) as w.mT.
        offsets: (Groups,) s32, the end of each group; ascending, at most Rows.
        sizes: (Groups,) s32, the number of valid rows of each group.
        out: (Rows, N) or (Groups, MaxRows, N). Rows that belong to no group are not written.
        out_dtype: bf16, f16, f32; s32 for s8.
        scale_a, scale_b: f32, one number each; or one per row of `a`, (Rows, 1) or (Groups, MaxRows, 1), and one per
            column of each matrix of `b`, (Groups, 1, N).
        bias: (Groups, N), f32, bf16 or f16.
        activation: as in matmul.
        config: a cooperative or ping-pong configuration of one CTA, or its name; see `kernels.hopper.grouped`,
            `kernels.blackwell`.

    bf16, f16, e4m3 and e5m2, s8, f32 as tf32. Raises ArgumentError, ArgumentTypeError.
    """
    if (offsets is None) == (sizes is None):
        raise ArgumentError("grouped_matmul takes either offsets= or sizes=", expected="one of them")
    what, marks = ("offsets", offsets) if sizes is None else ("sizes", sizes)
    named = {"a": a, "b": b, "marks": marks, "scale_a": scale_a, "scale_b": scale_b, "bias": bias}
    tensors = {name: value for name, value in named.items() if value is not None}
    static = ("grouped", what, out_dtype, activation, config, *tensors)
    if out is not None:
        found = CACHE.again(static, tuple(tensors.values()), (out,))
        if found is not None:
            return out
    if isinstance(config, str):
        config = from_text(config)
    if config is not None and not isinstance(config, (Config, blackwell.Config)):
        raise ArgumentTypeError(
            "config= is not a configuration of a grouped kernel", got=repr(config),
            expected="kernels.hopper.description.Config, or kernels.blackwell.description.Config",
        )  # fmt: skip
    refuse_gradients(tensors)
    group = read(tensors, what, out, out_dtype, activation)
    result = out if out is not None else _zeros(group.views["a"], group.shape, group.product.out)
    target = view(result, "out")
    if out is None:
        target = replace(target, writable=True)
    else:
        check_output(target, "out", group.shape, group.product.out)
        check_apart(target, "out", group.views.items())
    if group.k == 0 and 0 not in group.shape and (out is not None or bias is not None):
        raise ArgumentError("a grouped product with K = 0 supports no epilogue", expected="no out= and no bias=")
    if 0 in (*group.shape, group.k, group.groups):
        return given_back(result, [group.views["a"]]) if out is None else out
    problem, on_cpu, index = group.problem, group.views["a"].device == "cpu", group.views["a"].index
    gpu = emulated("" if config is None else family_of(config, problem).arch) if on_cpu else gpu_of(index)
    check_gpu(gpu, "grouped_matmul", HOPPER, BLACKWELL)
    choice, program = ready(problem, gpu, choose(problem, gpu, config), None if on_cpu else index)
    family = family_of(choice.config, problem)
    warn_unproven(family)
    launched = run(group, target, choice.config, program)
    if family.unproven:
        check_groups(group, choice.config, target)
    if launched is not None and out is not None:
        CACHE.remember(static, tensors, {"out": result}, [launched])
    return given_back(result, [group.views["a"]]) if out is None else out


def run(group: Grouped, target: ArrayView, config: Any, program: Program) -> Launched | None:
    """Launch once. Returns what is needed to repeat the launch, on a GPU and if nothing was copied."""
    views, rank = group.views, len(group.shape)
    on_cpu = views["a"].device == "cpu"
    left, right = views["a"], transposed(views["b"])
    flat = restrided(left, (group.rows, group.k), left.strides[-2:]) if rank == 2 else _flat(left, "a")
    stored = target if rank == 2 else _flat(target, "out")
    if not rows_storable(stored):
        raise ArgumentError(
            "the rows of the result are not multiples of 16 bytes, which a TMA store needs",
            expected=f"N a multiple of {16 // group.product.out.bytes}, rows at multiples of 16 bytes",
            got=f"N = {group.n}, strides {target.strides} bytes",
        )
    found: dict[str, tuple[ArrayView, ArrayView]] = {
        "a": (_rows(flat, "a"), left),
        "b": (_rows(_flat(right, "b"), "b"), right),
        "marks": (_narrow(views["marks"], s32), views["marks"]),
        "out": (with_rows(stored), target),
    }
    for name in ("scale_a", "scale_b", "bias"):
        if name in views:
            found[name] = _line(views[name], name), views[name]
    names = tuple({"D": "out"}.get(spec.name, spec.name.lower()) for spec in program.arrays)
    bound = Binding(tuple(found[name][0] for name in names), names, {})
    tiles = (group.rows // config.tile_m + group.groups) * -(-group.n // config.tile_n)
    whole = for_arch(program.arch)
    launched = launch(program, bound, machine=replace(whole, sms=min(whole.sms, tiles)) if on_cpu else None)
    return launched if all(made.pointer == source.pointer for made, source in found.values()) else None


def _narrow(array: ArrayView, dtype: DType) -> ArrayView:
    """The offsets or sizes, contiguous, in the type that the kernel reads."""
    if array.dtype is dtype and array.contiguous:
        return array
    copy = writable(array, array.shape, dtype, "marks")
    if array.host is not None and copy.host is not None:
        copy.host[...] = array.host.astype(np.int32)
    else:
        to_array(copy).copy_(to_array(array))
    return copy


def _line(array: ArrayView, name: str) -> ArrayView:
    """All elements in one dimension, in index order."""
    array = contiguous(array, name)
    return restrided(array, (array.size,), (array.dtype.bytes,))


def _flat(array: ArrayView, name: str) -> ArrayView:
    """(Groups, R, C) as (Groups * R, C), copied if there are gaps between the groups."""
    groups, rows, columns = array.shape
    outer, inner, last = array.strides
    if groups == 1 or outer == rows * inner:
        return restrided(array, (groups * rows, columns), (inner, last))
    if name == "out":
        raise ArgumentError(
            "the groups of `out` have gaps between them", expected="a contiguous array", got=array.strides
        )
    copy = writable(array, array.shape, array.dtype, name)
    copy_into(copy, array)
    return restrided(copy, (groups * rows, columns), copy.strides[-2:])


def _rows(array: ArrayView, name: str) -> ArrayView:
    """A matrix that TMA can read, copied if necessary."""
    if rows_addressable(array):
        return with_rows(array)
    copy = padded_like(array, array.shape, array.dtype)
    copy_into(copy, array)
    return with_rows(copy)


def _zeros(model: ArrayView, shape: tuple[int, ...], dtype: Any) -> Any:
    """A result in which rows that belong to no group are zero."""
    result = new_array(model, shape, dtype)
    made = replace(view(result, "out"), writable=True)
    (made.host if made.host is not None else to_array(made))[...] = 0
    return result
