"""flash-attn's functions, with its names and arguments, so that its users change one import.

    from warploom.torch import flash_attn_func      # instead of: from flash_attn import flash_attn_func

Arguments have flash-attn 2's order. Unsupported features are refused: dropout, rotary embeddings, caches with an index
or with left padding. `deterministic` and `num_splits` are accepted but have no effect: every sum has a fixed order, and
the kernel chooses the splits. Two things differ: a query that sees no key has -inf as log-sum-exp (flash-attn: inf),
and `return_attn_probs` returns None for the probabilities.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError
from ...operators.attention import calls, decode, sequences

__all__ = [
    "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache",
]  # fmt: skip
Window = tuple[int, int]
NO_WINDOW = (-1, -1)


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Window = NO_WINDOW, softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of q (B, S, H, D), k (B, T, G, D) and v (B, T, G, E).

    Returns (B, S, H, E); with `return_attn_probs` also the log-sum-exp (B, H, S), and None. `alibi_slopes`: (H,) or
    (B, H) f32: the head's slope times the distance between key and query position is subtracted from a score.
    """
    refuse(dropout_p=dropout_p)
    given = options(softmax_scale, causal, window_size, softcap)
    if alibi_slopes is not None:
        batch, _, heads, _ = q.shape
        if alibi_slopes.shape not in ((heads,), (batch, heads)):
            raise ArgumentError("`alibi_slopes` has the wrong shape", expected=f"({heads},) or ({batch}, {heads})",
                                got=tuple(alibi_slopes.shape), code="wrong-shape")  # fmt: skip
        given["score_mod"] = alibi(alibi_slopes, k.shape[1] - q.shape[1])
    out, lse = calls.attention(q, k, v, layout="bshd", return_lse=True, **given)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_qkvpacked_func(qkv: Tensor, *given: Any, **named: Any) -> Any:
    """`flash_attn_func` of qkv (B, S, 3, H, D)."""
    q, k, v = parts(qkv, 2, 3, "qkv")
    return flash_attn_func(q, k, v, *given, **named)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *given: Any, **named: Any) -> Any:
    """`flash_attn_func` of kv (B, T, 2, G, D)."""
    k, v = parts(kv, 2, 2, "kv")
    return flash_attn_func(q, k, v, *given, **named)


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False, window_size: Window = NO_WINDOW,
    softcap: float = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: bool = False, block_table: Tensor | None = None,
) -> Any:  # fmt: skip
    """Attention of packed sequences: q (rows, H, D), k and v (rows, G, D).

    With `return_attn_probs` also returns the log-sum-exp (H, rows), and None.
    """
    refuse(dropout_p=dropout_p, alibi_slopes=alibi_slopes, block_table=block_table)
    out, lse = sequences.attention_varlen(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, return_lse=True,
        **options(softmax_scale, causal, window_size, softcap),
    )  # fmt: skip
    return (out, lse[0], None) if return_attn_probs else out


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *given: Any, **named: Any
) -> Any:
    """`flash_attn_varlen_func` of qkv (rows, 3, H, D)."""
    q, k, v = parts(qkv, 1, 3, "qkv")
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *given, **named)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *given: Any, **named: Any) -> Any:
    """`flash_attn_varlen_func` of kv (rows, 2, G, D)."""
    k, v = parts(kv, 1, 2, "kv")
    return flash_attn_varlen_func(q, k, v, *given, **named)


def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
    rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None, cache_seqlens: Any = None,
    cache_batch_idx: Tensor | None = None, cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: Window = NO_WINDOW, softcap: float = 0.0,
    rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None, num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:  # fmt: skip
    """Attention of the newest 1 to 16 tokens q (B, R, H, D) to a cache (B, capacity, G, D), or, with `block_table`, to
    pages (N, P, G, D).

    Args:
        k, v: (B, new, G, D): first appended to the cache after each sequence's `cache_seqlens` keys.
        cache_seqlens: (B,) s32, or a number; by default the cache is full.
        window_size: (left, 0) or (left, -1), with `causal`.

    Returns (B, R, H, E); with `return_softmax_lse` also the log-sum-exp (B, H, R).
    """
    refuse(
        rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad,
        alibi_slopes=alibi_slopes,
    )  # fmt: skip
    if (k is None) != (v is None):
        raise ArgumentError("new keys and values come together", expected="k= and v=, or none of them")
    lengths = cache_lengths(q, k_cache, cache_seqlens, block_table)
    tensors = {"q": q, "k": k_cache, "v": v_cache, "lengths": lengths}
    tensors |= {} if block_table is None else {"table": block_table}
    given = options(softmax_scale, causal, window_size, softcap) | {"layout": "bshd"}
    if given["window"] is not None and given["window"][-1:] == (0,):  # which says the same
        given["causal"] = True
    if k is not None and v is not None:
        after = {"lengths": lengths + k.shape[1]}
        if not torch.compiler.is_compiling():  # a graph checks when it runs
            decode.read(
                tensors | after, numbers={}, **given
            )  # what does not fit is refused before the cache is written
        append(tensors, k, v)
        lengths = after["lengths"]
    out, lse = decode.attention_decode(q, k_cache, v_cache, lengths, table=block_table, return_lse=True, **given)
    return (out, lse) if return_softmax_lse else out


# -- arguments ---------------------------------------------------------------------------------------------------------


def refuse(**given: Any) -> None:
    """Raise ArgumentError for arguments that only flash-attn supports."""
    for name, value in given.items():
        if value is not None and not (isinstance(value, (int, float)) and value == 0):
            raise ArgumentError(
                f"`{name}` of flash-attn is not supported here", expected=f"calls without {name}=",
                got=f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value),
            )  # fmt: skip


def options(softmax_scale: Any, causal: Any, window_size: Any, softcap: Any) -> dict[str, Any]:
    """Translate to options of `warploom.attention`: flash-attn uses -1 and 0 for "none". Raises ArgumentError."""
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise ArgumentError("`window_size` of flash-attn is a pair", expected="(left, right)", got=repr(window_size))
    window = None if tuple(window_size) == NO_WINDOW else tuple(window_size)
    return {"scale": softmax_scale, "causal": bool(causal), "window": window, "softcap": softcap or None}


def parts(packed: Tensor, axis: int, count: int, name: str) -> tuple[Tensor, ...]:
    """Return views of the arrays in a packed array. Raises ArgumentError for other shapes."""
    if packed.ndim != axis + 3 or packed.shape[axis] != count:
        shape = ", ".join(["batch"] * (axis - 1) + ["rows", str(count), "heads", "head dimension"])
        raise ArgumentError(f"`{name}` has the wrong shape", expected=f"({shape})", got=tuple(packed.shape),
                            code="wrong-shape")  # fmt: skip
    return packed.unbind(axis)


def alibi(slopes: Tensor, difference: int) -> Any:
    """Return ALiBi as a score function. Query i is at key position i + difference, which the kernel reads at run
    time."""
    offset = torch.full((), difference, dtype=torch.int32, device=slopes.device)
    if slopes.ndim == 1:
        return lambda s, b, h, i, j: s - slopes[h] * (i + offset - j).abs()
    return lambda s, b, h, i, j: s - slopes[b, h] * (i + offset - j).abs()


def cache_lengths(q: Tensor, k_cache: Tensor, cache_seqlens: Any, table: Tensor | None) -> Tensor:
    """Return the number of keys of each sequence, (B,)."""
    if isinstance(cache_seqlens, Tensor):
        return cache_seqlens
    room = k_cache.shape[1] * (1 if table is None else table.shape[1])
    return torch.full(q.shape[:1], room if cache_seqlens is None else cache_seqlens, dtype=torch.int32, device=q.device)


def append(tensors: dict[str, Tensor], k: Tensor, v: Tensor) -> None:
    """Append new keys and values to each sequence's, without a host synchronisation."""
    lengths, table = tensors["lengths"], tensors.get("table")
    for name, new in (("k", k), ("v", v)):
        wanted = (lengths.shape[0], k.shape[1], *tensors[name].shape[2:])
        if tuple(new.shape) != wanted or new.dtype is not tensors[name].dtype:
            raise ArgumentError(f"`{name}` does not go with its cache", expected=f"{wanted} {tensors[name].dtype}",
                                got=f"{tuple(new.shape)} {new.dtype}", code="wrong-shape")  # fmt: skip
    places = lengths[:, None].long() + torch.arange(k.shape[1], device=k.device)
    rows = torch.arange(len(lengths), device=k.device)[:, None]
    if table is not None:
        size = tensors["k"].shape[1]
        rows, places = table.long().gather(1, places // size), places % size
    for name, new in (("k", k), ("v", v)):
        tensors[name][rows, places] = new
