"""Which kernel for which problem, and the calls that people make: `matmul`, `linear`, `quantize`."""

from __future__ import annotations

from .calls import linear, matmul
from .explanation import Explanation, explain
from .grouped import grouped_matmul
from .quantization import quantize
from .select import Choice, choose
from .spec.gpu import Gpu
from .spec.problem import Problem

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
