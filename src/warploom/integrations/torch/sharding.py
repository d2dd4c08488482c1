"""PyTorch: `warploom::matmul` on DTensors, so that layers sharded over several GPUs still use this library.

    model = warploom.torch.convert(model)
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})

For D = activation(alpha A B + bias) * gate + beta C on one dimension of a mesh:

    A           B           D
    replicated  replicated  replicated
    rows        replicated  rows            a vector or addend by rows, likewise
    replicated  columns     columns         likewise by columns
    K           K           partial sums    only for a plain product: an epilogue must see the whole sum

The gradient's products are the same operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentTypeError
from .tracing import constant_result


def sharded(*tensors: Tensor | None) -> bool:
    """True if one of them is a DTensor; their sharding rules are registered on first use."""
    if "torch.distributed.tensor" not in {type(tensor).__module__ for tensor in tensors}:
        return False
    _registered()
    return True


def check_all_sharded(tensors: Mapping[str, Any]) -> None:
    """Raise ArgumentTypeError if some are DTensors and others, with more than one number, are plain tensors."""
    from torch.distributed.tensor import DTensor

    own = [name for name, each in tensors.items()
           if isinstance(each, Tensor) and not isinstance(each, DTensor) and each.numel() > 1]  # fmt: skip
    if own:
        raise ArgumentTypeError(
            f"{', '.join(f'`{name}`' for name in own)} is a plain tensor of this rank, but others are DTensors",
            expected="all of them DTensors of one mesh, or none",
            got={name: tuple(tensors[name].shape) for name in own},
            consequence="it is unknown whether each rank has a shard of it, or the whole", code="mixed-tensors",
            hint="distribute_tensor(tensor, mesh, [Replicate()]), or `.to_local()` on the others",
        )  # fmt: skip


@constant_result
def _registered() -> bool:
    """A tracer calls this, and does not trace it."""
    _register()
    return True


def sums_apart(a: Any, b: Any, options: Mapping[str, Any]) -> bool:
    """True if each GPU has a split of K and the epilogue is only a bias, which is then added after the sum.

    In one kernel with the product it would be added once for each GPU.
    """
    from torch.distributed.tensor import DTensor, Shard

    later = ("c", "gate", "activation", "scale_a", "scale_b", "out")
    if any(options.get(name) is not None for name in later):
        return False
    split = [
        isinstance(each, DTensor) and any(isinstance(how, Shard) and how.dim == axis for how in each.placements)
        for each, axis in ((a, a.ndim - 1), (b, b.ndim - 2))
    ]
    return any(split)


@cache
def _register() -> None:
    """Register with DTensor how the operator is sharded. Once per process, as torch keeps it."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    @register_sharding(torch.ops.warploom.matmul.default)
    def matmul(a: Any, b: Any, *rest: Any, **options: Any) -> list[tuple[list[Any], list[Any]]]:
        rank = max(len(a.shape), len(b.shape))
        rows, columns = len(a.shape) - 2, len(b.shape) - 1

        def beside(split: str, each: Any) -> Any:
            """The sharding of an operand other than A and B; None if it is not given."""
            if each is None or not hasattr(each, "shape"):
                return None
            at = {"rows": len(each.shape) - 2, "columns": len(each.shape) - 1}.get(split, -1)
            whole = at < 0 or each.shape[at] == 1
            return Replicate() if whole else Shard(at)

        def others(split: str) -> list[Any]:
            return [*(beside(split, each) for each in rest), *(None for _ in options)]

        found = [
            ([Replicate()], [Replicate(), Replicate(), *others("")]),
            ([Shard(rank - 1)], [Replicate(), Shard(columns), *others("columns")]),
        ]
        if len(b.shape) == 2 or len(a.shape) == len(b.shape):
            found.append(([Shard(rank - 2)], [Shard(rows), Replicate(), *others("rows")]))
        for axis in range(rank - 2):  # a batch: of A alone if B is one matrix, otherwise of both
            if len(a.shape) == rank and len(b.shape) in (2, rank):
                b_split = Shard(axis) if len(b.shape) == rank else Replicate()
                along = [
                    None if each is None or not hasattr(each, "shape")
                    else Shard(axis) if len(each.shape) == rank else Replicate()
                    for each in rest
                ]  # fmt: skip
                found.append(([Shard(axis)], [Shard(axis), b_split, *along, *(None for _ in options)]))
        plain = options.get("activation") is None and all(each is None for each in rest)
        if plain:
            found.append(([Partial()], [Shard(len(a.shape) - 1), Shard(len(b.shape) - 2), *others("")]))
        return found
