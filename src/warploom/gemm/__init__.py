"""Which kernel for which problem, and the calls that people make: `matmul`, `linear`, `quantize`."""

from __future__ import annotations

from .calls import linear, matmul
from .choice import Choice, choose
from .explanation import Explanation, explain
from .gpu import Gpu
from .grouped import grouped_matmul
from .problem import Problem
from .quantization import quantize

__all__ = [
    "Choice",
    "Explanation",
    "Gpu",
    "Problem",
    "choose",
    "explain",
    "grouped_matmul",
    "linear",
    "matmul",
    "quantize",
]
