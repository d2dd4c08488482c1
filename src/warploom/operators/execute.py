"""Runs a checked call: choose a kernel, bind the arrays, launch once for each product.

A launch on a GPU can be repeated (`Outcome.launches`); the emulator computes arrays in host memory.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from ..errors import CostLimitError
from ..runtime import on_cpu, on_gpu
from ..runtime.arrays import ArrayView, view
from ..runtime.bind import Arguments
from ..runtime.dispatch import Call
from ..runtime.estimate import allow, spoken
from ..runtime.launch_template import Launched
from ..runtime.machine import Machine
from ..runtime.program import Program
from ..settings import config as settings
from . import reference
from .bind import Binder
from .bind_ampere import AmpereBinder
from .binding import Binding
from .families import family_of
from .families.ampere import AmpereConfig
from .first_run_check import check_first, warn_unproven
from .kernel_cache import ready
from .request import Request
from .select import arch_of, choose
from .spec.gpu import BLACKWELL, check_gpu, emulated, gpu_of
from .spec.problem import Problem
from .views import broadcast, item, new_array, restrided, transposed

EMULATED_FLOPS, EMULATED_LAUNCH_S = 1e9, 0.005
"""Work per second of the emulator in a long launch (emulator-speed.json), and the cost of a launch."""


@dataclass(frozen=True)
class Outcome:
    """The result of a call.

    Attributes:
        result: the array, in the caller's framework.
        launches: what ran on the GPU; None if repeating the launches does not repeat the call.
    """

    result: Any
    launches: list[Launched] | None = None


def run(request: Request, out: Any, stream: Any = None) -> Outcome:
    """Compute a call. `out`: the caller's array, or None for a new one."""
    problem, model = request.problem, request.a
    if 0 in request.shape:
        return Outcome(out if out is not None else new_array(model, request.shape, problem.product.out))
    if problem.k == 0:
        return Outcome(reference.without_product(request, out))
    gpu = emulated(arch_of(request.config, problem)) if model.device == "cpu" else gpu_of(model.index)
    if model.device == "cpu":
        refuse_long_emulation(problem)
    check_gpu(gpu, request.called, newest=BLACKWELL)
    device = None if model.device == "cpu" else model.index
    choice, program = ready(problem, gpu, choose(problem, gpu, request.config), device)
    family = family_of(choice.config, problem)
    warn_unproven(family)
    make = AmpereBinder if isinstance(choice.config, AmpereConfig) else Binder
    outcome = compute(request, make(request, program, choice.config, gpu, stream), out, stream)
    if family.unproven and not request.in_place:  # in place, the old value of the sum is gone
        check_first(request, choice.config, request.out or _as_problem(view(outcome.result, "out"), problem))
    return outcome


def compute(request: Request, binder: Binder | AmpereBinder, out: Any, stream: Any) -> Outcome:
    """Compute all products of a call, with one launch each."""
    problem, target = request.problem, request.out
    if target is None:
        out = new_array(request.a, request.shape, problem.product.out)
        target = _as_problem(replace(view(out, "out"), writable=True), problem)
    a, b = broadcast(request.a, problem.batch), transposed(broadcast(request.b, problem.batch))
    launched = []
    for index in itertools.product(*map(range, problem.batch)):
        bound = binder.bind(item(a, index), item(b, index), item(target, index), index)
        launched.append(launch(binder.program, bound, stream))
        if bound.finish is not None:
            bound.finish()
    repeated = [each for each in launched if each is not None]
    return Outcome(out, repeated if repeated and not binder.copied else None)


def launch(program: Program, bound: Binding, stream: Any = None, machine: Machine | None = None) -> Launched | None:
    """Run a program on the arrays it is bound to: one launch on their GPU, or in the emulator.

    machine: the emulated machine, instead of the whole GPU.
    """
    arrays = list(bound.arrays)
    if arrays[0].device != "cpu":
        index = arrays[0].index  # the same for all arrays: the call is refused otherwise
        handle = on_gpu.stream_handle(stream) if stream is not None else on_gpu.current_stream(arrays, index)
        launch = on_gpu.start(program, Arguments(arrays, bound.numbers), index, handle)
        return Launched(program, launch, tuple(spec.name for spec in program.arrays), bound.names, bound.arrays)
    on_cpu.run(Call(program, bound.arrays, bound.numbers), [*arrays], machine)
    return None


def refuse_long_emulation(problem: Problem) -> None:
    """Raise CostLimitError if the emulator would take longer for a problem than the settings allow."""
    seconds = problem.count * (EMULATED_LAUNCH_S + 2 * problem.m * problem.n * problem.k / EMULATED_FLOPS)
    limit = settings.emulator.limit_s
    if seconds > limit:
        raise CostLimitError(
            f"emulating matmul would take about {spoken(seconds)}",
            expected=f"at most {spoken(limit)} (config.emulator.limit_s)",
            got=f"{problem.m} x {problem.n} x {problem.k}" + (f", {problem.count} times" if problem.batch else ""),
            hint=f"use smaller arrays or a GPU, or allow it: {allow(seconds)}",
        )


def _as_problem(target: ArrayView, problem: Problem) -> ArrayView:
    """A new result in the shape of the problem, with leading dimensions merged like those of the operands."""
    shape = (*problem.batch, problem.m, problem.n)
    if target.shape == shape:
        return target
    width = target.dtype.bytes
    return restrided(target, shape, (problem.n * width, width))
