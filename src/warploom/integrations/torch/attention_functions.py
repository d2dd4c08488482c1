"""PyTorch: attention with functions of scores and masks, with gradients. It causes a graph break."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...operators.attention import calls, gradients
from ...operators.attention.captured import captured
from ...operators.dispatch_hook import refuse_gradients
from .custom_operator import OnceDifferentiable


@torch.compiler.disable
def modified(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The result and the logarithms. Raises ArgumentError like `warploom.attention`, and if a function captures a
    tensor that requires a gradient."""
    for name in ("score_mod", "mask_mod"):
        if options[name] is not None:
            given = captured(options[name], name).given
            refuse_gradients({f"a tensor that {name} captures": each for each in given})
    found: tuple[Tensor, Tensor] = _Modified.apply(q, k, v, sinks, options)
    return found


class _Modified(torch.autograd.Function):
    """Attention with functions, for autograd."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(q.device.type, enabled=False):
            out, lse = calls.attention(q, k, v, sinks=sinks, return_lse=True, **options)
        ctx.save_for_backward(q, k, v, sinks, out, lse)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, lse_grad: Tensor | None) -> Any:
        from .attention import of_result, spread, sunken

        q, k, v, sinks, out, lse = ctx.saved_tensors
        grad, lse_grad = spread(of_result(grad, out)), spread(lse_grad)
        with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
            tensors = {"q": q, "k": k, "v": v}
            found = gradients.gradients(tensors, out, lse, grad, lse_grad=lse_grad, **ctx.options)
            sunk = None if sinks is None else sunken(sinks, lse, found.delta)
        made = [found.dq, found.dk, found.dv, sunk]
        if torch.is_grad_enabled():  # create_graph=True: the gradient itself must be differentiable
            made = [None if each is None else OnceDifferentiable.apply(each, grad, lse_grad, q, k, v) for each in made]
        return *made, None
