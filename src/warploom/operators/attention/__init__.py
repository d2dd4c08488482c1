"""Attention as people call it: forward, of packed sequences, with a cache, and its gradients.

Names are looked up when first used, as those of `warploom.operators`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calls import attention as attention
    from .decode import attention_decode as attention_decode
    from .gradients import attention_backward as attention_backward
    from .sequences import attention_varlen as attention_varlen

_HOME_OF = {
    "attention": "calls", "attention_backward": "gradients", "attention_decode": "decode",
    "attention_varlen": "sequences",
}  # fmt: skip

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'warploom.operators.attention' has no attribute {name!r}")
    found = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = found
    return found
