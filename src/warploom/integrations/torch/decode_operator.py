"""PyTorch: attention of the newest tokens over a cache as an operator, `warploom::attention_decode`, for graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from ...operators.attention.decode import attention_step
from .custom_operator import NAMESPACE, define

SCHEMA = (
    "attention_decode"
    "(Tensor q, Tensor k, Tensor v, Tensor lengths, Tensor? sinks, float? scale, float? softcap) -> Tensor"
)


def _run(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, sinks: Tensor | None, scale: float | None, softcap: float | None
) -> Tensor:
    """q (B, R, H, D), k (B, T, G, D), v (B, T, G, E), lengths (B,) i32; the result is (B, R, H, E)."""
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        found: Tensor = attention_step(q, k, v, lengths, sinks=sinks, scale=scale, softcap=softcap)
    return found


def _fake(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, *_: object) -> Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
define(_LIBRARY, SCHEMA, _run, _fake)
