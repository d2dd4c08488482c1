"""Our contender as a user calls it: `warploom.matmul` and `linear`, which choose the kernel.

What was chosen is asked of the library, so that an evidence row can name it and build it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import gemm
from ..errors import ArgumentError, WarploomError
from ..gemm import choice
from ..isa import dtypes
from ..kernels.hopper.description import Fusion
from .contenders import Prepared
from .operands import Operands
from .ours import facts
from .problem import Problem
from .recipe import recipe


def prepare(problem: Problem, sets: Sequence[Operands]) -> Prepared:
    """Calls through the library. Raises what the library raises."""
    calls = [call_of(problem, o) for o in sets]
    try:
        chosen, found, program = chosen_for(problem)
    except WarploomError:  # it may run, by a path of more than one kernel; then there is no text to name
        return Prepared(calls, "matmul")
    plain = problem.kind == "gemm" and not problem.scales
    arguments = [((o.a, o.b), o.out) for o in sets] if plain else []
    kernel = f"hopper_{getattr(chosen, 'form', 'decode')}"
    return Prepared(calls, kernel, chosen.name(), found, program if plain else None, arguments)


def chosen_for(problem: Problem) -> tuple[Any, dict[str, Any], Any]:
    """(configuration, facts of its kernel, its program) that the library runs for a problem on this GPU."""
    asked = library_problem(problem)
    config = gemm.choose(asked, choice.gpu_of(0)).config
    kernel = choice.kernel_of(asked, config)
    from ..kernels.hopper import decode
    from ..kernels.hopper import gemm as large

    build = decode.build if isinstance(config, decode.DecodeConfig) else large.build
    return config, facts(kernel, recipe(build, asked.product, config, asked.fusion)), kernel.program()


def library_problem(problem: Problem) -> gemm.Problem:
    """The problem as the library names it. Raises ArgumentError for a kind it has no kernel for."""
    if problem.kind not in ("gemm", "gelu"):
        raise ArgumentError(f"the library has no {problem.kind} yet")
    fusion = Fusion(
        scales=problem.scales or None,
        bias="column" if problem.kind == "gelu" else None,
        bias_dtype=getattr(dtypes, problem.out) if problem.kind == "gelu" else None,
        activation="gelu" if problem.kind == "gelu" else None,
    )
    return gemm.Problem.of(problem.m, problem.n, problem.k, problem.dtype, out=problem.out, fusion=fusion)


def call_of(problem: Problem, o: Operands) -> Callable[[], object]:
    """One call of the public function that does this problem."""
    if problem.kind == "gemm":
        b = o.b.T
        if not problem.scales:
            return lambda: gemm.matmul(o.a, b, out=o.out)
        scale_b = o.scale_b if problem.scales == "tensor" else o.scale_b.T
        return lambda: gemm.matmul(o.a, b, out=o.out, scale_a=o.scale_a, scale_b=scale_b)
    if problem.kind == "gelu":
        return lambda: gemm.linear(o.a, o.b, o.bias, activation="gelu", out=o.out)
    if problem.kind == "swiglu":
        # two launches: the gate's product takes the other one as its gate
        up = o.out.new_empty(o.out.shape)

        def call() -> None:
            gemm.linear(o.a, o.up, out=up)
            gemm.linear(o.a, o.b, activation="silu", gate=up, out=o.out)

        return call
    raise ArgumentError(f"the library has no {problem.kind} yet")
