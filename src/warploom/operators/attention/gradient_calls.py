"""`attention_backward` and `attention_varlen_backward`: gradients of arrays of any framework, by explicit calls."""

from __future__ import annotations

from typing import Any

from ...errors import ArgumentError
from ..dispatch_hook import load_torch_plugin
from .backward import CHOSEN, UNORDERED
from .gradients import gradients, varlen_gradients


def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    grad: Any,
    *,
    causal: bool | str = False,
    scale: float | None = None,
    window: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    score_mod: Any = None,
    mask_mod: Any = None,
    block_mask: Any = None,
    layout: str = "bhsd",
    lse_grad: Any = None,
    deterministic: bool = True,
) -> tuple[Any, Any, Any]:
    """Compute the gradients of q, k and v of `attention`, bitwise the same in every run by default.

    Args:
        q, k, v, causal, scale, window, softcap, sinks, layout: the arguments of the `attention` call.
        score_mod, mask_mod, block_mask: the same. A score function is differentiated with respect to the score while
            it is traced, and so is a softcap; gradients of captured arrays are not returned (torch's autograd returns
            them). Tiles that a block mask leaves out are not computed, as those outside of `causal` and `window`.
        out, lse: the results of `attention` with return_lse=True.
        grad: gradient of `out`, with its shape and type. lse_grad: gradient of `lse`, likewise; none by default.
        deterministic: False lets the kernel add up the rows of dQ in any order.

    Raises as `attention` does.
    """
    if not isinstance(deterministic, bool):
        raise ArgumentError("`deterministic` is unknown", expected="True or False", got=repr(deterministic))
    found = gradients(
        {"q": q, "k": k, "v": v} | ({} if sinks is None else {"sinks": sinks}), out, lse, grad,
        causal=causal, scale=scale, window=window, softcap=softcap, layout=layout, score_mod=score_mod,
        mask_mod=mask_mod, block_mask=block_mask, lse_grad=lse_grad, choice=CHOSEN if deterministic else UNORDERED,
    )  # fmt: skip
    return found.dq, found.dk, found.dv


def attention_varlen_backward(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    out: Any,
    lse: Any,
    grad: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    lse_grad: Any = None,
) -> tuple[Any, Any, Any]:
    """Compute the gradients of q, k and v of `attention_varlen`, bitwise the same in every run.

    Args:
        q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, window, softcap, sinks: the arguments of the
            `attention_varlen` call.
        out, lse: its results with return_lse=True.
        grad: gradient of `out`, with its shape and type. lse_grad: gradient of `lse`, likewise; none by default.

    Rows after the last sequence get 0. Raises as `attention_varlen` does.
    """
    tensors = {"q": q, "k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    tensors |= {} if sinks is None else {"sinks": sinks}
    options = {"causal": causal, "scale": scale, "window": window, "softcap": softcap}
    found = varlen_gradients(tensors, out, lse, grad, lse_grad, **options)
    return found.dq, found.dk, found.dv


def _compiled(*arrays: Any, **options: Any) -> Any:
    """What torch.compile traces instead of `attention_backward` until the PyTorch plug-in is loaded."""
    return load_torch_plugin() and attention_backward._torchdynamo_inline(*arrays, **options)  # type: ignore[attr-defined]


def _compiled_varlen(*arrays: Any, **options: Any) -> Any:
    """The same of `attention_varlen_backward`."""
    return load_torch_plugin() and attention_varlen_backward._torchdynamo_inline(*arrays, **options)  # type: ignore[attr-defined]


attention_backward._torchdynamo_inline = _compiled  # type: ignore[attr-defined]
attention_varlen_backward._torchdynamo_inline = _compiled_varlen  # type: ignore[attr-defined]
