"""Finds the framework that handles a call itself before the product is computed: for gradients, autocast or tracing.

`warploom.integrations` is a higher layer, so it is not imported here. It is loaded by name, like a plug-in, when an
array of its framework first needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..errors import ArgumentError
from ..runtime import torch_transforms
from ..runtime.arrays import root_module

PLUGINS = {"torch": "warploom.integrations.torch", "jax": "warploom.integrations.jax"}


def plugin_for(arrays: tuple[Any, ...], transforms: bool = False) -> Any:
    """The plug-in that handles a call with these arrays instead of this layer, or None.

    It has `dispatch(what, a, b, out, options)`, where `what` is "matmul" or "linear". JAX arrays always have one. Torch
    tensors have one if a gradient is needed, autocast is on, or their class is a subclass (fake, traced, or
    user-defined); with `transforms` also inside of torch.func.
    """
    transforms = transforms and torch_transforms.active()
    for array in arrays:
        if array is None:
            continue
        root = root_module(array)
        if root in ("jax", "jaxlib"):
            return import_module(PLUGINS["jax"])
        if root == "torch":
            transformed = transforms and torch_transforms.is_transformed(array)
            if transformed or _torch_wants(sys.modules["torch"], array):
                return import_module(PLUGINS["torch"])
    return None


def load_torch_plugin() -> bool:
    """Load the PyTorch plug-in; True. torch.compile runs this while it traces a function that delegates to the plug-in:
    it follows the function's attribute `_torchdynamo_inline`, which the plug-in replaces by what is to be traced."""
    import_module(PLUGINS["torch"])
    return True


load_torch_plugin._dynamo_marked_constant = True  # type: ignore[attr-defined]


def wants_gradient(array: Any) -> bool:
    """True if autograd expects the gradient of an array."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.is_grad_enabled() and isinstance(array, torch.Tensor) and array.requires_grad


def refuse_gradients(arrays: Mapping[str, Any]) -> None:
    """Raise ArgumentError if autograd expects a gradient, which would silently be missing."""
    for name, value in arrays.items():
        if wants_gradient(value):
            raise ArgumentError(
                f"`{name}` requires a gradient, which this call does not support",
                expected="tensors without requires_grad", hint="call it under torch.no_grad()",
            )  # fmt: skip


def _torch_wants(torch: Any, tensor: Any) -> bool:
    if not isinstance(tensor, torch.Tensor):  # torch.bfloat16, say, which the checks will refuse
        return False
    if torch.is_grad_enabled() and tensor.requires_grad:
        return True
    kind = tensor.device.type
    if kind in ("cuda", "cpu") and torch.is_autocast_enabled(kind) and tensor.dtype is torch.float32:
        return True
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)
