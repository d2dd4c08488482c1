"""PyTorch: attention with functions of scores and masks, and its gradients, also those of captured tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError
from ...operators.attention import calls, gradients
from ...operators.attention.functional import frozen, with_arrays
from ...operators.bind import outside
from ...operators.dispatch_hook import wants_gradient
from ...runtime.torch_transforms import active
from .attention_gradients import check_gradient, of_result, spread, sunken
from .custom_operator import OnceDifferentiable
from .tracing import outside_graphs
from .transforms import looped, transformable

FUNCTIONS = ("score_mod", "mask_mod", "block_mask")


@outside_graphs
def modified(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The result and the logarithms. Raises ArgumentError like `warploom.attention`, and if a mask captures a tensor
    that requires a gradient.

    The gradient is that of the functions as they are now. As for q, k and v, torch refuses it if a tensor that it needs
    is written in between.
    """
    functions, arrays = frozen(*[options[name] for name in FUNCTIONS])
    of_scores = {} if functions["score_mod"] is None else functions["score_mod"].arrays
    refuse_masks(arrays[len(of_scores) :])
    saved = differentiable(arrays)
    check_gradient((q, *saved))
    if any(map(wants_gradient, saved)):
        refuse_order()
    names = {id(each): name for name, each in of_scores.items()}
    found: tuple[Tensor, Tensor] = _modified(
        q, k, v, sinks, options | functions, [names.get(id(each)) for each in saved], *saved
    )
    return found


def differentiable(arrays: Sequence[Any]) -> list[Tensor]:
    """Those that autograd can save."""
    return [each for each in arrays if isinstance(each, Tensor) and not each.is_inference()]


def refuse_masks(arrays: Sequence[Any]) -> None:
    """Raise ArgumentError if a mask reads a tensor that requires a gradient."""
    for each in filter(wants_gradient, arrays):
        raise ArgumentError(
            "a mask captures a tensor that requires a gradient, but it is true or false, and has no derivative",
            expected="tensors without requires_grad", got=tuple(each.shape),
            hint="let the mask capture tensor.detach(), made in front of it",
        )  # fmt: skip


def refuse_order() -> None:
    """Raise ArgumentError, or warn, if torch may only use deterministic algorithms."""
    if not torch.are_deterministic_algorithms_enabled():
        return
    refused = ArgumentError(
        "gradients of tensors that a function of scores captures are added up in no fixed order",
        expected="torch.use_deterministic_algorithms(False), or tensors without requires_grad",
        got="torch.use_deterministic_algorithms(True)", code="no-fixed-order",
        hint="with warn_only=True this is a warning; the other gradients are the same in every run",
    )  # fmt: skip
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise refused
    warnings.warn(str(refused), stacklevel=outside())


def of_captured(sums: Any, tensor: Tensor) -> Tensor:
    """Return the gradient of a captured tensor from its sums; without scores it has none."""
    if sums is None:
        return torch.zeros_like(tensor)
    found = torch.as_tensor(sums, device=tensor.device)[: tensor.numel()]
    return found.view(tensor.shape).to(tensor.dtype)


def _run(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, options: dict[str, Any], names: list[str | None],
    *read: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result and the logarithms.

    options: with `frozen` functions, whose tensors are `read`. names: the kernels' names of those of them that the
    function of scores captures.
    """
    with torch.autocast(q.device.type, enabled=False):
        found: tuple[Tensor, Tensor] = calls.attention(q, k, v, sinks=sinks, return_lse=True, **reading(options, read))
    return found


def reading(options: dict[str, Any], read: Sequence[Tensor]) -> dict[str, Any]:
    """The options, with functions that read other tensors: inside of torch.func, what it has made of theirs."""
    functions, arrays = frozen(*[options[name] for name in FUNCTIONS])
    others = {id(each): other for each, other in zip(differentiable(arrays), read, strict=True)}
    return options | with_arrays(functions, others)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, sinks, ctx.options, ctx.names, *read = inputs
    ctx.save_for_backward(q, k, v, sinks, *output, *read)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, lse_grad: Tensor | None) -> Any:
    q, k, v, sinks, out, lse, *read = ctx.saved_tensors
    needed = ctx.needs_input_grad[-len(read) :] if read else ()
    wanted = [name if need else None for name, need in zip(ctx.names, needed, strict=True)]
    grad = of_result(grad, out)
    made = _gradient(q, k, v, sinks, out, lse, grad, lse_grad, ctx.options, wanted, *read)
    if torch.is_grad_enabled() and not active():  # create_graph=True: the gradient itself must be differentiable
        of = grad, lse_grad, q, k, v, *read
        made = [None if each is None else OnceDifferentiable.apply(each, *of) for each in made]
    return *made[:4], None, None, *made[4:]


def _run_backward(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    lse_grad: Tensor | None, options: dict[str, Any], wanted: list[str | None], *read: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of q, k, v, sinks and of those of the tensors `read` that have a name in `wanted`."""
    captured = [name for name in wanted if name is not None]
    if captured:
        refuse_order()
    grad, lse_grad = spread(grad), spread(lse_grad)
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        tensors, options = {"q": q, "k": k, "v": v}, reading(options, read)
        found = gradients.gradients(tensors, out, lse, grad, lse_grad=lse_grad, captured=captured, **options)
        sunk = None if sinks is None else sunken(sinks, lse, found.delta)
        added = [None if name is None else of_captured(found.captured.get(name), each)
                 for name, each in zip(wanted, read, strict=True)]  # fmt: skip
    return found.dq, found.dk, found.dv, sunk, *added


_modified: Any = transformable(_run, looped, _setup, _backward, always=True)
_gradient: Any = transformable(_run_backward, looped)
