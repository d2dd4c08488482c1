"""PyTorch: communicating products from the library's plain product and the group's own collectives.

Used for CPU tensors, so that a plan runs under gloo as it will on GPUs, and for a group of one rank. The results equal
the kernels': partial sums are rounded to the result type, added in f32 in rank order, and rounded once.

Every call is first compared with the other ranks' (`Group.agree`): a missing rank is named after
`config.peer_timeout_s`, while a collective would wait for half an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from ...errors import ArgumentError, PeerError
from . import product
from .peer_epilogue import PeerEpilogue
from .symmetric import Group


def meet(known: Group, call: tuple[object, ...]) -> None:
    """Compare a call with the other ranks' before a group's collectives. Raises ArgumentError, PeerError."""
    if known.ranks == 1:
        return
    try:
        known.process_group._get_backend(torch.device("cpu"))
    except RuntimeError as error:
        raise ArgumentError(
            f"{call[0]} was given CPU tensors, but the group has no backend for them", code="wrong-device",
            expected="CUDA tensors of this rank's GPU, or a gloo group", got=known.process_group.name(),
            hint='init_process_group("gloo"), or "cpu:gloo,cuda:nccl"',
        ) from error  # fmt: skip
    known.agree(call)


def all_gather_matmul(
    known: Group, a: Tensor, b: Tensor, end: PeerEpilogue, out: Tensor, kept: Tensor | None, *, travel: bool
) -> Tensor:
    """The rows of A of all ranks times this rank's B. `travel`: each rank has the scales of its own rows."""
    rows = torch.cat(of_ranks(known, a))
    if kept is not None:
        kept.copy_(rows)
    if travel and end.scale_a is not None:
        end = replace(end, scale_a=torch.cat(of_ranks(known, end.scale_a.reshape(-1, 1))))
    return out.copy_(_part(rows, b, end))


def matmul_reduce_scatter(known: Group, a: Tensor, b: Tensor, end: PeerEpilogue, out: Tensor, *, mean: bool) -> Tensor:
    """This rank's rows of the sum over all ranks of A B, or of the mean."""
    total = _sum([each.chunk(known.ranks)[known.rank] for each in of_ranks(known, _part(a, b, end))])
    return out.copy_(total / known.ranks if mean else total)


def matmul_all_reduce(known: Group, a: Tensor, b: Tensor, end: PeerEpilogue, out: Tensor) -> Tensor:
    """The sum over all ranks of A B."""
    return out.copy_(_sum(of_ranks(known, _part(a, b, end))))


def experts_matmul(
    known: Group, x: Tensor, experts: Tensor, weights: Tensor, w: Tensor, capacity: int, activation: str | None,
    scales: Sequence[Tensor], out: Tensor,
) -> Tensor:  # fmt: skip
    """Return the weighted sums over each token's experts. Every rank computes its experts' rows for all tokens."""
    tokens, local = x.shape[0], w.shape[0]
    rows = torch.cat(of_ranks(known, _filled(x, capacity, 0)))
    chosen = torch.cat(of_ranks(known, _filled(experts, capacity, -1)))
    made = x.new_zeros(*chosen.shape, w.shape[1], dtype=out.dtype)
    for expert in range(local):
        token, slot = (chosen == known.rank * local + expert).nonzero(as_tuple=True)
        if len(token):
            named = {"activation": activation} if activation else {}
            made[token, slot] = product(rows[token], w[expert].mT, out_dtype=out.dtype, **named)
    mine = slice(known.rank * capacity, known.rank * capacity + tokens)
    back = _sum([each[mine] for each in of_ranks(known, made)])  # other ranks have zeros for an entry
    if scales:
        of_expert = scales[1][experts.long().clamp(0, local * known.ranks - 1)]
        weights = weights * (scales[0][:, None] * of_expert)
    total = back.new_zeros(tokens, w.shape[1])
    for entry in range(experts.shape[1]):
        total = total + weights[:, entry, None] * back[:, entry]
    return out.copy_(total)


def _filled(x: Tensor, rows: int, value: int) -> Tensor:
    """Pad to the same number of rows on each rank."""
    more = torch.full((rows - x.shape[0], x.shape[1]), value, dtype=torch.int32, device=x.device).to(x.dtype)
    return torch.cat([x.detach(), more])


def of_ranks(known: Group, x: Tensor) -> list[Tensor]:
    """Gather the tensors of all ranks, which have the same size, in rank order. Raises PeerError."""
    if known.ranks == 1:
        return [x]
    words = x.detach().contiguous().view(torch.uint8)
    parts = [torch.empty_like(words) for _ in range(known.ranks)]
    try:
        dist.all_gather(parts, words, group=known.process_group)
    except RuntimeError as error:  # of torch.distributed
        raise PeerError(
            "the group's all-gather failed: probably a rank has died", expected=f"all {known.ranks} ranks to live",
            got=str(error).partition("\n")[0], consequence="there is no result",
            hint="make a new group of the live ranks",
        ) from error  # fmt: skip
    return [each.view(x.dtype) for each in parts]


def _sum(parts: list[Tensor]) -> Tensor:
    """Add in f32 in rank order."""
    total = parts[0].float()
    for each in parts[1:]:
        total = total + each.float()
    return total


def _part(a: Tensor, b: Tensor, end: PeerEpilogue) -> Tensor:
    """Return this rank's product with scales and bias, rounded to the result type."""
    given: dict[str, Tensor] = {} if end.bias is None else {"bias": end.bias.detach().reshape(-1)}
    if end.scale_a is not None and end.scale_b is not None:
        single = end.scale_a.numel() == end.scale_b.numel() == 1
        given["scale_a"] = end.scale_a.detach().reshape(1 if single else (-1, 1))  # type: ignore[arg-type]
        given["scale_b"] = end.scale_b.detach().reshape(1 if single else (1, -1))  # type: ignore[arg-type]
    return product(a.detach(), b.detach(), out_dtype=end.out(a), **given)
