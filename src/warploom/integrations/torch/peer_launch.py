"""PyTorch: what launches a product that communicates; its arguments, its memory and its kernel.

`distributed` has the calls that people make, and the operators of a graph.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...collective.tile import watch
from ...collective.tile.rounds import STATE_WORDS
from ...errors import ArgumentError, ArgumentTypeError
from ...isa import dtypes
from ...kernels.hopper import gemm_all_gather, gemm_all_reduce, gemm_reduce_scatter
from ...kernels.hopper.description import Config, Product
from ...kernels.hopper.free_tile_config import FreeTileConfig
from .symmetric import Group, Wanted, group_of

_TYPES = {torch.bfloat16: dtypes.bf16, torch.float16: dtypes.f16}
_VECTOR_BYTES = 16


def all_gather_matmul(known: Group, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """The rows of A of all ranks times this rank's B."""
    product, weight = _operands(a, b, either=True)
    ranks, (rows, depth), columns = known.ranks, a.shape, b.shape[1]

    def wanted() -> Wanted:
        counters = gemm_all_gather.counters(rows, ranks)
        of_rank = (counters - ranks) // ranks
        return Wanted(
            (ranks, rows, depth), a.dtype, counters, STATE_WORDS, _record(gemm_all_gather.CONFIG, a.device),
            lambda index: index if index < ranks else (index - ranks) // of_rank, ranks,
        )  # fmt: skip

    exchange = known.exchange(
        ("all_gather_matmul", rows, depth, columns, str(a.dtype), product.b_major), a.device, wanted
    )
    result = _result(out, (ranks * rows, columns), a)
    kernel = gemm_all_gather.build(ranks, product)
    kernel(
        a.detach()[None], weight.detach(), *exchange.arguments(), known.rank,
        out=result.detach().view(ranks, rows, columns),
    )  # fmt: skip
    return result


def matmul_reduce_scatter(known: Group, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """This rank's rows of the sum over all ranks of A B."""
    product, weight = _operands(a, b, either=True)
    ranks = known.ranks
    if a.shape[0] % ranks:
        raise ArgumentError(
            "the rows of `a` cannot be scattered evenly", expected=f"a multiple of {ranks}, the ranks of the group",
            got=a.shape[0],
        )  # fmt: skip
    rows, columns = a.shape[0] // ranks, b.shape[1]

    def wanted() -> Wanted:
        counters = gemm_reduce_scatter.counters(rows, columns, ranks)
        return Wanted(
            (ranks, rows, columns), a.dtype, counters, STATE_WORDS, _record(gemm_reduce_scatter.CONFIG, a.device),
            lambda index: index if index < ranks else None, ranks,
        )  # fmt: skip

    exchange = known.exchange(
        ("matmul_reduce_scatter", rows, a.shape[1], columns, str(a.dtype), product.b_major), a.device, wanted
    )
    result = _result(out, (rows, columns), a)
    kernel = gemm_reduce_scatter.build(ranks, product)
    kernel(a.detach(), weight.detach(), *exchange.arguments(), known.rank, out=result.detach())
    return result


def matmul_all_reduce(
    known: Group, a: Tensor, b: Tensor, out: Tensor | None = None, config: FreeTileConfig | None = None
) -> Tensor:
    """The sum over all ranks of A B, on every rank."""
    product, weight = _operands(a, b)
    (rows, depth), columns, ranks = a.shape, weight.shape[0], known.ranks
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    config = config or gemm_all_reduce.choose(rows, columns, depth, sms, product)

    def wanted() -> Wanted:
        memory = gemm_all_reduce.memory(rows, columns, ranks, config)
        return Wanted(
            (memory.slots,), torch.int32, memory.signals, memory.launches, memory.record, lambda index: index % ranks
        )

    call = ("matmul_all_reduce", rows, depth, columns, str(a.dtype), config.name())
    exchange = known.exchange(call, a.device, wanted)
    result = _result(out, (rows, columns), a)
    kernel = gemm_all_reduce.build(ranks, product, config, two_shots=gemm_all_reduce.two_shots(rows, columns, ranks))
    kernel(a.detach(), weight.detach(), *exchange.arguments(), known.rank, out=result.detach())
    return result


LAUNCHES = {
    "all_gather_matmul": all_gather_matmul,
    "matmul_reduce_scatter": matmul_reduce_scatter,
    "matmul_all_reduce": matmul_all_reduce,
}
"""By the name of the operation."""


# -- arguments -----------------------------------------------------------------------------------------------------


def ranks_of(group: Any) -> Group:
    """The ranks of a group."""
    if not dist.is_initialized():
        raise ArgumentError(
            "there is no process group", expected="torch.distributed.init_process_group(...) before the call",
            hint="start the program with torchrun",
        )  # fmt: skip
    chosen = dist.group.WORLD if group is None else group
    known = group_of(chosen if isinstance(chosen, str) else chosen.group_name)
    if not known.lives():  # the process group was destroyed, and another one has its name
        group_of.cache_clear()
        return ranks_of(group)
    if known.ranks < 2:
        raise ArgumentError("a group of one GPU has nothing to exchange", expected="2 ranks or more", got=known.ranks)
    return known


def _operands(a: Tensor, b: Tensor, *, either: bool = False) -> tuple[Product, Tensor]:
    """The product, and B as the contiguous (N, K) weight that it is the transpose of; `either`: or as it is, if it is
    contiguous itself."""
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
    straight = either and b.is_contiguous() and not b.mT.is_contiguous()
    weight = b if straight else b.mT
    vector = _VECTOR_BYTES // a.element_size()
    for name, tensor in (("a", a), ("b" if straight else "b.T", weight)):
        if not tensor.is_contiguous() or tensor.shape[1] % vector:
            raise ArgumentError(
                f"`{name}` is not contiguous in rows of whole 16 bytes", code="wrong-layout",
                expected=f"rows of a multiple of {vector} elements, stride 1",
                got=f"shape {tuple(tensor.shape)}, strides {tensor.stride()}",
            )  # fmt: skip
    if b.shape[1] % vector:
        raise ArgumentError("N is not a multiple of 16 bytes", expected=f"a multiple of {vector}", got=b.shape[1])
    kind = _TYPES[a.dtype]
    return Product(kind, kind, kind, b_major="MN" if straight else "K"), weight


def _result(out: Tensor | None, shape: tuple[int, int], like: Tensor) -> Tensor:
    if out is None:
        return like.new_empty(shape)
    if tuple(out.shape) != shape or out.dtype is not like.dtype or not out.is_contiguous():
        raise ArgumentError(
            "`out` does not fit", expected=f"contiguous {shape} of {like.dtype}", got=f"{tuple(out.shape)} {out.dtype}"
        )
    return out


def _record(config: Config, device: torch.device) -> int:
    """Words of the record of a kernel that runs on all multiprocessors."""
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    return watch.words(sms * -(-config.threads // 32))
