"""PyTorch: launch a product of experts on several GPUs: check its arguments and allocate its memory."""

from __future__ import annotations

import torch
from torch import Tensor

from ...collective.tile import timeout_record
from ...collective.tile.sizes import MOST_EXPERTS
from ...errors import ArgumentError, ArgumentTypeError
from ...kernels.hopper import expert_parallel
from ...kernels.hopper.description import Fusion, Product
from . import peer_collectives as collectives
from . import peer_launch
from .peer_launch import EIGHT_BITS, SIXTEEN_BITS, TYPES
from .symmetric import Group, MemorySizes

_VECTOR, _VECTOR_BYTES = 8, 16


def experts_matmul(
    known: Group, x: Tensor, experts: Tensor, weights: Tensor, w: Tensor, capacity: int | None = None,
    activation: str | None = None, scale_x: Tensor | None = None, scale_w: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The weighted sums over each token's experts; see `distributed.experts_matmul`."""
    product = _check(x, experts, weights, w)
    scales = _scales(product, x, known.ranks * w.shape[0], scale_x, scale_w)
    Fusion(activation=activation).check(product.out)
    kind = out_dtype(x)
    ranks, (tokens, depth), topk, (local, columns, _) = known.ranks, x.shape, experts.shape[1], w.shape
    capacity = tokens if capacity is None else capacity
    if tokens > capacity or capacity < 1 or not 0 < local * ranks <= MOST_EXPERTS:
        raise ArgumentError(
            "there are too many tokens or experts", expected=f"1 to {MOST_EXPERTS} experts, tokens up to the capacity",
            got={"tokens": tokens, "capacity": capacity, "experts": local * ranks},
        )  # fmt: skip
    needed = expert_parallel.memory(capacity, topk, local * ranks, ranks)

    def wanted() -> MemorySizes:
        warps = peer_launch.sms_of(x.device) * -(-expert_parallel.CONFIG.threads // 32)
        return MemorySizes(
            (needed.rows, depth), x.dtype, needed.signals, needed.state + needed.order, timeout_record.words(warps),
            lambda index: index - ranks if ranks <= index < 2 * ranks else None, ranks,
            ((needed.counts, torch.int32), (needed.sources, torch.int32), ((needed.returned, columns), kind)),
        )  # fmt: skip

    call = ("experts_matmul", capacity, depth, columns, topk, local, str((x.dtype, w.dtype)), activation)
    result = peer_launch.result_of(out, (tokens, columns), x, kind)
    if peer_launch.by_collectives(known, x):
        collectives.meet(known, call)
        return collectives.experts_matmul(known, x, experts, weights, w.detach(), capacity, activation, scales, result)
    exchange = known.exchange(call, x.device, wanted)
    given = (x.detach(), experts, weights.detach())
    if not tokens:  # the tokens of other ranks may need this rank's experts
        given = tuple(each.new_zeros(1, each.shape[1]) for each in given)
        scales = [each.new_zeros(1) if at == 0 else each for at, each in enumerate(scales)]
    counts, sources, returned = exchange.more
    state, order = exchange.state[: needed.state], exchange.state[needed.state :]
    kernel = expert_parallel.build(ranks, topk, product, activation=activation)
    kernel(
        *given, w.detach().flatten(0, 1), counts, exchange.data, sources, returned, exchange.counters, order, state,
        exchange.record, *scales, known.rank, tokens,
        out=result.detach() if tokens else result.new_empty(1, columns),
    )  # fmt: skip
    return result


def out_dtype(x: Tensor) -> torch.dtype:
    """The type of the result."""
    return torch.bfloat16 if x.element_size() == 1 else x.dtype


def _scales(product: Product, x: Tensor, experts: int, scale_x: Tensor | None, scale_w: Tensor | None) -> list[Tensor]:
    """The scales that the kernel takes. Raises ArgumentError, ArgumentTypeError."""
    if product.a.bits == 16 and scale_x is None and scale_w is None:
        return []
    for name, scale, count in (("scale_x", scale_x, x.shape[0]), ("scale_w", scale_w, experts)):
        if product.a.bits == 16 or scale is None:
            raise ArgumentError(
                "8-bit operands need scales, others take none", expected="scale_x and scale_w, or 16 bits",
                got=x.dtype,
            )  # fmt: skip
        if scale.dtype is not torch.float32 or scale.numel() != count or scale.device != x.device:
            raise ArgumentTypeError(
                f"`{name}` does not fit", expected=f"{count} numbers of f32 on {x.device}",
                got=f"{tuple(scale.shape)} {scale.dtype} on {scale.device}",
            )  # fmt: skip
    return [each.detach().contiguous().view(-1) for each in (scale_x, scale_w) if each is not None]


def _check(x: Tensor, experts: Tensor, weights: Tensor, w: Tensor) -> Product:
    """Check the tensors and return the product. Raises ArgumentError, ArgumentTypeError."""
    for name, tensor, rank in (("x", x, 2), ("experts", experts, 2), ("weights", weights, 2), ("w", w, 3)):
        if not isinstance(tensor, Tensor) or tensor.ndim != rank:
            raise ArgumentTypeError(
                f"`{name}` has another number of dimensions",
                expected=f"a tensor of {rank}",
                got=peer_launch.said(tensor),
            )
        peer_launch.check_device(name, tensor)
        if not tensor.is_contiguous():
            raise ArgumentError(
                f"`{name}` is not contiguous", expected="a contiguous tensor", got=tensor.stride(), code="wrong-layout"
            )
    eight = {x.dtype, w.dtype} <= set(EIGHT_BITS) and not x.dtype is w.dtype is torch.float8_e5m2
    if not eight and (x.dtype not in SIXTEEN_BITS or w.dtype is not x.dtype):
        raise ArgumentTypeError(
            "no kernel multiplies these types by experts across GPUs",
            expected="bf16 or f16, both the same, or e4m3 or e5m2 with scales", got=(x.dtype, w.dtype),
        )  # fmt: skip
    if experts.dtype is not torch.int32 or weights.dtype is not torch.float32:
        raise ArgumentTypeError(
            "the routing has another type", expected="experts int32, weights float32",
            got=(experts.dtype, weights.dtype),
        )  # fmt: skip
    if experts.shape != weights.shape or experts.shape[0] != x.shape[0] or w.shape[2] != x.shape[1]:
        raise ArgumentError(
            "the routing and the experts do not fit the tokens", code="wrong-shape",
            expected="x (tokens, K), experts and weights (tokens, topk), w (experts, N, K)",
            got=[tuple(each.shape) for each in (x, experts, weights, w)],
        )  # fmt: skip
    of_k = _VECTOR_BYTES // x.element_size()
    if x.shape[1] % of_k or w.shape[1] % _VECTOR:
        raise ArgumentError(
            "K or N is not whole 16 bytes", expected=f"multiples of {of_k} and {_VECTOR}", got=tuple(w.shape[:0:-1]),
            code="wrong-layout",
        )  # fmt: skip
    return Product(TYPES[x.dtype], TYPES[w.dtype], TYPES[out_dtype(x)])
