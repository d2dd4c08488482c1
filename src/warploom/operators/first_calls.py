"""`config.autotune = "first-calls"`: the first calls of a product decide between the model's two best candidates.

A product that was never timed on this GPU runs them in turn, one launch per call, between two CUDA events. Later calls
read the times, so no call waits or launches more than otherwise. The fastest time of each counts, because the host can
only add to it. The faster candidate is kept like a choice of `tune`. During a CUDA graph capture nothing is timed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from ..driver import library
from ..errors import CompilationError, TraceError
from ..runtime import on_gpu
from ..runtime.benchmark.gpu import EventPair
from ..settings import config as settings
from . import execute
from .execute import Outcome
from .request import Request
from .select import kept, ranking
from .spec.gpu import Gpu
from .spec.problem import Problem
from .tune import WORTH, is_captured, untimed_gpu
from .tuned import key_of, tables

CANDIDATES = 2
WARM_UPS = 1
"""Calls of each candidate that do not count: they build and load it."""
TIMED = 4
"""Number of times of each candidate needed to decide."""


@dataclass
class Trial:
    """The candidates of one product on one GPU.

    Attributes:
        candidates: in the model's order; one that does not build is removed.
        begun: number of calls of each candidate.
        seconds: the times of each candidate.
        pending: timings that the GPU may not have finished yet.
    """

    candidates: list[Any]
    begun: dict[Any, int] = field(default_factory=dict)
    seconds: dict[Any, list[float]] = field(default_factory=dict)
    pending: list[tuple[Any, EventPair]] = field(default_factory=list)

    def next(self) -> Any:
        """The candidate with the fewest calls."""
        config = min(self.candidates, key=lambda each: self.begun.get(each, 0))
        self.begun[config] = self.begun.get(config, 0) + 1
        return config

    def read(self) -> None:
        """Collect the times that are available."""
        waiting = []
        for config, events in self.pending:
            if events.passed():
                self.seconds.setdefault(config, []).append(events.seconds())
                events.close()
            else:
                waiting.append((config, events))
        self.pending = waiting

    @property
    def best(self) -> Any:
        """The candidate to keep; None while one has too few times, or if none builds."""
        if not self.candidates or any(len(self.seconds.get(each, ())) < TIMED for each in self.candidates):
            return None
        first, *others = self.candidates
        least = {each: min(self.seconds[each]) for each in self.candidates}
        better = [each for each in others if least[each] < (1 - WORTH) * least[first]]
        return min(better, key=lambda each: least[each], default=first)


class Trials:
    """The trials of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._of: dict[tuple[Problem, Gpu], Trial] = {}

    def of(self, problem: Problem, gpu: Gpu) -> Trial:
        """The trial of a product, started by its first call."""
        key = replace(problem, batch=()), gpu
        if key not in self._of:
            order = ranking(replace(key[0], constant_weights=False), gpu)
            self._of[key] = Trial([kept(config, problem) for config, _ in order[:CANDIDATES]])
        return self._of[key]


@lru_cache(maxsize=1)
def trials() -> Trials:
    """The process's trials."""
    return Trials()


def run(request: Request, out: Any) -> Outcome:
    """Compute like `execute.run`; if the product is on trial, with the candidate whose turn it is."""
    empty = 0 in request.shape or request.problem.k == 0
    gpu = None if empty else untimed_gpu(request)
    if gpu is None:
        return execute.run(request, out)
    if is_captured(request):
        return Outcome(execute.run(request, out).result)  # not remembered: later calls are still on trial
    driver, index = library.load(), request.a.index
    with driver.activated(index):
        with trials().lock:
            trial = trials().of(request.problem, gpu)
            trial.read()
            best = trial.best
            config = trial.next() if best is None and trial.candidates else best
        if best is not None:
            _keep(request.problem, gpu, best, trial)
            return execute.run(replace(request, config=best), out)
        if config is None:  # none builds: the regular path finds another one, or reports why not
            return execute.run(request, out)
        return _timed(trial, config, request, out, driver)


def _timed(trial: Trial, config: Any, request: Request, out: Any, driver: Any) -> Outcome:
    """Time one call by a candidate. Its launch is not repeatable: the next call belongs to the other candidate."""
    stream = on_gpu.current_stream([request.a], request.a.index)
    events = None
    if trial.begun[config] > WARM_UPS:
        events = EventPair(driver)
        events.begin(stream)
    try:
        outcome = execute.run(replace(request, config=config), out)
    except (CompilationError, TraceError):
        if events is not None:
            events.close()
        with trials().lock:
            trial.candidates = [each for each in trial.candidates if each != config]
        return run(request, out)
    if events is not None:
        events.end(stream)
        with trials().lock:
            trial.pending.append((config, events))
    return Outcome(outcome.result)


def _keep(problem: Problem, gpu: Gpu, best: Any, trial: Trial) -> None:
    """Record the decision in the tables of timed choices, if there is a cache; the trial always remembers it."""
    if settings.cache_dir is not None:
        times = {"time_us": round(min(trial.seconds[best]) * 1e6, 3), "first_calls": TIMED}
        tables().keep(gpu, str(settings.cache_dir), key_of(replace(problem, batch=())), best, times)
