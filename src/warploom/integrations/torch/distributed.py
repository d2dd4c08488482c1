"""PyTorch: products whose communication happens in the same launch, for tensor parallelism over NVLink.

    y = warploom.torch.distributed.all_gather_matmul(x_shard, weight.T, group)        # columns of the weight here
    x_shard = warploom.torch.distributed.matmul_reduce_scatter(y, weight.T, group)    # rows of the weight here
    x = warploom.torch.distributed.matmul_all_reduce(y, weight.T, group)              # the same for few rows

`fused_…` are products with the names and arguments of `torch.ops.symm_mem` (`symm_mem`), with eight-bit operands too;
`experts_matmul` is a mixture of experts (`experts`).

The process group is PyTorch's, and so is the memory that GPUs reach into. All ranks call the same operations in the
same order with the same sizes. Memory for what is exchanged is made at the first call of a shape, and kept;
`release(group)` gives it back. The three above and the experts have gradients. Under `torch.compile` all are operators
(`warploom::…`), whose group is given by name or left out. A rank that does not come is named after
`config.peer_timeout_s`.
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
from .peer_end import End
from .peer_launch import LAUNCHES, by_operator, ranks_of
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
"""Of `parallel`; looked up when first used."""

# -- calls ---------------------------------------------------------------------------------------------------------


def all_gather_matmul(
    a: Tensor, b: Tensor, group: Any = None, *, out: Tensor | None = None, by: str | None = None
) -> Tensor:
    """The rows of A of all ranks, in their order, times this rank's B.

    Args:
        a: (M / ranks, K), this rank's rows, contiguous; bf16 or f16.
        b: (K, N), contiguous, or the transpose of a contiguous weight (N, K).
        group: the process group, the default one by default.
        out: (M, N), contiguous.
        by: how rows reach the other GPUs: "push", by idle warps; "copy", by the copy engines in streams beside the
            kernel, in chunks of K; or "copy-rows", the same in blocks of whole rows. `config.peer_gather` by default.

    Raises ArgumentError, ArgumentTypeError, PeerError; nothing is launched then.
    """
    return _call("all_gather_matmul", a, b, group, out, by=by)


def matmul_reduce_scatter(
    a: Tensor, b: Tensor, group: Any = None, *, out: Tensor | None = None, by: str | None = None
) -> Tensor:
    """This rank's rows of the sum over all ranks of A B.

    The parts are rounded to the type of the result and added in f32 in the order of the ranks: the same bits each time.

    Args:
        a: (M, K / ranks), contiguous, M a multiple of the ranks; bf16 or f16.
        b: (K / ranks, N), contiguous, or the transpose of a contiguous weight.
        group: the process group, the default one by default.
        out: (M / ranks, N), contiguous.
        by: how tiles are sent: "turns", a row of tiles of each rank in turn; "staged", the same from a whole tile's
            room in shared memory, so that no warp waits for a link, with a stage less for operands; "last", this
            rank's own tiles behind all others; or "staged-last". `config.peer_scatter` by default.

    Raises ArgumentError, ArgumentTypeError, PeerError; nothing is launched then.
    """
    return _call("matmul_reduce_scatter", a, b, group, out, by=by)


def matmul_all_reduce(
    a: Tensor, b: Tensor, group: Any = None, *, out: Tensor | None = None, config: FreeTileConfig | None = None,
    by: str | None = None,
) -> Tensor:  # fmt: skip
    """The sum over all ranks of A B, on every rank, for few rows of A; for many, scatter and gather.

    The parts are rounded to the type of the result and added in f32 in the order of the ranks: the same bits on all
    ranks, each time.

    Args:
        a: (M, K / ranks), contiguous; bf16 or f16.
        b: (K / ranks, N), the transpose of a contiguous weight.
        group: the process group, the default one by default.
        out: (M, N), contiguous.
        config: a tile in place of the one that is chosen, the same on all ranks.
        by: how sums travel: "flagged", words with flags; "one_shot", everything to all; or "two_shots", tiles to an
            owner and back. By default what suits the sizes.

    Raises ArgumentError, ArgumentTypeError, PeerError; nothing is launched then.
    """
    return _call("matmul_all_reduce", a, b, group, out, config=config, by=by)


def scaled_matmul_all_reduce(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, group: Any = None, *, out_dtype: torch.dtype | None = None
) -> Tensor:
    """`matmul_all_reduce` of operands of eight bits: the sum over all ranks of scale_a scale_b A B.

    Args:
        a: (M, K / ranks), contiguous; e4m3 or e5m2. b: (K / ranks, N), the transpose of a contiguous weight, so too.
        scale_a, scale_b: f32, of this rank: one number each, or one for each row of A and each column of B.
        out_dtype: bf16, the default, or f16; parts travel in it.

    No gradient. Raises ArgumentError, ArgumentTypeError, PeerError; nothing is launched then.
    """
    refuse_gradients({"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b})
    if by_operator(a, b, scale_a, scale_b):
        name = name_of(group)
        return torch.ops.warploom.scaled_matmul_all_reduce(a, b, scale_a, scale_b, name, out_dtype)
    end = End(scale_a, scale_b, out_dtype=out_dtype)
    return peer_launch.matmul_all_reduce(ranks_of(group), a, b, end=end)


def check(group: Any = None) -> None:
    """Wait for this GPU, then raise PeerError if a product of the group gave up waiting for another rank.

    Calls look by themselves, at what has ended by then; this looks at everything.
    """
    known = ranks_of(group)
    _synchronize()
    known.check()


def release(group: Any = None) -> None:
    """Give back the memory that the products of a group have kept, after a barrier of it. By all of its ranks."""
    dist.barrier(ranks_of(group).process_group)
    reset(group)


def reset(group: Any = None) -> None:
    """Give the memory back without a barrier, after a PeerError. By all ranks that go on with the group."""
    known = ranks_of(group)
    _synchronize()
    known.forget()


def _synchronize() -> None:
    """Wait for this process's GPU, where it has one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


# -- the operators -------------------------------------------------------------------------------------------------


def _call(what: str, a: Tensor, b: Tensor, group: Any, out: Tensor | None, **options: Any) -> Tensor:
    """The launch itself; the operator where somebody traces or wants a gradient."""
    given = {name: value for name, value in options.items() if value is not None}
    traced = by_operator(a, b, out)
    wanted = torch.is_grad_enabled() and isinstance(a, Tensor) and (a.requires_grad or b.requires_grad)
    if (traced or wanted) and out is None and "config" not in given:
        return getattr(torch.ops.warploom, what)(a, b, name_of(group), **given)
    return LAUNCHES[what](ranks_of(group), a, b, out, **given)


@torch.compiler.assume_constant_result
def name_of(group: Any) -> str:
    """The name of a process group, which operators are given."""
    return ranks_of(group).name


def _rows(what: str, rows: int, ranks: int) -> int:
    """Of the result."""
    return {"all_gather_matmul": rows * ranks, "matmul_reduce_scatter": rows // ranks}.get(what, rows)


def _gathered(x: Tensor, group: str) -> Tensor:
    """The rows of all ranks."""
    return rows_of_all(x, group)


def _gradient_of_b(a: Tensor, b: Tensor, grad: Tensor) -> Tensor:
    """Aᵀ dD, in the order of B: that of a weight's transpose is made in the weight's own."""
    if b.stride(-2) == 1:
        return product(grad.mT, a, out_dtype=b.dtype).mT
    return product(a.mT, grad, out_dtype=b.dtype)


def _of_gather(a: Tensor, b: Tensor, grad: Tensor, group: str, needed: tuple[bool, bool]) -> list[Tensor | None]:
    """A's rows are gathered again: they are not kept."""
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
    """The gradient of the whole sum is on every rank already."""
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

    def of(what: str) -> None:
        def run(a: Tensor, b: Tensor, group: str, by: str | None = None) -> Tensor:
            return LAUNCHES[what](group_of(group), a, b, by=by)

        def fake(a: Tensor, b: Tensor, group: str, by: str | None = None) -> Tensor:
            return a.new_empty((_rows(what, a.shape[0], group_of(group).ranks), b.shape[1]))

        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            grads = _GRADIENTS[what](*ctx.saved_tensors, grad.contiguous(), ctx.group, ctx.needs_input_grad[:2])
            return *grads, None, None

        schema = f"{what}(Tensor a, Tensor b, str group, str? by=None) -> Tensor"
        define(library, schema, run, fake, backward, _setup)

    for each in LAUNCHES:
        of(each)
    define(
        library, "scaled_matmul_all_reduce(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, str group,"
        " ScalarType? out_dtype=None) -> Tensor",
        lambda a, b, scale_a, scale_b, group, out_dtype=None: peer_launch.matmul_all_reduce(
            group_of(group), a, b, end=End(scale_a, scale_b, out_dtype=out_dtype)
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
