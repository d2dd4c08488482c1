"""PyTorch: attention of sequences of different lengths with gradients, and under `torch.compile`.

The operators are `warploom::attention_varlen` and its gradient; see `attention`. Rows after the last sequence get a
gradient of 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError
from ...operators.attention import gradients, sequences
from ...operators.attention.gradient_calls import attention_varlen_backward
from ...operators.attention.request import check_from_ends, check_longest, check_options
from .arguments import plain
from .attention import check_tensors, refuse_outputs, sixteen_bits
from .attention_forms import fake_gradients, unpacked_window, window_pair
from .attention_gradients import check_gradient, check_setup, of_result, spread
from .custom_operator import define_both
from .tracing import untraced
from .transforms import looped, transformable

SCHEMA = (
    "attention_varlen"
    "(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor? sinks, int? longest, "
    "bool causal, float? scale, int left, int right, float? softcap) -> (Tensor, Tensor)"
)
BACKWARD_SCHEMA = (
    "attention_varlen_backward"
    "(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor? sinks, Tensor out, Tensor lse, "
    "Tensor grad, Tensor? lse_grad, bool causal, float? scale, int left, int right, float? softcap) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)


def attend_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None, *, causal: bool = False, scale: float | None = None, window: Any = None,
    softcap: float | None = None, sinks: Tensor | None = None, return_lse: bool = False, out: Any = None,
    lse: Any = None, config: Any = None,
) -> Any:  # fmt: skip
    """`warploom.attention_varlen` with gradients, autocast or tracing. Raises ArgumentError like it."""
    refuse_outputs(out, lse, config)
    if not torch.compiler.is_compiling():
        arrays = {"q": q, "k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
        check_tensors(arrays | ({} if sinks is None else {"sinks": sinks}))
        check_options(causal, scale, window, softcap)
        check_longest(max_seqlen_k)
        check_from_ends(causal)
    check_gradient((q, k, v, sinks))
    q, k, v = sixteen_bits(q, k, v)
    left, right = window_pair(window, bool(causal))
    scale = None if scale is None else float(scale)
    result, sums = _operator(
        plain(q), plain(k), plain(v), plain(cu_seqlens_q), plain(cu_seqlens_k), plain(sinks), max_seqlen_k,
        bool(causal), scale, left, right, softcap,
    )  # fmt: skip
    return (result, sums) if return_lse else result


def traced_varlen_backward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, out: Tensor, lse: Tensor, grad: Tensor,
    *, causal: bool = False, scale: float | None = None, window: Any = None, softcap: float | None = None,
    sinks: Tensor | None = None, lse_grad: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`warploom.attention_varlen_backward` in a graph."""
    left, right = window_pair(window, bool(causal))
    tensors = map(plain, (q, k, v, cu_seqlens_q, cu_seqlens_k, sinks, out, lse, grad, lse_grad))
    dq, dk, dv, _ = torch.ops.warploom.attention_varlen_backward(
        *tensors, bool(causal), None if scale is None else float(scale), left, right, softcap
    )
    return dq, dk, dv


def _run(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, sinks: Tensor | None,
    longest: int | None, causal: bool, scale: float | None, left: int, right: int, softcap: float | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        found: tuple[Tensor, Tensor] = sequences.attention_varlen(
            q, k, v, cu_seqlens_q, cu_seqlens_k, None, longest, causal=causal, scale=scale,
            window=unpacked_window(left, right), softcap=softcap, sinks=sinks, return_lse=True,
        )  # fmt: skip
    return found


def _fake(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    if q.ndim != 3 or v.ndim != 3:
        raise ArgumentError("attention_varlen takes three dimensions", expected="(rows, heads, dim)", got=f"{q.shape}")
    kind = torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype
    lengths = q.new_empty((1, q.shape[1], q.shape[0]), dtype=torch.float32)
    return q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=kind), lengths


def _run_backward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, sinks: Tensor | None, out: Tensor,
    lse: Tensor, grad: Tensor, lse_grad: Tensor | None, causal: bool, scale: float | None, left: int, right: int,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    tensors = {"q": q, "k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    grad, lse_grad = spread(grad), spread(lse_grad)
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        window = unpacked_window(left, right)
        options = {"causal": causal, "scale": scale, "window": window, "softcap": softcap}
        found = gradients.varlen_gradients(tensors, out, lse, grad, lse_grad, **options)
        sunk = q.new_zeros(0, dtype=torch.float32)
        if sinks is not None:  # a sink has no value (dP = 0), so its gradient is -P delta
            delta = (grad.float() * out.float()).sum(-1) - (0.0 if lse_grad is None else lse_grad[0].T)
            weight = torch.exp(sinks.float()[:, None] - lse[0]).nan_to_num(0.0).T
            exists = torch.arange(len(q), device=q.device) < cu_seqlens_q[-1]
            sunk = -torch.where(exists[:, None], weight * delta, 0.0).sum(0).to(sinks.dtype)
    return found.dq, found.dk, found.dv, sunk


def _fake_backward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, sinks: Tensor | None, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return fake_gradients(q, k, v, sinks)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, cu_seqlens_q, cu_seqlens_k, sinks, _, *options = inputs
    check_setup(ctx, q)
    out, lse = output
    ctx.save_for_backward(q, k, v, cu_seqlens_q, cu_seqlens_k, sinks, out, lse)
    ctx.options = options
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, lse_grad: Tensor | None) -> Any:
    *tensors, out, lse = ctx.saved_tensors
    grad = of_result(grad, out)
    dq, dk, dv, sunk = _gradient(*tensors, out, lse, grad, lse_grad, *ctx.options)
    return dq, dk, dv, None, None, None if tensors[-1] is None else sunk, *(None,) * 6


_LIBRARY = define_both((SCHEMA, _run, _fake, _backward, _setup), (BACKWARD_SCHEMA, _run_backward, _fake_backward))
_operator = transformable(torch.ops.warploom.attention_varlen, looped, _setup, _backward)
_gradient = transformable(torch.ops.warploom.attention_varlen_backward, looped)
sequences.attention_varlen._torchdynamo_inline = attend_varlen  # type: ignore[attr-defined]
untraced(sequences.attention_varlen)
attention_varlen_backward._torchdynamo_inline = traced_varlen_backward  # type: ignore[attr-defined]
untraced(attention_varlen_backward)
