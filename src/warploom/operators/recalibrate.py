"""`tune --fit`: times some products to measure how far the model is off on this GPU, and fits a correction.

Ridge regression fits the numbers of each family (`fitted`) to the times, within each product, since only the order
within a product counts. Cross-validation on held-out products sets the strength, and decides whether the fit helps at
all. If it does not, the model's own order stays.

Each product is stored on disk as soon as it is timed. An interrupted run, or a second one in parallel, loses nothing:
the next run times only what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..plural import counted
from ..runtime.progress import Progress
from .families import candidates, family_of, ranked, to_text
from .fitted import NUMBERS, Weights, factor, fits, numbers
from .spec.gpu import Gpu
from .spec.problem import Problem
from .tune import ROUNDS, gpu_to_tune, time_on_gpu
from .tuned import key_of

OF_FAMILY = 4
"""Candidates of each family that are timed for a product: the model's best."""
FOLDS = 5
STRENGTHS = (0.1, 1.0, 10.0)
"""Ridge strengths that are tried."""
WORTH = 0.001
"""Reduction of the mean regret that a fit must achieve on held-out products."""


@dataclass(frozen=True)
class Timing:
    """The times of one product: `expected` by the model and `measured`, in microseconds, by configuration."""

    problem: Problem
    expected: Mapping[Any, float]
    measured: Mapping[Any, float]

    def regret(self, weights: Weights) -> float:
        """How much slower than the best the corrected model's first choice is."""
        first = min(self.measured, key=lambda config: self.expected[config] * factor(config, self.problem, weights))
        return self.measured[first] / min(self.measured.values()) - 1


@dataclass(frozen=True)
class Fitted:
    """The result of a fit.

    Attributes:
        gpu: the GPU. products: number of products timed, by this run or an earlier one. timed_now: by this run.
        before, after: mean regret of the first choice, on held-out products.
        weights: of each family; empty if the model's own order is as good.
        failed: products that could not be timed. kept: the file; "" if the cache is off, or its disk full.
    """

    gpu: Gpu
    products: int
    timed_now: int
    before: float
    after: float
    weights: Weights
    failed: dict[str, str] = field(default_factory=dict)
    kept: str = ""

    def text(self) -> str:
        """The result as text."""
        lines = [f"{counted(self.products, 'product')} on {self.gpu.name}, {self.timed_now} of them timed now"]
        lines.append(f"  first choice, on held-out products: {self.before:.2%} slower than the best timed")
        if self.weights:
            used = "matmul now uses it" if self.kept else "not kept on disk: only this process uses it"
            lines.append(f"  with the fit: {self.after:.2%}; {used}")
            lines += [f"  {name:16} x {math.exp(w[0]):.3f} at 128 rows of 8 KiB" for name, w in self.weights.items()]
        else:
            lines.append("  no fit was better on held-out products: the model is unchanged")
        lines += [f"  {name} could not be timed: {reason}" for name, reason in self.failed.items()]
        return "\n".join([*lines, *([f"  kept in {self.kept}"] if self.kept else [])])


def recalibrate(
    problems: Sequence[Problem], *, device: int = 0, rounds: int = ROUNDS, progress: bool = True,
    timer: Callable[..., Any] | None = None, gpu: Gpu | None = None,
) -> Fitted:  # fmt: skip
    """Time products on a GPU, fit the model's order to the times, and store both.

    Args: as in `tune`. Raises ArgumentError if too few products can be timed, NoGpuError without a GPU.
    """
    if len(problems) < FOLDS:
        raise ArgumentError("too few products to validate a fit on some of them", expected=f"{FOLDS} or more",
                            got=len(problems))  # fmt: skip
    where = gpu or gpu_to_tune(device, "the model's order is that of an H200")
    kept, failed, now = fits(), {}, 0
    chosen = {problem: spread(problem, where) for problem in problems}
    steps = sum(len(some) for some in chosen.values()) * (rounds + 1)
    with Progress("timing for the fit", steps, after_s=0.0 if progress else float("inf")) as shown:
        for problem, configs in chosen.items():
            known = kept.times(where).get(key_of(problem), {})
            if {to_text(each) for each in configs} <= set(known):
                for _ in range(len(configs) * (rounds + 1)):
                    shown.step()
                continue
            times, reasons = (timer or time_on_gpu)(problem, configs, device, rounds, shown.step)
            if not times:
                failed[problem.describe()] = "; ".join(reasons.values()) or "nothing was timed"
                continue
            now += 1
            kept.keep(where, {key_of(problem): {to_text(config): round(us, 3) for config, us in times.items()}})
    found = [timing for problem in problems if (timing := _timing(problem, chosen[problem], where)) is not None]
    if len(found) < FOLDS:
        raise ArgumentError("too few products could be timed", expected=f"{FOLDS} or more", got=failed or len(found))
    before = _mean([timing.regret({}) for timing in found])
    after, strength = min((cross_validated(found, each), each) for each in STRENGTHS)
    weights = fit(found, strength) if after < before - WORTH else {}
    path = kept.keep(where, {}, weights)
    return Fitted(where, len(found), now, before, after if weights else before, weights, failed, str(path or ""))


def spread(problem: Problem, gpu: Gpu) -> list[Any]:
    """The model's best candidates of each family."""
    found: dict[str, list[Any]] = {}
    for config, _ in ranked(candidates(problem, gpu), problem, gpu):
        of_family = found.setdefault(family_of(config, problem).name, [])
        if len(of_family) < OF_FAMILY:
            of_family.append(config)
    return [config for some in found.values() for config in some]


def _timing(problem: Problem, configs: Sequence[Any], gpu: Gpu) -> Timing | None:
    known = fits().times(gpu).get(key_of(problem), {})
    measured = {config: known[to_text(config)] for config in configs if to_text(config) in known}
    expected = {config: guess.time_us for config, guess in ranked(list(measured), problem, gpu)} if measured else {}
    return Timing(problem, expected, measured) if len(measured) > 1 else None


# -- the fit -------------------------------------------------------------------------------------------------------


def fit(timings: Sequence[Timing], strength: float) -> Weights:
    """Ridge regression of log(measured / expected), without the mean over all configurations of a product."""
    names = sorted({family_of(config, each.problem).name for each in timings for config in each.measured})
    left, right = [], []
    for timing in timings:
        rows = np.zeros((len(timing.measured), NUMBERS * len(names)))
        for row, config in zip(rows, timing.measured, strict=True):
            at = NUMBERS * names.index(family_of(config, timing.problem).name)
            row[at : at + NUMBERS] = numbers(timing.problem)
        away = np.array([math.log(us / timing.expected[config]) for config, us in timing.measured.items()])
        left.append(rows - rows.mean(0))
        right.append(away - away.mean())
    x, y = np.concatenate(left), np.concatenate(right)
    found = np.linalg.solve(x.T @ x + strength * np.eye(x.shape[1]), x.T @ y)
    return {name: tuple(float(w) for w in found[NUMBERS * at : NUMBERS * (at + 1)]) for at, name in enumerate(names)}


def cross_validated(timings: Sequence[Timing], strength: float) -> float:
    """Mean regret on held-out products."""
    regrets = []
    for fold in range(FOLDS):
        weights = fit([each for at, each in enumerate(timings) if at % FOLDS != fold], strength)
        regrets += [each.regret(weights) for each in timings[fold::FOLDS]]
    return _mean(regrets)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
