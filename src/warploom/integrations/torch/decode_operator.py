"""PyTorch: attention of the newest tokens over a cache as an operator, `warploom::attention_decode`, for graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...operators.attention.decode import attention_decode, attention_step
from ...operators.attention.scales import arrays_and_numbers
from .arguments import end_graph, plain
from .attention import refuse_outputs
from .attention_forms import unpacked_window, window_pair
from .custom_operator import NAMESPACE, define
from .tracing import untraced

SCHEMA = (
    "attention_decode"
    "(Tensor q, Tensor k, Tensor v, Tensor lengths, Tensor? table, Tensor? sinks, Tensor? k_scale, Tensor? v_scale, "
    "float? k_factor, float? v_factor, bool causal, float? scale, int left, int right, float? softcap, str layout, "
    "bool constant_lengths) -> (Tensor, Tensor)"
)


def traced_decode(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, *, table: Tensor | None = None, causal: bool = True,
    scale: float | None = None, window: Any = None, softcap: float | None = None, sinks: Tensor | None = None,
    k_scale: Any = None, v_scale: Any = None, layout: str = "bhsd", return_lse: bool = False, out: Any = None,
    lse: Any = None, config: Any = None, constant_lengths: bool = False,
) -> Any:  # fmt: skip
    """`warploom.attention_decode` in a graph. Its values are checked when the graph runs."""
    refuse_outputs(out, lse, config)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, sinks)):
        end_graph("attention_decode has no gradient")  # the call says so
    arrays, numbers = arrays_and_numbers(k_scale=k_scale, v_scale=v_scale)
    left, right = window_pair(window, True)
    result, sums = torch.ops.warploom.attention_decode(
        plain(q), plain(k), plain(v), plain(lengths), plain(table), plain(sinks), arrays.get("k_scale"),
        arrays.get("v_scale"), numbers.get("k_scale"), numbers.get("v_scale"), causal,
        None if scale is None else float(scale), left, right, softcap, layout, constant_lengths,
    )  # fmt: skip
    return (result, sums) if return_lse else result


def _run(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, table: Tensor | None, sinks: Tensor | None,
    k_scale: Tensor | None, v_scale: Tensor | None, k_factor: float | None, v_factor: float | None, causal: bool,
    scale: float | None, left: int, right: int, softcap: float | None, layout: str, constant_lengths: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    given = {"q": q, "k": k, "v": v, "lengths": lengths, "table": table, "sinks": sinks, "k_scale": k_scale,
             "v_scale": v_scale}  # fmt: skip
    factors = {"k_scale": k_factor, "v_scale": v_factor}
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        found: tuple[Tensor, Tensor] = attention_step(
            {name: value for name, value in given.items() if value is not None},
            numbers={name: value for name, value in factors.items() if value is not None}, layout=layout, causal=causal,
            scale=scale, window=unpacked_window(left, right), softcap=softcap, constant_lengths=constant_lengths,
        )  # fmt: skip
    return found


def _fake(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    tokens, heads = (1, 2) if more[-2] == "bshd" else (2, 1)
    rows = q.shape[tokens] if q.ndim == 4 else 1
    lengths = q.new_empty((q.shape[0], q.shape[heads if q.ndim == 4 else 1], rows), dtype=torch.float32)
    return q.new_empty((*q.shape[:-1], v.shape[-1])), lengths


_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
define(_LIBRARY, SCHEMA, _run, _fake)
attention_decode._torchdynamo_inline = traced_decode  # type: ignore[attr-defined]
untraced(attention_decode)
