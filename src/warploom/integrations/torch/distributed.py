"""PyTorch: products whose communication happens in the same launch, for tensor parallelism over NVLink.

    y = warploom.torch.distributed.all_gather_matmul(x_shard, weight.T, group)        # columns of the weight here
    x_shard = warploom.torch.distributed.matmul_reduce_scatter(y, weight.T, group)    # rows of the weight here
    x = warploom.torch.distributed.matmul_all_reduce(y, weight.T, group)              # the same for few rows

`fused_…` are products with the names and arguments of `torch.ops.symm_mem` (`symm_mem`), also with eight-bit operands;
`experts_matmul` is a mixture of experts (`experts`).

PyTorch provides the process group and the memory that peers access. All ranks must call the same operations in the same
order with the same sizes. Exchange memory is allocated at the first call of a shape, and kept; `release(group)` frees
it. The three products above and the experts have gradients. Under `torch.compile` all are operators (`warploom::…`),
whose group is given by name or left out. If a rank does not make the call, it is named after `config.peer_timeout_s`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...kernels.hopper.free_tile_config import FreeTileConfig
from ...operators.dispatch_hook import refuse_gradients
from ..torch import product
from . import peer_launch
from .custom_operator import NAMESPACE, define
from .experts import experts_matmul
from .peer_epilogue import PeerEpilogue
from .peer_launch import LAUNCHES, by_operator, name_of, ranks_of
from .symm_mem import (
    fused_all_gather_matmul,
    fused_all_gather_scaled_matmul,
    fused_matmul_reduce_scatter,
    fused_scaled_matmul_reduce_scatter,
)
from .symmetric import group_of, rows_of_all

__all__ = [
    "all_gather_matmul", "check", "experts_matmul", "fused_all_gather_matmul", "fused_all_gather_scaled_matmul",
    "fused_matmul_reduce_scatter", "fused_scaled_matmul_reduce_scatter", "matmul_all_reduce", "matmul_reduce_scatter",
    "release", "reset", "scaled_matmul_all_reduce",
]  # fmt: skip

STYLES = ("ColwiseParallel", "RowwiseParallel")
"""Names in `parallel`, which is imported on first use."""

# -- calls ---------------------------------------------------------------------------------------------------------


def all_gather_matmul(
    a: Tensor, b: Tensor, group: Any = None, *, out: Tensor | None = None, by: str | None = None
) -> Tensor:
    """Gather the rows of A of all ranks, in rank order, and multiply them by this rank's B.

    Args:
        a: (M / ranks, K), this rank's rows, contiguous; bf16 or f16.
        b: (K, N), contiguous, or the transpose of a contiguous weight (N, K).
        group: the process group, the default one by default.
        out: (M, N), contiguous.
        by: how rows reach the other GPUs: "push", by idle warps; "tma", by bulk copies of two of them; or "copy", by
            copy engines in separate streams, in chunks of K. `config.peer_gather` by default, or else "copy" for long
            products and "push" for others.

    Raises ArgumentError, ArgumentTypeError, PeerError; nothing is launched then.
    """
    return _call("all_gather_matmul", a, b, group, out, by=by)


def matmul_reduce_scatter(a: Tensor, b: Tensor, group: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Return this rank's rows of the sum of A B over all ranks.

    Partial sums are rounded to the result type and added in f32 in rank order: the same bits each time.

    Args:
        a: (M, K / ranks), contiguous, M a multiple of the ranks; bf16 or f16.
        b: (K / ranks, N), contiguous, or the transpose of a contiguous weight.
        group: the process group, the default one by default.
        out: (M / ranks, N), contiguous.

    Raises ArgumentError, ArgumentTypeError, PeerError; nothing is launched then.
    """
    return _call("matmul_reduce_scatter", a, b, group, out)


def matmul_all_reduce(
    a: Tensor, b: Tensor, group: Any = None, *, out: Tensor | None = None, config: FreeTileConfig | None = None,
    by: str | None = None,
) -> Tensor:  # fmt: skip
    """Return the sum of A B over all ranks, on every rank, for few rows of A; for many rows, scatter and gather.

    Partial sums are rounded to the result type and added in f32 in rank order: the same bits on all ranks, each time.

    Args:
        a: (M, K / ranks), contiguous; bf16 or f16.
        b: (K / ranks, N), the transpose of a contiguous weight.
        group: the process group, the default one by default.
        out: (M, N), contiguous.
        config: a tile instead of the chosen one, the same on all ranks.
        by: how partial sums travel: "one_shot", everything to all, or "two_shot", where each GPU adds up a share and
            sends it to all. By default chosen by bytes and trips.

    Raises ArgumentError, ArgumentTypeError, PeerError; nothing is launched then.
    """
    return _call("matmul_all_reduce", a, b, group, out, config=config, by=by)


def scaled_matmul_all_reduce(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, group: Any = None, *, out_dtype: torch.dtype | None = None
) -> Tensor:
    """`matmul_all_reduce` with eight-bit operands: the sum of scale_a scale_b A B over all ranks.

    Args:
        a: (M, K / ranks), contiguous; e4m3 or e5m2. b: (K / ranks, N), the transpose of a contiguous weight, likewise.
        scale_a, scale_b: f32, this rank's: one number each, or one per row of A and one per column of B.
        out_dtype: bf16, the default, or f16; partial sums travel in it.

    No gradient. Raises ArgumentError, ArgumentTypeError, PeerError; nothing is launched then.
    """
    refuse_gradients({"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b})
    if by_operator(a, b, scale_a, scale_b):
        name = name_of(group)
        return torch.ops.warploom.scaled_matmul_all_reduce(a, b, scale_a, scale_b, name, out_dtype)
    end = PeerEpilogue(scale_a, scale_b, out_dtype=out_dtype)
    return peer_launch.matmul_all_reduce(ranks_of(group), a, b, end=end)


def check(group: Any = None) -> None:
    """Wait for this GPU, then raise PeerError if a product of the group gave up waiting for another rank.

    Calls check by themselves, but only launches that have ended by then; this function checks all.
    """
    known = ranks_of(group)
    _synchronize()
    known.check()


def release(group: Any = None) -> None:
    """Free the memory kept for a group's products, after a barrier of the group. All ranks must call it."""
    dist.barrier(ranks_of(group).process_group)
    reset(group)


def reset(group: Any = None) -> None:
    """Free the memory without a barrier, after a PeerError. All ranks that keep using the group must call it."""
    known = ranks_of(group)
    _synchronize()
    known.forget()


def _synchronize() -> None:
    """Wait for this process's GPU, if it has one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


# -- the operators -------------------------------------------------------------------------------------------------


def _call(what: str, a: Tensor, b: Tensor, group: Any, out: Tensor | None, **options: Any) -> Tensor:
    """Launch, or call the operator if the call is traced or needs a gradient."""
    given = {name: value for name, value in options.items() if value is not None}
    traced = by_operator(a, b, out)
    wanted = torch.is_grad_enabled() and isinstance(a, Tensor) and (a.requires_grad or b.requires_grad)
    if (traced or wanted) and out is None and "config" not in given:
        return getattr(torch.ops.warploom, what)(a, b, name_of(group), **given)
    return LAUNCHES[what](ranks_of(group), a, b, out, **given)


def _rows(what: str, rows: int, ranks: int) -> int:
    """Return the number of rows of the result."""
    return {"all_gather_matmul": rows * ranks, "matmul_reduce_scatter": rows // ranks}.get(what, rows)


def _gathered(x: Tensor, group: str) -> Tensor:
    """The rows of all ranks."""
    return rows_of_all(x, group)


def _gradient_of_b(a: Tensor, b: Tensor, grad: Tensor) -> Tensor:
    """Return Aᵀ dD with B's strides: if B is a weight's transpose, it is computed in the weight's layout."""
    if b.stride(-2) == 1:
        return product(grad.mT, a, out_dtype=b.dtype).mT
    return product(a.mT, grad, out_dtype=b.dtype)


def _of_gather(a: Tensor, b: Tensor, grad: Tensor, group: str, needed: tuple[bool, bool]) -> list[Tensor | None]:
    """Gradients of all-gather and product. A's rows are gathered again, as they are not kept."""
    return [
        torch.ops.warploom.matmul_reduce_scatter(grad, b.mT, group) if needed[0] else None,
        _gradient_of_b(_gathered(a, group), b, grad) if needed[1] else None,
    ]


def _of_scatter(a: Tensor, b: Tensor, grad: Tensor, group: str, needed: tuple[bool, bool]) -> list[Tensor | None]:
    return [
        torch.ops.warploom.all_gather_matmul(grad, b.mT, group) if needed[0] else None,
        _gradient_of_b(a, b, _gathered(grad, group)) if needed[1] else None,
    ]


def _of_sum(a: Tensor, b: Tensor, grad: Tensor, group: str, needed: tuple[bool, bool]) -> list[Tensor | None]:
    """Gradients of product and all-reduce: every rank already has the gradient of the whole sum."""
    return [
        product(grad, b.mT, out_dtype=a.dtype) if needed[0] else None,
        _gradient_of_b(a, b, grad) if needed[1] else None,
    ]


_GRADIENTS: dict[str, Callable[..., list[Tensor | None]]] = {
    "all_gather_matmul": _of_gather, "matmul_reduce_scatter": _of_scatter, "matmul_all_reduce": _of_sum,
}  # fmt: skip


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, ctx.group = inputs[:3]
    ctx.save_for_backward(a, b)


def _register() -> Any:
    """Define the operators; the library object must stay."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")

    def of(what: str, form: str) -> None:
        def run(a: Tensor, b: Tensor, group: str, by: str | None = None) -> Tensor:
            return LAUNCHES[what](group_of(group), a, b, **({"by": by} if form else {}))

        def fake(a: Tensor, b: Tensor, group: str, by: str | None = None) -> Tensor:
            return a.new_empty((_rows(what, a.shape[0], group_of(group).ranks), b.shape[1]))

        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            grads = _GRADIENTS[what](*ctx.saved_tensors, grad.contiguous(), ctx.group, ctx.needs_input_grad[:2])
            return *grads, *(None,) * (2 if form else 1)

        schema = f"{what}(Tensor a, Tensor b, str group{form}) -> Tensor"
        define(library, schema, run, fake, backward, _setup)

    for each in LAUNCHES:
        of(each, "" if each == "matmul_reduce_scatter" else ", str? by=None")
    define(
        library, "scaled_matmul_all_reduce(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, str group,"
        " ScalarType? out_dtype=None) -> Tensor",
        lambda a, b, scale_a, scale_b, group, out_dtype=None: peer_launch.matmul_all_reduce(
            group_of(group), a, b, end=PeerEpilogue(scale_a, scale_b, out_dtype=out_dtype)
        ),
        lambda a, b, scale_a, scale_b, group, out_dtype=None: a.new_empty(
            (a.shape[0], b.shape[1]), dtype=out_dtype or torch.bfloat16
        ),
    )  # fmt: skip
    return library


_LIBRARY = _register()


def __getattr__(name: str) -> Any:
    """The styles for `parallelize_module`, which import DTensor."""
    if name not in STYLES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import parallel

    return getattr(parallel, name)
