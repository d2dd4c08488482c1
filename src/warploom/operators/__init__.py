"""The public calls, and the choice of a kernel for each problem.

Names are looked up when first used, so that the table of arguments can be read without loading a kernel.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calls import linear as linear
    from .calls import matmul as matmul
    from .explanation import Explanation as Explanation
    from .explanation import explain as explain
    from .grouped import grouped_matmul as grouped_matmul
    from .norm import rms_norm as rms_norm
    from .quantization import quantize as quantize
    from .rotary import rotary_embedding as rotary_embedding
    from .select import Choice as Choice
    from .select import choose as choose
    from .spec.gpu import Gpu as Gpu
    from .spec.problem import Problem as Problem

_HOME_OF = {
    "Choice": "select", "Explanation": "explanation", "Gpu": "spec.gpu", "Problem": "spec.problem", "choose": "select",
    "explain": "explanation", "grouped_matmul": "grouped", "linear": "calls", "matmul": "calls",
    "quantize": "quantization", "rms_norm": "norm", "rotary_embedding": "rotary",
}  # fmt: skip

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'warploom.operators' has no attribute {name!r}")
    found = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = found
    return found
