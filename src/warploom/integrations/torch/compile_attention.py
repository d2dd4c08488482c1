"""`torch.compile(model, backend="warploom")`: scaled_dot_product_attention becomes the operator `warploom::attention`.

Calls with a mask, with dropout, of up to 16 queries, or that no kernel takes in place stay torch's.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from ...kernels.hopper.attention_decode_config import MOST_ROWS
from .attention import computes, tokens_before_heads
from .attention_forms import UNLIMITED

F = torch.nn.functional
SDPA = (F.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention)
PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""SDPA's positional parameters; `scale` and `enable_gqa` are keywords."""
OPTIONS = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
"""Their default values."""


def is_attention(node: fx.Node) -> bool:
    """True if a node is attention that a kernel of this library computes."""
    if node.op != "call_function" or node.target not in SDPA:
        return False
    given = arguments_of(node)
    query, key, value = (value_of(given[name]) for name in ("query", "key", "value"))
    if query is None or key is None or value is None or torch.is_autocast_enabled(query.device.type):
        return False
    if any(isinstance(given[name], fx.Node) for name in OPTIONS if name != "attn_mask"):
        return False  # known only when the graph runs
    asked = [given[name] for name in ("attn_mask", "dropout_p", "scale", "enable_gqa")]
    return computes(query, key, value, *asked) and query.shape[2] > MOST_ROWS


def replace_attention(graph: fx.Graph, node: fx.Node) -> None:
    """Replace such a node by the operator."""
    given = arguments_of(node)
    query, causal = value_of(given["query"]), "top-left" if given["is_causal"] else ""
    tokens_first = query is not None and tokens_before_heads(query)
    scale = None if given["scale"] is None else float(given["scale"])

    def turned(one: Any) -> Any:
        return graph.call_method("transpose", (one, 1, 2)) if tokens_first else one

    with graph.inserting_before(node):
        three = [turned(given[name]) for name in ("query", "key", "value")]
        options = (None, causal, scale, UNLIMITED, UNLIMITED, None, "bshd" if tokens_first else "bhsd")
        both = graph.call_function(torch.ops.warploom.attention.default, (*three, *options))
        made = turned(graph.call_function(operator.getitem, (both, 0)))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """SDPA's arguments by name."""
    return OPTIONS | dict(zip(PARAMETERS, node.args, strict=False)) | dict(node.kwargs)


def value_of(node: Any) -> Tensor | None:
    """The tensor, without memory, that a node represents."""
    found = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return found if isinstance(found, Tensor) else None
