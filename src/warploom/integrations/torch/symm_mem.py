"""PyTorch: products that communicate under the names and with the arguments of `torch.ops.symm_mem`.

    torch.ops.symm_mem.fused_all_gather_matmul(a, [b], 0, group)               # theirs
    warploom.torch.distributed.fused_all_gather_matmul(a, [b], 0, group)       # ours: the same meaning

Under `torch.compile` they are operators of the same schema (`warploom::…`). If a gradient is wanted, the first two
operators use `distributed.all_gather_matmul` and `matmul_reduce_scatter`, which have gradients; an A that is returned
or multiplied again is then gathered by the group's all-gather. 8-bit products have no gradient and raise an error.
Cases without a kernel are refused: gathering or scattering along the last dimension, exact sums of 8-bit products, and
scales of results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError, ArgumentTypeError
from ...operators.calls import matmul
from ...operators.dispatch_hook import refuse_gradients
from ..torch import product
from .custom_operator import NAMESPACE, define
from .peer_epilogue import PLAIN, PeerEpilogue
from .peer_launch import LAUNCHES, by_operator, name_of
from .symmetric import Group, group_of, rows_of_all

__all__ = [
    "fused_all_gather_matmul", "fused_all_gather_scaled_matmul", "fused_matmul_reduce_scatter",
    "fused_scaled_matmul_reduce_scatter",
]  # fmt: skip

SCHEMAS = {
    "fused_all_gather_matmul": "(Tensor A, Tensor[] Bs, int gather_dim, str group_name, *, bool return_A=True)"
    " -> (Tensor?, Tensor[])",
    "fused_matmul_reduce_scatter": "(Tensor A, Tensor B, str reduce_op, int scatter_dim, str group_name) -> Tensor",
    "fused_all_gather_scaled_matmul": "(Tensor A, Tensor[] Bs, Tensor A_scale, Tensor[] B_scales, int gather_dim,"
    " str group_name, Tensor?[] biases, Tensor?[] result_scales, ScalarType?[] out_dtypes, bool[] use_fast_accum)"
    " -> (Tensor, Tensor[])",
    "fused_scaled_matmul_reduce_scatter": "(Tensor A, Tensor B, Tensor A_scale, Tensor B_scale, str reduce_op,"
    " int orig_scatter_dim, int scatter_dim_after_maybe_reshape, str group_name, SymInt[]? output_shape,"
    " Tensor? bias=None, Tensor? result_scale=None, ScalarType? out_dtype=None, bool use_fast_accum=False) -> Tensor",
}
"""The schemas of PyTorch's operators."""
Gathered = tuple[Tensor | None, list[Tensor]]
REDUCTIONS = ("sum", "avg")


# -- calls ---------------------------------------------------------------------------------------------------------


def fused_all_gather_matmul(
    A: Tensor, Bs: Sequence[Tensor], gather_dim: int, group_name: Any, *, return_A: bool = True
) -> Gathered:
    """A of all ranks, gathered along a dimension, and its product with each of Bs.

    The first product's kernel gathers. With several Bs, or `return_A`, it also keeps the gathered rows, and every
    further product is a plain one.

    Args:
        A: (..., K), bf16 or f16. Copied if A.movedim(gather_dim, 0) is not contiguous.
        Bs: (K, N) each, contiguous or the transpose of a contiguous weight.
        gather_dim: a dimension from 0, not the last.
        group_name: the process group or its name.

    Returns the gathered A, or None, and a list of products. Raises ArgumentError, ArgumentTypeError, PeerError.
    """
    Bs, name = _list("Bs", Bs), name_of(group_name)
    if _gradient_wanted(A, *Bs):
        return _gather(A, Bs, gather_dim, name, return_A=return_A, gradient=True)
    return _call("fused_all_gather_matmul", A, Bs, gather_dim, name, return_A=return_A)


def fused_matmul_reduce_scatter(A: Tensor, B: Tensor, reduce_op: str, scatter_dim: int, group_name: Any) -> Tensor:
    """This rank's part of the sum ("sum") or the mean ("avg") over all ranks of A B, scattered along a dimension.

    Args: see `fused_all_gather_matmul`. Raises ArgumentError, ArgumentTypeError, PeerError.
    """
    name = name_of(group_name)
    if _gradient_wanted(A, B):
        return _scatter(A, B, reduce_op, scatter_dim, name, gradient=True)
    return _call("fused_matmul_reduce_scatter", A, B, reduce_op, scatter_dim, name)


def fused_all_gather_scaled_matmul(
    A: Tensor, Bs: Sequence[Tensor], A_scale: Tensor, B_scales: Sequence[Tensor], gather_dim: int, group_name: Any,
    biases: Sequence[Tensor | None], result_scales: Sequence[Tensor | None],
    out_dtypes: Sequence[torch.dtype | None], use_fast_accum: Sequence[bool],
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """`fused_all_gather_matmul` with 8-bit operands and scales.

    Args:
        A_scale: f32: one number; or (..., 1), one for each row: of this rank's rows (sent with them) or of all rows.
        B_scales: f32: one number each; (1, N) if A has one scale per row.
        biases: (N,) or None each. result_scales: None each. out_dtypes: bf16, f16 or None (bf16) each.
        use_fast_accum: True each: the tensor core accumulates throughout.

    Raises ArgumentError, ArgumentTypeError, PeerError.
    """
    for name, some in (("B_scales", B_scales), ("biases", biases), ("result_scales", result_scales),
                       ("out_dtypes", out_dtypes), ("use_fast_accum", use_fast_accum)):  # fmt: skip
        if len(_list(name, some)) != len(_list("Bs", Bs)):
            raise ArgumentError(f"`{name}` and `Bs` differ in length", expected=len(Bs), got=len(some))
    refuse_gradients({"A": A, "A_scale": A_scale, **{f"B_scales[{at}]": each for at, each in enumerate(B_scales)}})
    return _call(
        "fused_all_gather_scaled_matmul", A, list(Bs), A_scale, list(B_scales), gather_dim, name_of(group_name),
        list(biases), list(result_scales), list(out_dtypes), list(use_fast_accum),
    )  # fmt: skip


def fused_scaled_matmul_reduce_scatter(
    A: Tensor, B: Tensor, A_scale: Tensor, B_scale: Tensor, reduce_op: str, orig_scatter_dim: int,
    scatter_dim_after_maybe_reshape: int, group_name: Any, output_shape: Sequence[int] | None,
    bias: Tensor | None = None, result_scale: Tensor | None = None, out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """`fused_matmul_reduce_scatter` with 8-bit operands and scales; the bias is added on every rank.

    Args:
        A_scale, B_scale: as in `fused_all_gather_scaled_matmul`, for all rows of A.
        orig_scatter_dim: a dimension of `output_shape` (..., N), the result's; by default A's leading sizes and N.
        scatter_dim_after_maybe_reshape: the same dimension in A; only checked, because the other arguments imply it.
        use_fast_accum: True; the default is refused because exact sums have no kernel.

    Raises ArgumentError, ArgumentTypeError, PeerError.
    """
    refuse_gradients({"A": A, "A_scale": A_scale, "B_scale": B_scale})
    return _call(
        "fused_scaled_matmul_reduce_scatter", A, B, A_scale, B_scale, reduce_op, orig_scatter_dim,
        scatter_dim_after_maybe_reshape, name_of(group_name),
        None if output_shape is None else list(output_shape), bias, result_scale, out_dtype, use_fast_accum,
    )  # fmt: skip


# -- implementations -------------------------------------------------------------------------------------------------


def _gather(
    A: Tensor, Bs: list[Tensor], gather_dim: int, group_name: str, *, return_A: bool = True, gradient: bool = False
) -> Gathered:
    _inner_dimension(A, gather_dim, "gathered")
    return _gathered(group_of(group_name), A, Bs, [PLAIN] * len(Bs), gather_dim, return_A, gradient)


def _gather_scaled(
    A: Tensor, Bs: list[Tensor], A_scale: Tensor, B_scales: list[Tensor], gather_dim: int, group_name: str,
    biases: list[Tensor | None], result_scales: list[Tensor | None], out_dtypes: list[torch.dtype | None],
    use_fast_accum: list[bool],
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    _inner_dimension(A, gather_dim, "gathered")
    for scale, fast in zip(result_scales, use_fast_accum, strict=True):
        _no_kernel(scale, fast)
    known = group_of(group_name)
    if A_scale.numel() > 1:
        A_scale = _flat(A_scale, gather_dim)
        if len(Bs) > 1 and A_scale.shape[0] == prod(A.shape[:-1]):  # further products need the scales of all ranks
            A_scale = rows_of_all(A_scale, group_name)
    ends = [PeerEpilogue(A_scale, *each) for each in zip(B_scales, biases, out_dtypes, strict=True)]
    whole, found = _gathered(known, A, Bs, ends, gather_dim, True)
    assert whole is not None
    return whole, found


def _gathered(
    known: Group, A: Tensor, Bs: list[Tensor], ends: list[PeerEpilogue], dim: int, keep: bool, gradient: bool = False
) -> Gathered:
    """The gathered rows of all ranks, if kept, and their products; gradient: by operators that have gradients."""
    if not Bs:
        raise ArgumentError("there is nothing to multiply by", expected="one B or more", got=0)
    rows, whole = _flat(A, dim), None
    shape = (known.ranks * A.shape[dim], *A.movedim(dim, 0).shape[1:-1])
    if gradient:
        found = [torch.ops.warploom.all_gather_matmul(rows, Bs[0], known.name)]
        if keep or len(Bs) > 1:
            whole = rows_of_all(rows, known.name, autograd=True)
            found += [matmul(whole, b) for b in Bs[1:]]
    else:
        if keep or len(Bs) > 1:
            whole = rows.new_empty(known.ranks * rows.shape[0], rows.shape[1])
        found = [LAUNCHES["all_gather_matmul"](known, rows, Bs[0], end=ends[0], kept=whole)]
        for b, end in zip(Bs[1:], ends[1:], strict=True):
            assert whole is not None
            given = {"scale_a": end.scale_a, "scale_b": end.scale_b, "bias": end.bias}
            options = {name: value for name, value in given.items() if value is not None}
            found.append(product(whole, b, out_dtype=end.out(A), **options))
    back = [each.view(*shape, -1).movedim(0, dim) for each in found]
    return whole.view(*shape, -1).movedim(0, dim) if keep and whole is not None else None, back


def _scatter(
    A: Tensor, B: Tensor, reduce_op: str, scatter_dim: int, group_name: str, *, gradient: bool = False
) -> Tensor:
    _inner_dimension(A, scatter_dim, "scattered")
    return _scattered(group_of(group_name), A, B, reduce_op, scatter_dim, PLAIN, gradient)


def _scatter_scaled(
    A: Tensor, B: Tensor, A_scale: Tensor, B_scale: Tensor, reduce_op: str, orig_scatter_dim: int,
    scatter_dim_after_maybe_reshape: int, group_name: str, output_shape: list[int] | None, bias: Tensor | None = None,
    result_scale: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    _inner_dimension(A, scatter_dim_after_maybe_reshape, "scattered")
    _no_kernel(result_scale, use_fast_accum)
    leading = list(A.shape[:-1]) if output_shape is None else list(output_shape[:-1])
    if prod(leading) != prod(A.shape[:-1]):
        raise ArgumentError(
            "`output_shape` and A differ in rows", expected=f"{prod(A.shape[:-1])} rows", got=output_shape
        )
    A = A.reshape(*leading, A.shape[-1])
    _inner_dimension(A, orig_scatter_dim, "scattered")
    if A_scale.numel() > 1:
        A_scale = _flat(A_scale.reshape(*leading, 1), orig_scatter_dim)
    end = PeerEpilogue(A_scale, B_scale, bias, out_dtype)
    return _scattered(group_of(group_name), A, B, reduce_op, orig_scatter_dim, end)


def _scattered(
    known: Group, A: Tensor, B: Tensor, reduce_op: str, dim: int, end: PeerEpilogue, gradient: bool = False
) -> Tensor:
    """This rank's part of the sum or mean; gradient: by operators that have gradients."""
    if reduce_op not in REDUCTIONS:
        raise ArgumentError("this reduction has no kernel", expected=", ".join(REDUCTIONS), got=repr(reduce_op))
    if A.shape[dim] % known.ranks:
        raise ArgumentError(
            "the rows cannot be scattered evenly", expected=f"a multiple of {known.ranks}, the ranks of the group",
            got=A.shape[dim], code="wrong-shape",
        )  # fmt: skip
    rows, mean = _flat(A, dim), reduce_op == "avg"
    if gradient:
        found = torch.ops.warploom.matmul_reduce_scatter(rows, B, known.name)
        found = found / known.ranks if mean else found
    else:
        found = LAUNCHES["matmul_reduce_scatter"](known, rows, B, end=end, mean=mean)
    shape = (A.shape[dim] // known.ranks, *A.movedim(dim, 0).shape[1:-1])
    return found.view(*shape, -1).movedim(0, dim)


def _gradient_wanted(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in tensors)


def _flat(x: Tensor, dim: int) -> Tensor:
    """`x` as a matrix, with dimension `dim` outermost in the order of its rows."""
    return x.movedim(dim, 0).flatten(0, -2).contiguous()


def _inner_dimension(A: Tensor, dim: int, what: str) -> None:
    if A.ndim < 2 or not 0 <= dim < A.ndim - 1:
        raise ArgumentError(
            f"A cannot be {what} along this dimension: there is no kernel for it",
            expected=f"0 to {A.ndim - 2}, rows of A of shape {tuple(A.shape)}", got=dim, code="wrong-shape",
        )  # fmt: skip


def _no_kernel(result_scale: Tensor | None, fast: bool) -> None:
    if result_scale is not None:
        raise ArgumentError("scales of the result have no kernel across GPUs", expected="None", got="a tensor")
    if not fast:
        raise ArgumentError(
            "exact sums of eight-bit products have no kernel", expected="use_fast_accum=True", got=False,
            consequence="the tensor core keeps fewer bits of a sum than f32",
        )  # fmt: skip


# -- the operators -------------------------------------------------------------------------------------------------

_RUN: dict[str, Callable[..., Any]] = {
    "fused_all_gather_matmul": _gather, "fused_matmul_reduce_scatter": _scatter,
    "fused_all_gather_scaled_matmul": _gather_scaled, "fused_scaled_matmul_reduce_scatter": _scatter_scaled,
}  # fmt: skip


def _call(what: str, *arguments: Any, **options: Any) -> Any:
    """Launch, or call the operator during tracing."""
    flat = [each for some in arguments for each in (some if isinstance(some, list) else [some])]
    if by_operator(*flat):
        return getattr(torch.ops.warploom, what)(*arguments, **options)
    return _RUN[what](*arguments, **options)


def _list(name: str, some: Any) -> list[Any]:
    """The elements of an argument with one entry per B. Raises ArgumentTypeError for a tensor, which would be split."""
    if not isinstance(some, (list, tuple)):
        raise ArgumentTypeError(f"`{name}` is not a list", expected="one for each B", got=type(some).__name__)
    return list(some)


def _fake_gather(A: Tensor, Bs: list[Tensor], gather_dim: int, group_name: str, *, return_A: bool = True) -> Gathered:
    shape = list(A.shape)
    shape[gather_dim] *= group_of(group_name).ranks
    found = [_laid(A, [*shape[:-1], b.shape[1]], gather_dim, A.dtype) for b in Bs]
    return _laid(A, shape, gather_dim, A.dtype) if return_A else None, found


def _fake_gather_scaled(
    A: Tensor, Bs: list[Tensor], A_scale: Tensor, B_scales: list[Tensor], gather_dim: int, group_name: str, *more: Any
) -> Gathered:
    whole, _ = _fake_gather(A, [], gather_dim, group_name)
    assert whole is not None
    found = [
        _laid(A, [*whole.shape[:-1], b.shape[1]], gather_dim, PeerEpilogue(out_dtype=dtype).out(A))
        for b, dtype in zip(Bs, more[2], strict=True)
    ]
    return whole, found


def _fake_scatter(A: Tensor, B: Tensor, reduce_op: str, scatter_dim: int, group_name: str) -> Tensor:
    return _fake_scattered(list(A.shape[:-1]), A, B, scatter_dim, group_name, A.dtype)


def _fake_scatter_scaled(
    A: Tensor, B: Tensor, A_scale: Tensor, B_scale: Tensor, reduce_op: str, dim: int, after: int, group_name: str,
    output_shape: list[int] | None, bias: Tensor | None = None, result_scale: Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    leading = list(A.shape[:-1]) if output_shape is None else list(output_shape[:-1])
    return _fake_scattered(leading, A, B, dim, group_name, PeerEpilogue(out_dtype=out_dtype).out(A))


def _fake_scattered(leading: list[int], A: Tensor, B: Tensor, dim: int, group_name: str, dtype: torch.dtype) -> Tensor:
    leading[dim] //= group_of(group_name).ranks
    return _laid(A, [*leading, B.shape[1]], dim, dtype)


def _laid(like: Tensor, shape: list[int], dim: int, dtype: torch.dtype) -> Tensor:
    """An empty tensor of this shape, with dimension `dim` outermost in memory, like the results."""
    inner = [size for at, size in enumerate(shape) if at != dim]
    return like.new_empty([shape[dim], *inner], dtype=dtype).movedim(0, dim)


def _register() -> Any:
    """Define the operators; the library object must stay alive."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    fakes: tuple[Callable[..., Any], ...] = (_fake_gather, _fake_scatter, _fake_gather_scaled, _fake_scatter_scaled)
    for (name, run), fake in zip(_RUN.items(), fakes, strict=True):
        define(library, name + SCHEMAS[name], run, fake)
    return library


_LIBRARY = _register()
