"""A row of `benchmarks.tensor_parallel`: contenders are checked, what fails is taken out, the others are timed."""

from __future__ import annotations

import os
import random
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import tensor_parallel_cases as contenders
from benchmarks import tensor_parallel_more
from benchmarks.tensor_parallel_cases import TOLERANCE, Contest
from benchmarks.tensor_parallel_machine import Call, Case, Gpus

ROUNDS, CALLS = 9, 10
GRAPH = "-graph"
"""Behind a kind: from a CUDA graph."""
SETUP = "the tensors"
"""What a row is doing before any contender runs."""
PARTS = ("mm", "collective")
"""Contenders without a result."""
Tell = Callable[[str, str], None]
"""Says what a rank is doing, and what went wrong with it."""


class WrongBaseline(Exception):
    """NCCL computes something else on a rank; raised on all."""


def named(case: Case) -> dict[str, Any]:
    """What a row says of its case."""
    kind, *sizes = case
    return {"kind": kind, **dict(zip(("m", "n", "k", "experts", "topk"), sizes, strict=False))}


def measured(
    case: Case, machine: Gpus, forms: Sequence[str], tell: Tell, without: Mapping[str, str] | None = None,
    broken: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Check and time one product. without: contenders that are left out, and why; broken: what others do instead.
    Raises WrongBaseline."""
    kind, *sizes = case
    tell(SETUP, "")
    if kind in tensor_parallel_more.KINDS:
        place = machine.rank, machine.world, machine.device
        contest = Contest(*tensor_parallel_more.calls(kind, tuple(sizes), *place, forms))
    else:
        contest = getattr(contenders, kind.removesuffix(GRAPH).replace("-", "_"))(machine, *sizes[:3], forms)
    if kind.endswith(GRAPH):
        contest.calls.pop("torch fused", None)  # it is not made for it
    for name in without or {}:
        contest.calls.pop(name, None)
    for name, how in (broken or {}).items():
        if name in contest.calls:
            contest.calls[name] = lambda how=how: fail(how)  # type: ignore[misc]
    tolerance = tensor_parallel_more.TOLERANCE if kind in tensor_parallel_more.KINDS else TOLERANCE
    errors, failed = surviving(contest, machine, tolerance, tell)
    row = {**named(case), "relative_error": errors, "failed": {**(without or {}), **failed}, **contest.more}
    if kind != "all-reduce" and not kind.endswith(GRAPH):
        return {**row, **timed(contest.calls, machine, tell)}
    eager = timed(contest.calls, machine, tell)
    host, graphs = {}, {}
    for name, call in contest.calls.items():
        tell(name, "")
        host[name] = machine.most(machine.on_host(call))
        graphs[name] = machine.replayed(call, CALLS)
    return {
        **row, **timed(graphs, machine, tell, 1, CALLS), "eager_us": eager["us"], "eager_ratio": eager["ratio"],
        "host_us": host,
    }  # fmt: skip


def fail(how: str) -> None:
    """Instead of a contender: raise, exit or hang."""
    if how == "exit":
        os._exit(9)
    if how == "hang":
        threading.Event().wait()
    raise RuntimeError("broken on purpose")


def surviving(contest: Contest, machine: Gpus, tolerance: float, tell: Tell) -> tuple[dict[str, float], dict[str, str]]:
    """Relative errors of the contenders; what fails on any rank is taken out, and why. Raises WrongBaseline."""
    from warploom.integrations.torch import distributed as ours

    errors, failed = {}, {}
    for name in [each for each in contest.calls if each not in PARTS]:
        problem = ""
        tell(name, "")
        try:
            errors[name] = contest.error_of(name, machine)
            if not errors[name] < tolerance:
                problem = f"relative error {errors[name]}"
            elif name.startswith("warploom"):
                problem = contest.unsteady(name, machine)
                ours.check()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:400]
            tell(name, problem)
        if machine.most(float(bool(problem))):
            failed[name] = problem or "on another rank"
            errors.pop(name, None)
            del contest.calls[name]
            if name == "nccl":
                raise WrongBaseline(failed[name])
            if name.startswith("warploom"):
                ours.reset()
    contest.expected = None
    return errors, failed


def timed(calls: dict[str, Call], machine: Gpus, tell: Tell, repeats: int = CALLS, each: int = 1) -> dict[str, Any]:
    """Microseconds of each, and what they say; `each`: how many products a call is."""
    order = random.Random(1)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in order.sample(sorted(calls), len(calls)):
            tell(name, "")
            calls[name]()
            machine.dist.barrier()
            found[name].append(machine.most(machine.microseconds(calls[name], repeats) / each))
    us = {name: statistics.median(values) for name, values in found.items()}
    bound = max(us["mm"], us["collective"])
    baseline = min(value for name, value in us.items() if name.startswith(("nccl", "torch")))
    forms = {
        name: {"ratio": baseline / value, "of_bound": bound / value}
        for name, value in us.items()
        if name.startswith("warploom")
    }
    default = forms.get("warploom", {"ratio": None, "of_bound": None})
    ratio_to_nccl = us["nccl"] / us["warploom"] if "warploom" in us else None
    return {"us": us, "rounds": found, **default, "ratio_to_nccl": ratio_to_nccl, "forms": forms}
