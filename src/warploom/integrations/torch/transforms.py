"""PyTorch: attention inside of torch.func (grad, vjp, vmap), for which torch's own operators with gradients fail.

    outside     torch.ops.warploom.attention(...)
    inside      a `torch.autograd.Function` around it, which has `setup_context`, `vmap` and `jvp`

A call under vmap is one of all samples if they make a larger batch (`folded`), else one for each sample (`looped`).
There is no forward mode, and there are no second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError
from ...runtime.torch_transforms import active
from .arguments import end_graph
from .custom_operator import refuse_second

Call = Callable[..., Any]


def transformable(
    call: Call, vmap: Call, setup: Call | None = None, backward: Call | None = None, *, always: bool = False
) -> Call:  # fmt: skip
    """The call, as a function that torch.func can transform.

    call: takes and returns what a `torch.autograd.Function` does. vmap: as `looped` and `folded` make it; it gets this
    function first. setup, backward: its gradient; without them it has none, and says so. always: it has its gradient
    outside of torch.func, too.
    """

    def of_samples(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return vmap(Transformed.apply, info.batch_size, in_dims, arguments)

    methods = {
        "forward": call, "setup_context": setup or _nothing, "backward": backward or refuse_second,
        "vmap": of_samples, "jvp": _no_forward_mode,
    }  # fmt: skip
    Transformed: Any = type("Transformed", (torch.autograd.Function,), {  # noqa: N806
        name: staticmethod(method) for name, method in methods.items()
    })  # fmt: skip

    def called(*arguments: Any) -> Any:
        if active() and torch.compiler.is_compiling():
            end_graph("attention inside of torch.func is not in graphs")
        return Transformed.apply(*arguments) if always or active() else call(*arguments)

    return called


def _nothing(ctx: Any, inputs: Any, output: Any) -> None:
    pass


def _no_forward_mode(*_: Any) -> Any:
    raise ArgumentError(
        "attention has no derivative in forward mode", expected="torch.func.grad, vjp or jacrev",
        got="torch.func.jvp, jacfwd or hessian",
        hint="torch's scaled_dot_product_attention under sdpa_kernel(SDPBackend.MATH) has one",
    )  # fmt: skip


def looped(call: Call, samples: int, in_dims: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, Any]:
    """Call once for each sample."""
    dims = [*zip(arguments, in_dims, strict=True)]
    of_sample = [[x.select(dim, at) if isinstance(dim, int) else x for x, dim in dims] for at in range(samples)]
    each = [call(*arguments) for arguments in of_sample]
    found = tuple(None if parts[0] is None else torch.stack(parts) for parts in zip(*each, strict=True))
    return found, tuple(None if one is None else 0 for one in found)


def folded(call: Call, samples: int, in_dims: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, Any]:
    """Call once, with the samples in the batch, which is the first dimension of all tensors and results."""

    def together(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        of_sample = x.expand(samples, *x.shape).contiguous() if dim is None else x.movedim(dim, 0)
        return of_sample.flatten(0, 1)

    found = call(*[together(*each) for each in zip(arguments, in_dims, strict=True)])
    return tuple(x.unflatten(0, (samples, -1)) for x in found), (0,) * len(found)
