"""PyTorch: registers an operator of this library with `torch.library`, and refuses second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import ArgumentError
from .tracing import untraced

NAMESPACE = "warploom"
DEVICES = ("CPU", "CUDA")


def define(
    library: torch.library.Library, schema: str, run: Callable[..., Any], fake: Callable[..., Any],
    backward: Callable[..., Any] | None = None, setup: Callable[..., Any] | None = None,
) -> None:  # fmt: skip
    """Define an operator in a library object, which must live as long as the operator.

    Args:
        schema: its name, arguments and results.
        run: computes it, on each of DEVICES. fake: creates results with its shapes and types.
        backward, setup: its gradient, and what is kept for it; without them it has none.
    """
    name = schema.partition("(")[0]
    untraced(run)  # a graph that has broken around torch.func or autograd.grad would trace how kernels are made
    library.define(schema)
    for device in DEVICES:
        library.impl(name, run, device)
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)
    if backward is not None:
        torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup, lib=library)


def no_second_derivative(of: str, hint: str) -> Callable[..., Any]:
    """A backward function that refuses: torch would otherwise take a missing gradient for zero."""

    def refuse(*_: Any) -> Any:
        raise ArgumentError(f"{of} has no second derivative", expected="gradients of results, once", hint=hint)

    return refuse


refuse_second = no_second_derivative(
    "attention", "torch's scaled_dot_product_attention under sdpa_kernel(SDPBackend.MATH) has one"
)


def define_both(forward: tuple[Any, ...], backward: tuple[Any, ...]) -> torch.library.Library:
    """Define an attention operator and its gradient operator, each by the arguments of `define` after the library;
    the returned library object must stay alive."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    define(library, *forward)
    schema, run, fake = backward
    define(library, schema, run, fake, refuse_second, lambda *_, **__: None)
    return library


class OnceDifferentiable(torch.autograd.Function):
    """A gradient without a gradient of its own: `OnceDifferentiable.apply(gradient, *what it depends on)`."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, *_: Any) -> torch.Tensor:
        return gradient.view_as(gradient)

    backward = staticmethod(refuse_second)
