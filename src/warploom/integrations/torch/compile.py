"""`torch.compile(model, backend="warploom")`: Inductor, with this library's products and attention.

    linear(x, w, b)                           ->   warploom::matmul(x, wᵀ, bias=b)
    activation(linear(x, w))                  ->   the same, activation=...
    activation(linear(x, w)) * y              ->   the same, gate=y
    residual + linear(x, w)                   ->   the same, c=residual, beta=1
    scaled_dot_product_attention(q, k, v)     ->   warploom::attention (`compile_attention`)

Dynamo's graph is rewritten before gradients and decompositions, so a training step benefits too (the operator has a
gradient). Everything else is Inductor's. Products of 16-bit floats are replaced if TMA can address their rows.

    torch.compile(model, backend="warploom")
    torch.compile(model, backend="warploom", options={"mode": "max-autotune"})     one of Inductor's modes
    torch.compile(model, backend="warploom", options={"inner": "eager"})           another backend behind the rewriting
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import fx

from ...errors import ArgumentError
from .arguments import SIXTEEN
from .compile_attention import is_attention, replace_attention, value_of

F = torch.nn.functional
NAME = "warploom"
LINEAR = (F.linear, torch._C._nn.linear)
TIMES, PLUS = (operator.mul, torch.mul), (operator.add, torch.add)
METHODS = {"mul": TIMES[0], "add": PLUS[0]}


def backend(graph: fx.GraphModule, inputs: Sequence[Any], *, options: dict[str, Any] | None = None, **more: Any) -> Any:
    """The backend that Dynamo calls with a graph. Raises ArgumentError for an option that is not one."""
    given = {**(options or {}), **more}
    inner, mode = given.pop("inner", "inductor"), given.pop("mode", None)
    rewrite(graph)
    if inner != "inductor":
        if given or mode is not None:
            raise ArgumentError(
                f"the backend warploom has no such options with inner={inner!r}", got=repr(given or mode),
                expected="mode and Inductor's options with Inductor only",
            )  # fmt: skip
        return torch._dynamo.lookup_backend(inner)(graph, inputs)
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, list(inputs), config_patches={**(list_mode_options(mode) if mode else {}), **given})


def register() -> None:
    """Let torch.compile find the backend by its name.

    An installed package is found by its entry point. Only one that is not installed is registered with Dynamo, whose
    import takes longer than torch's own.
    """
    if any(each.name == NAME for each in entry_points(group="torch_dynamo_backends")):
        return
    if NAME not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(backend, name=NAME)


def rewrite(graph: fx.GraphModule) -> int:
    """Replace products and attention by this library's operators, in place. Returns their number."""
    count = 0
    for node in list(graph.graph.nodes):
        if is_product(node):
            _replace(graph.graph, node, *_end_of(node))
        elif is_attention(node):
            replace_attention(graph.graph, node)
        else:
            continue
        count += 1
    if count:
        graph.graph.eliminate_dead_code()
        graph.graph.lint()
        graph.recompile()
    return count


def is_product(node: fx.Node) -> bool:
    """True if a node is a linear layer's product that the library computes without copying an operand."""
    if node.op != "call_function" or node.target not in LINEAR or node.kwargs or len(node.args) not in (2, 3):
        return False
    x, weight = value_of(node.args[0]), value_of(node.args[1])
    if x is None or weight is None or weight.ndim != 2 or x.ndim < 2:
        return False
    bias = value_of(node.args[2]) if len(node.args) == 3 and node.args[2] is not None else None
    kinds = {each.dtype for each in (x, weight, bias) if each is not None}
    if len(kinds) > 1 or x.dtype not in SIXTEEN or torch.is_autocast_enabled(x.device.type):
        return False
    width = weight.shape[1]
    return isinstance(width, int) and width * x.element_size() % 16 == 0


def _end_of(product: fx.Node) -> tuple[fx.Node, dict[str, Any]]:
    """The last node that the kernel of a product can compute, and the options for it."""
    last, options = product, {}
    after = _only_user(last)
    if after is not None and (name := activation_of(after)) is not None:
        last, options["activation"] = after, name
        after = _only_user(last)
        if after is not None and (other := _other(after, last, TIMES)) is not None:
            return after, {**options, "gate": other}
        return last, options
    if after is not None and (other := _other(after, last, PLUS)) is not None:
        return after, {"c": other, "beta": 1.0}
    return last, options


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def activation_of(node: fx.Node) -> str | None:
    """The library's name for an activation that a node applies to its only tensor."""
    if node.op != "call_function" or node.kwargs.get("inplace") or len(node.args) > 1:
        return None
    if node.target in (F.silu, torch._C._nn.silu if hasattr(torch._C._nn, "silu") else F.silu):
        return "silu"
    if node.target in (F.relu, torch.relu):
        return "relu"
    if node.target in (F.gelu, torch._C._nn.gelu):
        return {"none": "gelu", "tanh": "gelu_tanh"}.get(str(node.kwargs.get("approximate", "none")))
    return None


def _other(node: fx.Node, mine: fx.Node, targets: Sequence[Callable[..., Any]]) -> fx.Node | None:
    """The other operand of a product or sum, of the same type, shape and device; None for another node."""
    target = METHODS.get(str(node.target)) if node.op == "call_method" else node.target
    if node.op not in ("call_function", "call_method") or target not in targets or node.kwargs or len(node.args) != 2:
        return None
    others = [each for each in node.args if each is not mine]
    if len(others) != 1 or not isinstance(others[0], fx.Node):
        return None
    one, other = value_of(mine), value_of(others[0])
    if one is None or other is None or (one.dtype, one.shape, one.device) != (other.dtype, other.shape, other.device):
        return None
    return others[0]


def _replace(graph: fx.Graph, product: fx.Node, last: fx.Node, options: dict[str, Any]) -> None:
    """Replace `last` by one call of the operator, if all of its arguments are known."""
    x, weight, *bias = product.args
    if bias and bias[0] is not None:
        options = {**options, "bias": bias[0]}
    with graph.inserting_before(last):
        turned = graph.call_method("t", (weight,))
        made = graph.call_function(torch.ops.warploom.matmul.default, (x, turned), options)
    turned.meta = {"example_value": value_of(weight).t()}  # type: ignore[union-attr]
    made.meta = dict(last.meta)
    last.replace_all_uses_with(made)
    for node in (last, *(each for each in (_before(last, product), product) if each is not None and each is not last)):
        if not node.users:
            graph.erase_node(node)


def _before(last: fx.Node, product: fx.Node) -> fx.Node | None:
    """The node between a product and the end of the fused part, if there is one."""
    between = _only_user(product)
    return between if between is not None and between is not last else None
