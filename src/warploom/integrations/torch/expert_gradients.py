"""PyTorch: the gradients of experts that are distributed over several GPUs.

With z the product of a token's row x and one of its experts' W, f the activation, c the weight and g the gradient of y,

    dz = c g f'(z)     dx = the sum over its experts of dz W     dc = the sum over columns of g f(z)     dW = dzᵀ x

dx is `experts_matmul` with transposed matrices. z, if needed, is recomputed by `experts_matmul` with every
entry (a token and one of its experts) as a separate token of weight 1: it has been rounded to the type of x. For dW the
rows x and dz go to the GPUs of their experts by the group's all-to-all, and each expert has a product.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...operators.spec.activations import ACTIVATIONS
from . import product
from .symmetric import group_of

OF_W = "experts_matmul_gradient_of_w(Tensor x, Tensor dz, Tensor experts, str group, int local) -> Tensor"


def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what `backward` needs."""
    *tensors, ctx.group, ctx.capacity, ctx.activation, _, _ = inputs
    ctx.save_for_backward(*tensors)


def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of the operator's arguments. All ranks call this together, and need the same ones."""
    x, experts, weights, w = ctx.saved_tensors
    of_x, _, of_weights, of_w, *_ = ctx.needs_input_grad
    grad, f, (tokens, topk) = grad.contiguous(), ctx.activation, experts.shape
    capacity = tokens if ctx.capacity is None else ctx.capacity
    entries = experts.reshape(-1, 1)
    ones = weights.new_ones(tokens * topk, 1)
    x_grad, weights_grad, w_grad = None, None, None
    z = None
    if of_weights or f is not None:
        rows = x.repeat_interleave(topk, 0)
        z = _experts(rows, entries, ones, w, ctx.group, capacity * topk).float()
    of_rows = grad.float().repeat_interleave(topk, 0)
    if of_weights and z is not None:
        y = z if f is None else ACTIVATIONS[f].forward(z, torch)
        weights_grad = (of_rows * y).sum(-1).view(tokens, topk)
    if of_x and f is None:
        x_grad = _experts(grad, experts, weights, w.mT.contiguous(), ctx.group, capacity)
    if of_w or f is not None:
        dz = of_rows * weights.reshape(-1, 1)
        if f is not None and z is not None:
            dz = dz * ACTIVATIONS[f].slope(z, torch)
        dz = dz.to(x.dtype)
        if of_x and f is not None:
            back = _experts(dz, entries, ones, w.mT.contiguous(), ctx.group, capacity * topk)
            x_grad = back.unflatten(0, (tokens, topk)).float().sum(1).to(x.dtype)
        if of_w:
            w_grad = torch.ops.warploom.experts_matmul_gradient_of_w(x, dz, experts, ctx.group, w.shape[0])
    return x_grad, None, weights_grad, w_grad, *(None,) * 5


def _experts(x: Tensor, experts: Tensor, weights: Tensor, w: Tensor, group: str, capacity: int) -> Tensor:
    return torch.ops.warploom.experts_matmul(x, experts, weights, w, group, capacity)


def of_w(x: Tensor, dz: Tensor, experts: Tensor, group: str, local: int) -> Tensor:
    """The gradient of this rank's matrices (local, N, K).

    x: (tokens, K). dz: (tokens x topk, N). experts: (tokens, topk). Called by all ranks of the group; the sizes of the
    exchanged data are read on the host.
    """
    known = group_of(group)
    flat, topk = experts.reshape(-1).long(), experts.shape[1]
    valid = (flat >= 0) & (flat < local * known.ranks)
    order = flat.where(valid, local * known.ranks).argsort(stable=True)[: int(valid.sum())]
    counts = torch.bincount(flat[order], minlength=local * known.ranks)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=known.process_group)
    sent, came = (each.view(known.ranks, local).sum(1).tolist() for each in (counts, arriving))

    def moved(rows: Tensor) -> Tensor:
        here = rows.new_empty(sum(came), rows.shape[1])
        dist.all_to_all_single(
            here.view(torch.uint8), rows.contiguous().view(torch.uint8), came, sent, group=known.process_group
        )
        return here

    rows, slopes = moved(x[order // topk]), moved(dz[order])
    of_expert = torch.arange(local, device=x.device).repeat(known.ranks).repeat_interleave(arriving)
    grads = x.new_zeros(local, dz.shape[1], x.shape[1])
    for expert in range(local):
        mine = (of_expert == expert).nonzero().view(-1)
        if len(mine):
            grads[expert] = product(slopes[mine].mT, rows[mine], out_dtype=x.dtype)
    return grads


def fake_of_w(x: Tensor, dz: Tensor, experts: Tensor, group: str, local: int) -> Tensor:
    """An empty tensor with the shape and type of the weights' gradient, for torch's tracing."""
    return x.new_empty(local, dz.shape[1], x.shape[1])
