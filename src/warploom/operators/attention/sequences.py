"""`attention_varlen`: packed sequences of different lengths, without padding."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...kernels.hopper.attention_config import Config
from ..dispatch_hook import load_torch_plugin, plugin_for
from .calls import compute, hashed
from .request import check_longest, read_varlen
from .scales import arrays_and_numbers


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    fast_accumulation: bool = False,
    return_lse: bool = False,
    out: Any = None,
    lse: Any = None,
    config: Config | None = None,
) -> Any:
    """Compute `attention` of packed sequences in one launch, with flash-attn's argument order.

    Args:
        q: (rows of all sequences, H, D), bf16, f16 or e4m3.
        k, v: (rows of all sequences, G, D) and (…, G, E).
        cu_seqlens_q, cu_seqlens_k: (sequences + 1,), s32: 0 and the end of each sequence, ascending. They stay on the
            GPU, without a host synchronisation. At most 512 sequences; any of them may be empty.
        max_seqlen_q, max_seqlen_k: length of the longest sequence; only a hint for the order of the work.
        causal, window, softcap, sinks, scale, fast_accumulation, config: as in `attention`; a sequence's last query
            sees its last key.
        q_scale, k_scale, v_scale: for e4m3, as in `attention`; arrays are (1, H), (1, G) and (1, G).
        return_lse: also return the log-sum-exp of the scores, (1, H, rows) f32.
        out, lse: arrays for the result, (rows, H, E), and the log-sum-exp.

    Rows after the last sequence are not written; such rows of k and v may be multiplied by 0, so they must be finite.
    If torch tensors require gradients, the result does, too, as in `attention`; `attention_varlen_backward` computes
    gradients of other arrays. Raises as `attention` does.
    """
    check_longest(max_seqlen_q, "max_seqlen_q")
    tensors = {"q": q, "k": k, "v": v, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    scales, numbers = arrays_and_numbers(q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
    tensors |= ({} if sinks is None else {"sinks": sinks}) | scales
    attend = getattr(plugin_for((q, k, v, sinks), transforms=True), "attend_varlen", None)
    if attend is not None and not (scales or numbers or fast_accumulation):  # a gradient, autocast or a tracer
        return attend(
            **tensors, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, causal=causal, scale=scale, window=window,
            softcap=softcap, return_lse=return_lse, out=out, lse=lse, config=config,
        )  # fmt: skip
    static = ("varlen", max_seqlen_k, causal, scale, hashed(window), softcap, fast_accumulation, config,
              sinks is not None, *scales, *numbers.items())  # fmt: skip
    reading = partial(
        read_varlen, longest=max_seqlen_k, causal=causal, scale=scale, window=window, softcap=softcap, numbers=numbers,
        fast_accumulation=fast_accumulation,
    )  # fmt: skip
    return compute(tensors, reading, static, out, lse, return_lse, config)


def _compiled(*arrays: Any, **options: Any) -> Any:
    """What torch.compile traces instead of `attention_varlen` until the PyTorch plug-in is loaded."""
    return load_torch_plugin() and attention_varlen._torchdynamo_inline(*arrays, **options)  # type: ignore[attr-defined]


attention_varlen._torchdynamo_inline = _compiled  # type: ignore[attr-defined]
