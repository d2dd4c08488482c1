"""Our contender as a user calls it: `warploom.matmul`, `linear` and `grouped_matmul`, which choose the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ..errors import ArgumentError
from .contenders import Prepared
from .operands import Operands
from .problem import Problem


def prepare(problem: Problem, sets: Sequence[Operands]) -> Prepared:
    """Calls through the library. Raises what the library raises."""
    gemm: Any = import_module("..gemm", __package__)
    calls = [call_of(gemm, problem, o) for o in sets]
    return Prepared(calls, "matmul")


def call_of(gemm: Any, problem: Problem, o: Operands) -> Callable[[], object]:
    """One call of the public function that does this problem."""
    if problem.kind == "gemm":
        b = o.b.T
        if not problem.scales:
            return lambda: gemm.matmul(o.a, b, out=o.out)
        scale_b = o.scale_b if problem.scales == "tensor" else o.scale_b.T
        return lambda: gemm.matmul(o.a, b, out=o.out, scale_a=o.scale_a, scale_b=scale_b)
    if problem.kind == "gelu":
        return lambda: gemm.linear(o.a, o.b, o.bias, activation="gelu", out=o.out)
    raise ArgumentError(f"the library has no {problem.kind} yet")
