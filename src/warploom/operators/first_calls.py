"""`config.autotune = "first-calls"`: the caller's own first calls decide between the model's two best candidates.

A product that nobody has timed on this GPU runs them in turn, one launch a call, with two CUDA events around it. Times
are read by later calls, so no call waits or launches more than it would have. The fastest time of each counts: the host
can only add to it. The faster is kept as `tune` keeps its choices. While a CUDA graph is captured nothing is timed.
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
"""Calls of each candidate that do not count: they build it and load it."""
TIMED = 4
"""Times of each candidate that decide."""


@dataclass
class Trial:
    """The candidates of one product on one GPU.

    Attributes:
        candidates: the model's order; one that does not build leaves.
        begun: calls that each has had.
        seconds: what was timed of each.
        pending: timings that the GPU may not have finished yet.
    """

    candidates: list[Any]
    begun: dict[Any, int] = field(default_factory=dict)
    seconds: dict[Any, list[float]] = field(default_factory=dict)
    pending: list[tuple[Any, EventPair]] = field(default_factory=list)

    def next(self) -> Any:
        """The candidate that had the fewest calls."""
        config = min(self.candidates, key=lambda each: self.begun.get(each, 0))
        self.begun[config] = self.begun.get(config, 0) + 1
        return config

    def read(self) -> None:
        """Take the times that are there by now."""
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
        """The candidate that stays, or None as long as one has too few times, or where none builds."""
        if not self.candidates or any(len(self.seconds.get(each, ())) < TIMED for each in self.candidates):
            return None
        first, *others = self.candidates
        least = {each: min(self.seconds[each]) for each in self.candidates}
        better = [each for each in others if least[each] < (1 - WORTH) * least[first]]
        return min(better, key=lambda each: least[each], default=first)


class Trials:
    """The trials of a process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._of: dict[tuple[Problem, Gpu], Trial] = {}

    def of(self, problem: Problem, gpu: Gpu) -> Trial:
        """The trial of a product, begun with its first call."""
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
    """Compute as `execute.run`, with the candidate whose turn it is where the product is on trial."""
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
        if config is None:  # none builds: the long way finds another, or says why not
            return execute.run(request, out)
        return _timed(trial, config, request, out, driver)


def _timed(trial: Trial, config: Any, request: Request, out: Any, driver: Any) -> Outcome:
    """One call by a candidate between two events. Its launch is not to be repeated: the next call is the other's."""
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
    """Put the decision into the tables of timed choices, where there is a cache; the trial remembers it in any case."""
    if settings.cache_dir is not None:
        times = {"time_us": round(min(trial.seconds[best]) * 1e6, 3), "first_calls": TIMED}
        tables().keep(gpu, str(settings.cache_dir), key_of(replace(problem, batch=())), best, times)
