"""What torch's function transforms and forward mode make of tensors: forms that no kernel can read."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ArgumentError


def active() -> bool:
    """True inside of a function that torch.func transforms."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch._C._are_functorch_transforms_active())


def is_transformed(value: Any) -> bool:
    """True for a tensor as torch.func shows it to a function that it transforms."""
    if not active():
        return False
    torch = sys.modules["torch"]
    return isinstance(value, torch.Tensor) and bool(torch._C._functorch.is_functorch_wrapped_tensor(value))


def has_tangent(tensor: Any) -> bool:
    """True for a dual torch tensor, of forward-mode differentiation."""
    forward = sys.modules["torch"].autograd.forward_ad
    return forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None


def check_plain(tensor: Any, name: str) -> None:
    """Raise ArgumentError for a torch tensor whose memory is not all that it is."""
    if is_transformed(tensor):
        raise ArgumentError(
            f"argument `{name}` is a tensor inside of torch.func, which has no memory of its own",
            expected="a tensor that holds its elements",
            hint="attention and attention_varlen have grad, vjp and vmap there; call other kernels outside",
        )
    if has_tangent(tensor):
        raise ArgumentError(
            f"argument `{name}` has a tangent, but no kernel computes derivatives in forward mode",
            expected="a tensor without one", hint="torch.autograd.grad and torch.func.vjp go backward",
        )  # fmt: skip
