"""PyTorch: what attention's operators share: windows as integers, and the forms of results and gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError
from ...operators.attention.request import LAYOUTS

UNLIMITED = -1


def window_pair(window: Any, causal: bool) -> tuple[int, int]:
    """Return a window as two integers, which an operator can take."""
    if window is None:
        return UNLIMITED, UNLIMITED
    pair = window if isinstance(window, (tuple, list)) else (window, 0 if causal else window)
    left, right = (UNLIMITED if each is None else int(each) for each in pair)
    return left, right


def unpacked_window(left: int, right: int) -> tuple[int, int] | None:
    """Return the window from which `window_pair` made these integers."""
    return None if left == right == UNLIMITED else (left, right)


def options_of(
    causal: str, scale: float | None, left: int, right: int, softcap: float | None, layout: str
) -> dict[str, Any]:
    """Options of `warploom.attention` from an operator's."""
    window = unpacked_window(left, right)
    return {"causal": causal or False, "scale": scale, "window": window, "softcap": softcap, "layout": layout}


def fake_results(q: Tensor, v: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """Empty tensors like the result and the logarithms. Raises ArgumentError for other ranks or layouts."""
    if layout not in LAYOUTS or q.ndim != 4 or v.ndim != 4:
        raise ArgumentError("attention takes four dimensions", expected=", ".join(LAYOUTS), got=f"{layout}, {q.shape}")
    at = LAYOUTS[layout]
    lengths = q.new_empty((q.shape[0], q.shape[at[2]], q.shape[at[1]]), dtype=torch.float32)
    kind = torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype
    return q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=kind), lengths


def fake_gradients(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Empty tensors like the gradients of q, k, v and sinks."""
    sunk = q.new_empty(0, dtype=torch.float32) if sinks is None else torch.empty_like(sinks)
    return tuple(x.new_empty(x.shape) for x in (q, k, v)) + (sunk,)
