"""PyTorch: what the gradients of all attention calls share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentTypeError
from ...operators.attention import gradients


def check_gradient(tensors: tuple[Tensor | None, ...]) -> None:
    """Raise ArgumentError or ArgumentTypeError, before any launch, if a gradient is required on a GPU or of a type
    without backward kernels. A traced graph is checked when its gradient is set up."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return
    if any(x is not None and x.requires_grad for x in tensors):
        assert tensors[0] is not None
        _check_kernels(tensors[0])


def check_setup(ctx: Any, q: Tensor) -> None:
    """The same where a gradient is set up: in a graph, and inside of torch.func, also of calls that have none."""
    if any(ctx.needs_input_grad):
        _check_kernels(q)


def _check_kernels(q: Tensor) -> None:
    """Raise ArgumentError or ArgumentTypeError if there are no backward kernels for the GPU or the type of `q`."""
    gradients.check_differentiable(q.device.type, q.device.index)
    if q.dtype is torch.float8_e4m3fn:
        raise ArgumentTypeError(
            "attention in e4m3 has no gradients", expected="bf16 or f16 tensors, or none that requires a gradient",
            got="q e4m3", hint="call it under torch.no_grad(), or on tensors after .detach()",
        )  # fmt: skip


def of_result(grad: Tensor | None, out: Tensor) -> Tensor:
    """Return the gradient of a result: zeros if it is unused."""
    return torch.zeros_like(out) if grad is None else grad


def spread(grad: Any) -> Any:
    """Return a gradient, or None, as the kernels read it. That of a sum is one broadcast number; that of a result whose
    heads are put together, as in most models, has its strides."""
    return None if grad is None else grad.contiguous()


def sunken(sinks: Tensor, lse: Tensor, delta: Any) -> Tensor:
    """Return the gradient of sinks. A sink has no value, so only the softmax's denominator depends on it."""
    if delta is None:
        return torch.zeros_like(sinks)
    given = torch.as_tensor(delta, device=sinks.device)[..., : lse.shape[-1]]
    weight = torch.exp(sinks.float()[None, :, None] - lse).nan_to_num(0.0)
    return -(weight * given).sum((0, 2)).to(sinks.dtype)
