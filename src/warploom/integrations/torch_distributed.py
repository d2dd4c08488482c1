"""PyTorch: products whose communication happens in the same launch, for tensor parallelism over NVLink.

    y = warploom.torch.distributed.all_gather_matmul(x_shard, weight.T, group)        # columns of the weight here
    x_shard = warploom.torch.distributed.matmul_reduce_scatter(y, weight.T, group)    # rows of the weight here

The process group is PyTorch's, and so is the memory that GPUs reach into (`torch.distributed._symmetric_memory`). All
ranks call the same operations in the same order with the same sizes. Memory for what is exchanged is made at the first
call of a shape, and kept; `release(group)` gives it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..collective.tile.rounds import STATE_WORDS
from ..errors import ArgumentError, ArgumentTypeError
from ..isa import dtypes
from ..kernels.hopper import gemm_all_gather, gemm_reduce_scatter
from ..kernels.hopper.description import Product

__all__ = ["all_gather_matmul", "matmul_reduce_scatter", "release"]

_TYPES = {torch.bfloat16: dtypes.bf16, torch.float16: dtypes.f16}
_VECTOR_BYTES = 16


@dataclass(frozen=True)
class Exchange:
    """What the GPUs of a group reach into, of each rank: memory for data, and counters; and this rank's own state.

    `held`: whose memory it is. What a handle gives of a rank does not keep that memory.
    """

    data: tuple[Tensor, ...]
    counters: tuple[Tensor, ...]
    state: Tensor
    held: tuple[Any, ...]


def all_gather_matmul(a: Tensor, b: Tensor, group: Any = None, *, out: Tensor | None = None) -> Tensor:
    """The rows of A of all ranks, in their order, times this rank's B.

    Args:
        a: (M / ranks, K), this rank's rows, contiguous; bf16 or f16.
        b: (K, N), the transpose of a contiguous weight (N, K).
        group: the process group, the default one by default.
        out: (M, N), contiguous.

    Raises ArgumentError, ArgumentTypeError; nothing is launched then.
    """
    ranks, rank, name = _group(group)
    product, weight = _operands(a, b)
    (rows, depth), columns = a.shape, weight.shape[0]
    _agree(name, ("all_gather_matmul", rows, depth, columns, str(a.dtype)))
    exchange = _exchange(name, (ranks, rows, depth), a.dtype, gemm_all_gather.counters(rows, ranks), a.device)
    result = _result(out, (ranks * rows, columns), a)
    kernel = gemm_all_gather.build(ranks, product)
    kernel(
        a.detach()[None], weight.detach(), exchange.data, exchange.counters, exchange.state, rank,
        out=result.detach().view(ranks, rows, columns),
    )  # fmt: skip
    return result


def matmul_reduce_scatter(a: Tensor, b: Tensor, group: Any = None, *, out: Tensor | None = None) -> Tensor:
    """This rank's rows of the sum over all ranks of A B.

    The parts are rounded to the type of the result and added in f32 in the order of the ranks: the same bits each time.

    Args:
        a: (M, K / ranks), contiguous, M a multiple of the ranks; bf16 or f16.
        b: (K / ranks, N), the transpose of a contiguous weight.
        group: the process group, the default one by default.
        out: (M / ranks, N), contiguous.

    Raises ArgumentError, ArgumentTypeError; nothing is launched then.
    """
    ranks, rank, name = _group(group)
    product, weight = _operands(a, b)
    if a.shape[0] % ranks:
        raise ArgumentError(
            "the rows of `a` cannot be scattered evenly", expected=f"a multiple of {ranks}, the ranks of the group",
            got=a.shape[0],
        )  # fmt: skip
    rows, columns = a.shape[0] // ranks, weight.shape[0]
    _agree(name, ("matmul_reduce_scatter", rows, a.shape[1], columns, str(a.dtype)))
    counters = gemm_reduce_scatter.counters(rows, columns, ranks)
    exchange = _exchange(name, (ranks, rows, columns), a.dtype, counters, a.device)
    result = _result(out, (rows, columns), a)
    kernel = gemm_reduce_scatter.build(ranks, product)
    kernel(a.detach(), weight.detach(), exchange.data, exchange.counters, exchange.state, rank, out=result.detach())
    return result


def release(group: Any = None) -> None:
    """Give back the memory that the products of all groups have kept, after a barrier of this one."""
    dist.barrier(group)
    torch.cuda.synchronize()
    _exchange.cache_clear()
    _agree.cache_clear()


# -- arguments -----------------------------------------------------------------------------------------------------


def _group(group: Any) -> tuple[int, int, str]:
    """Ranks, this rank, and the name of a group."""
    if not dist.is_initialized():
        raise ArgumentError(
            "there is no process group", expected="torch.distributed.init_process_group(...) before the call",
            hint="start the program with torchrun",
        )  # fmt: skip
    chosen = dist.group.WORLD if group is None else group
    ranks = dist.get_world_size(chosen)
    if ranks < 2:
        raise ArgumentError("a group of one GPU has nothing to exchange", expected="2 ranks or more", got=ranks)
    return ranks, dist.get_rank(chosen), chosen.group_name


def _operands(a: Tensor, b: Tensor) -> tuple[Product, Tensor]:
    """The product, and B as the contiguous (N, K) weight that it is the transpose of."""
    for name, tensor in (("a", a), ("b", b)):
        if not isinstance(tensor, Tensor) or tensor.ndim != 2:
            raise ArgumentTypeError(f"`{name}` is not a matrix", expected="a tensor of two dimensions", got=tensor)
        if tensor.device.type != "cuda":
            raise ArgumentError(
                f"`{name}` is not on a GPU", expected="a CUDA tensor of this rank's GPU", got=str(tensor.device),
                hint="kernel.emulate(..., devices=n) runs the kernels of this module on the CPU", code="wrong-device",
            )  # fmt: skip
    if a.dtype not in _TYPES or a.dtype is not b.dtype:
        raise ArgumentTypeError(
            "these types are not multiplied across GPUs", expected="bf16 or f16, both the same", got=(a.dtype, b.dtype)
        )
    if a.shape[1] != b.shape[0]:
        raise ArgumentError(
            "the inner sizes of `a` and `b` differ", expected=f"b of shape ({a.shape[1]}, N)", got=tuple(b.shape),
            code="wrong-shape",
        )  # fmt: skip
    weight = b.mT
    vector = _VECTOR_BYTES // a.element_size()
    for name, tensor in (("a", a), ("b.T", weight)):
        if not tensor.is_contiguous() or tensor.shape[1] % vector:
            raise ArgumentError(
                f"`{name}` is not contiguous in rows of whole 16 bytes", expected=f"K a multiple of {vector}, stride 1",
                got=f"shape {tuple(tensor.shape)}, strides {tensor.stride()}", code="wrong-layout",
            )  # fmt: skip
    if weight.shape[0] % vector:
        raise ArgumentError("N is not a multiple of 16 bytes", expected=f"a multiple of {vector}", got=weight.shape[0])
    kind = _TYPES[a.dtype]
    return Product(kind, kind, kind), weight


def _result(out: Tensor | None, shape: tuple[int, int], like: Tensor) -> Tensor:
    if out is None:
        return like.new_empty(shape)
    if tuple(out.shape) != shape or out.dtype is not like.dtype or not out.is_contiguous():
        raise ArgumentError(
            "`out` does not fit", expected=f"contiguous {shape} of {like.dtype}", got=f"{tuple(out.shape)} {out.dtype}"
        )
    return out


# -- memory --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _agree(group: str, call: tuple[object, ...]) -> None:
    """Refuse a call that other ranks make with other sizes, once for each call that is new to this rank."""
    from torch.distributed.distributed_c10d import _resolve_process_group

    chosen = _resolve_process_group(group)
    others: list[Any] = [None] * dist.get_world_size(chosen)
    dist.all_gather_object(others, call, group=chosen)
    if different := [(rank, other) for rank, other in enumerate(others) if other != call]:
        raise ArgumentError(
            "the ranks of the group make different calls",
            expected=f"{call}, as on this rank", got=f"{different[0][1]} on rank {different[0][0]}",
            consequence="they would wait for each other's tiles for ever",
        )  # fmt: skip


@lru_cache(maxsize=64)
def _exchange(group: str, shape: tuple[int, ...], dtype: torch.dtype, counters: int, device: torch.device) -> Exchange:
    """Memory that all ranks reach into; made by all of them together."""
    import torch.distributed._symmetric_memory as symmetric

    held: list[Any] = []

    def shared(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
        own = symmetric.empty(shape, dtype=dtype, device=device)
        own.zero_()
        handle = symmetric.rendezvous(own, group)
        held.extend((own, handle))
        return tuple(handle.get_buffer(rank, shape, dtype) for rank in range(handle.world_size))

    data = shared(shape, dtype)
    words = shared((counters,), torch.int32)
    torch.cuda.synchronize(device)
    from torch.distributed.distributed_c10d import _resolve_process_group

    dist.barrier(_resolve_process_group(group))  # the counters of all are zero
    state = torch.zeros(STATE_WORDS, dtype=torch.int32, device=device).view(torch.uint32)
    return Exchange(data, tuple(each.view(torch.uint32) for each in words), state, tuple(held))
