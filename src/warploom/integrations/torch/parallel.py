"""PyTorch: styles for `parallelize_module` whose layers multiply and communicate in one launch.

    from warploom.torch import distributed

    plan = {"up": distributed.ColwiseParallel(), "down": distributed.RowwiseParallel()}     # instead of torch's
    parallelize_module(model, mesh, plan)

The layers keep plain parameters, and each rank has its shard. Activations between two pairs are replicated; with
`sequence=True` they are split by rows (tokens), as after a norm with sequence parallelism:

    ColwiseParallel()                  x whole        plain product, gradient of x summed over the ranks
    ColwiseParallel(sequence=True)     x's rows       all-gather and product
    RowwiseParallel()                  y whole        few rows: product and all-reduce; more: reduce-scatter, all-gather
    RowwiseParallel(sequence=True)     y's rows       product and reduce-scatter
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives
from torch.distributed.tensor.parallel.style import ParallelStyle

from ...errors import ArgumentError, ArgumentTypeError
from .distributed import all_gather_matmul, matmul_all_reduce, matmul_reduce_scatter
from .layers import Linear
from .symmetric import rows_of_all

__all__ = ["ColwiseParallel", "RowwiseParallel"]

FEATURES = 8
"""A rank's shard has a multiple of this many features, in and out: TMA moves multiples of 16 bytes."""
FEW_ROWS = 256
"""Up to this many rows the all-reduce is part of the product's launch, and sends no more than necessary."""


class ColwiseParallel(ParallelStyle):
    """Split a linear layer's output features over the ranks. `sequence`: the input is split by rows."""

    def __init__(self, *, sequence: bool = False) -> None:
        self.sequence = sequence

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        return _split(module, device_mesh, ColwiseLinear, 0, self.sequence)


class RowwiseParallel(ParallelStyle):
    """Split a linear layer's input features over the ranks. `sequence`: the output is split by rows."""

    def __init__(self, *, sequence: bool = False) -> None:
        self.sequence = sequence

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        return _split(module, device_mesh, RowwiseLinear, 1, self.sequence)


class _Split(Linear):
    """A linear layer of which this rank has a shard."""

    group: str
    ranks: int
    sequence: bool

    def extra_repr(self) -> str:
        """What `print` shows of it."""
        return f"{super().extra_repr()}, ranks={self.ranks}, sequence={self.sequence}"


class ColwiseLinear(_Split):
    """See `ColwiseParallel`."""

    def forward(self, input: Tensor) -> Tensor:
        """This rank's columns."""
        if not self.sequence:
            return super().forward(_Shared.apply(input, self.group) if torch.is_grad_enabled() else input)
        x, weight = autocast(input, self.weight)
        y = all_gather_matmul(_rows(x), weight.mT, self.group)
        y = y.view(*input.shape[:-2], -1, y.shape[-1])
        return y if self.bias is None else y + self.bias.to(y.dtype)


class RowwiseLinear(_Split):
    """See `RowwiseParallel`."""

    def forward(self, input: Tensor) -> Tensor:
        """The sum over the ranks, or this rank's rows of it."""
        x, weight = autocast(input, self.weight)
        x, weight = (_rows(x) if self.sequence else x.flatten(0, -2).contiguous()), weight.mT
        if self.sequence:
            y = matmul_reduce_scatter(x, weight, self.group)
        elif x.shape[0] <= FEW_ROWS or x.shape[0] % self.ranks:
            y = matmul_all_reduce(x, weight, self.group)
        else:
            y = _Whole.apply(matmul_reduce_scatter(x, weight, self.group), self.group)
        y = y.view(*input.shape[:-2], -1, y.shape[-1]) if self.sequence else y.view(*input.shape[:-1], y.shape[-1])
        if self.bias is None:
            return y
        bias = _Shared.apply(self.bias, self.group) if self.sequence and torch.is_grad_enabled() else self.bias
        return y + bias.to(y.dtype)


class _Shared(torch.autograd.Function):
    """Identity on a replicated input; its gradient is summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return collectives.wait_tensor(collectives.all_reduce(grads[0].contiguous(), "sum", ctx.group)), None


class _Whole(torch.autograd.Function):
    """All-gather of rows; in the backward pass every rank has the whole gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: str) -> Tensor:
        ctx.rows, ctx.rank = x.shape[0], dist.get_rank(dist.distributed_c10d._resolve_process_group(group))
        return rows_of_all(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0][ctx.rank * ctx.rows : (ctx.rank + 1) * ctx.rows], None


def autocast(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Convert both to autocast's type, if it is enabled, like torch's linear layer."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return x, weight
    wanted = torch.get_autocast_dtype(kind)
    return x.to(wanted), weight.to(wanted)


def _split(module: nn.Module, mesh: Any, kind: type[_Split], axis: int, sequence: bool) -> nn.Module:
    """Keep this rank's shard of a layer, in place. Raises ArgumentError, ArgumentTypeError."""
    if type(module) not in (nn.Linear, Linear):
        raise ArgumentTypeError("only linear layers are split so", expected="an nn.Linear", got=type(module).__name__)
    assert isinstance(module, nn.Linear)
    ranks, rank = mesh.size(), mesh.get_local_rank()
    if module.weight.shape[axis] % ranks:
        raise ArgumentError(
            f"the {('output', 'input')[axis]} features of a layer cannot be split evenly",
            expected=f"a multiple of {ranks}, the ranks of the mesh", got=module.weight.shape[axis],
            code="wrong-shape",
        )  # fmt: skip
    sizes = [size // (ranks if at == axis else 1) for at, size in enumerate(module.weight.shape)]
    if any(size % FEATURES for size in sizes):
        raise ArgumentError(
            "a rank's part of a layer has features that are not whole 16 bytes of bf16 or f16", code="wrong-layout",
            expected=f"multiples of {FEATURES} out and in", got=tuple(sizes),
            consequence="no kernel that communicates could multiply by it",
            hint="leave this layer to torch's own style",
        )  # fmt: skip

    def mine(parameter: nn.Parameter) -> nn.Parameter:
        part = parameter.detach().chunk(ranks, axis)[rank].clone(memory_format=torch.contiguous_format)
        return nn.Parameter(part, requires_grad=parameter.requires_grad)

    module.weight = mine(module.weight)
    if module.bias is not None and axis == 0:
        module.bias = mine(module.bias)
    module.out_features, module.in_features = module.weight.shape
    module.__class__ = kind
    assert isinstance(module, _Split)
    module.group, module.ranks, module.sequence = mesh.get_group().group_name, ranks, sequence
    return module


def _rows(x: Tensor) -> Tensor:
    """View (1, …, rows, features) as a matrix: with several sequences, gathered rows would not be contiguous."""
    if x.numel() != x.shape[-2] * x.shape[-1]:
        raise ArgumentError(
            "rows of several sequences are not split over ranks", expected="a batch of one sequence",
            got=tuple(x.shape), code="wrong-shape", hint="flatten the batch into the rows before they are split",
        )  # fmt: skip
    return x.reshape(x.shape[-2:]).contiguous()
