"""PyTorch: a mixture of experts distributed over several GPUs, in one launch.

    y = warploom.torch.distributed.experts_matmul(x, experts, weights, w, group)

Rows of tokens go to the GPUs of their experts, are multiplied there, return and are added with their weights
(`kernels.hopper.expert_parallel`). Under `torch.compile` it is the operator `warploom::experts_matmul`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...operators.dispatch_hook import refuse_gradients
from . import expert_gradients, peer_experts
from .custom_operator import NAMESPACE, define, no_second_derivative
from .peer_launch import by_operator, name_of, ranks_of
from .symmetric import group_of

__all__ = ["experts_matmul"]

SCHEMA = (
    "experts_matmul(Tensor x, Tensor experts, Tensor weights, Tensor w, str group, int? capacity=None,"
    " str? activation=None, Tensor? scale_x=None, Tensor? scale_w=None) -> Tensor"
)


def experts_matmul(
    x: Tensor, experts: Tensor, weights: Tensor, w: Tensor, group: Any = None, *, capacity: int | None = None,
    activation: str | None = None, scale_x: Tensor | None = None, scale_w: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The sum over a token's experts of weight x activation(x Wᵀ), with tokens and experts on all ranks.

    Products come back rounded to the type of x, and are added in f32 in the order of a token's experts, so the result
    is deterministic.

    x, weights and w have gradients (`expert_gradients`); all ranks need the same ones, and run the backward pass
    together. With `out` or scales there is none.

    Args:
        x: (tokens, K), this rank's, contiguous; bf16 or f16, or eight bits with scales. Ranks may have different
            numbers of tokens, or none.
        experts: (tokens, topk) int32, indices over all ranks' experts; any other number means none and adds nothing.
        weights: (tokens, topk) f32.
        w: (experts / ranks, N, K), contiguous: the matrices of the experts from rank x experts / ranks on.
        group: the process group; by default the default one.
        capacity: the maximum number of tokens of any rank, equal on all ranks; x's by default. Memory is allocated for
            all ranks' rows going to one of them: ranks x capacity x topk of K.
        activation: "relu", "gelu", "gelu_tanh" or "silu".
        scale_x, scale_w: f32, for x and w of e4m3 or e5m2: (tokens,), and (experts,) for all ranks' experts, equal on
            all. The result is bf16; there is no activation then, and no gradient.
        out: (tokens, N), contiguous.

    Raises ArgumentError, ArgumentTypeError, PeerError; nothing is launched then.
    """
    wanted = torch.is_grad_enabled() and any(each.requires_grad for each in (x, weights, w) if isinstance(each, Tensor))
    if out is not None or scale_x is not None:
        refuse_gradients({"x": x, "weights": weights, "w": w})
    options = (capacity, activation, scale_x, scale_w)
    if (by_operator(x, experts, weights, w) or wanted) and out is None:
        return torch.ops.warploom.experts_matmul(x, experts, weights, w, name_of(group), *options)
    return peer_experts.experts_matmul(ranks_of(group), x, experts, weights, w, *options, out)


def _run(
    x: Tensor, experts: Tensor, weights: Tensor, w: Tensor, group: str, capacity: int | None = None,
    activation: str | None = None, scale_x: Tensor | None = None, scale_w: Tensor | None = None,
) -> Tensor:  # fmt: skip
    return peer_experts.experts_matmul(group_of(group), x, experts, weights, w, capacity, activation, scale_x, scale_w)


def _fake(x: Tensor, experts: Tensor, weights: Tensor, w: Tensor, *more: Any) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[1], dtype=peer_experts.out_dtype(x))


def _register() -> Any:
    """Define the operator; the library object must stay alive."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    define(library, SCHEMA, _run, _fake, expert_gradients.backward, expert_gradients.setup)
    refuse = no_second_derivative("experts_matmul", "a mixture of experts of torch's own products has one")
    define(library, expert_gradients.OF_W, expert_gradients.of_w, expert_gradients.fake_of_w, refuse)
    return library


_LIBRARY = _register()
