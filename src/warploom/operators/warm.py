"""`warm`: builds the kernels of many products in advance, on all cores, so that no first call waits for a build.

Each kernel is traced and assembled once, in a separate process, and stored in the disk cache, where every later
process finds it (`kernel_cache`, `driver.cache`). This needs ptxas, but no GPU.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import Any

from ..driver import cache
from ..errors import ArgumentError, CompilationError, TraceError, WarploomError
from ..runtime import on_gpu
from ..runtime.progress import Progress
from ..settings import config as settings
from . import kernel_cache
from .select import choose, ranking
from .spec.gpu import Gpu
from .spec.problem import TMA_BYTES, Problem


@dataclass(frozen=True)
class Warmed:
    """The result of `warm`.

    Attributes:
        products, kernels: number of requested products, and of the kernels they need.
        built: kernels that were not in the cache before.
        failed: products whose kernel does not build, or could not be stored, with the reason.
        folder: the cache.
    """

    products: int
    kernels: int
    built: int
    failed: dict[str, str] = field(default_factory=dict)
    folder: str = ""


def warm(problems: Iterable[Problem], gpu: Gpu, *, workers: int | None = None, progress: bool = True) -> Warmed:
    """Build the kernels that `matmul` and `grouped_matmul` choose for these products on a GPU.

    Args:
        workers: number of processes, by default the number of cores; 0: build in this process.
        progress: show a bar on stderr.

    Raises ArgumentError if the cache is off, and for a product that no kernel computes. An interrupt ends the
    processes; finished builds stay, and the next call continues from there.
    """
    folder = settings.cache_dir
    if folder is None:
        raise ArgumentError("the cache is off, so the builds would be lost",
                            expected="a folder: config.cache_dir, or WARPLOOM_CACHE_DIR")  # fmt: skip
    wanted = list(dict.fromkeys(replace(each, batch=()) for each in problems))
    kernels: dict[Any, Problem] = {}
    for problem in wanted:
        whole = problem.n * problem.product.out.bytes % TMA_BYTES == 0
        limits = problem.limits if problem.groups else ""
        kernels.setdefault((choose(problem, gpu).config, problem.product, problem.fusion, limits, whole), problem)
    jobs = [(problem, key[0], gpu, folder) for key, problem in kernels.items()]
    count = min(len(jobs), os.cpu_count() or 1 if workers is None else workers)
    built, failed = 0, {}
    with Progress("building", len(jobs), after_s=0.0 if progress else float("inf")) as shown:
        for problem, (new, reason) in _results(jobs, count):
            shown.step()
            built += new
            if reason:
                failed[problem.describe()] = reason
    return Warmed(len(wanted), len(jobs), built, failed, str(folder))


def _results(jobs: Sequence[tuple[Any, ...]], workers: int) -> Iterable[tuple[Problem, tuple[bool, str]]]:
    """Each job's problem and result, as they finish; a job whose process died is done here."""
    if workers < 2:
        for job in jobs:
            yield job[0], _build(*job)
        return
    left = dict(enumerate(jobs))
    try:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            try:
                for number, result in _submitted(pool, left):
                    yield left.pop(number)[0], result
            except BaseException:  # interrupted: pending jobs are dropped, and unfinished builds leave nothing behind
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list((pool._processes or {}).values()):
                    process.terminate()
                raise
    except BrokenProcessPool:  # killed, for example for lack of memory: one after the other needs less
        for job in list(left.values()):
            yield job[0], _build(*job)


@contextmanager
def _begun_without_interrupts() -> Iterator[None]:
    """Processes started here ignore Ctrl-C, which a terminal sends to all: this process ends them.

    A process inherits the signal mask of the thread that started it, so it also ignores interrupts while it imports. An
    interrupt that arrives here in the meantime is delivered afterwards.
    """
    resource_tracker.ensure_running()  # otherwise it starts with the first process, and lifts the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _submitted(pool: Executor, jobs: dict[int, tuple[Any, ...]]) -> Iterable[tuple[int, tuple[bool, str]]]:
    with _begun_without_interrupts():  # the first submission starts all processes
        futures: dict[Future[tuple[bool, str]], int] = {
            pool.submit(_build, *job): number for number, job in jobs.items()
        }
    for future in as_completed(futures):
        yield futures[future], future.result()


def _build(problem: Problem, config: Any, gpu: Gpu, folder: Path) -> tuple[bool, str]:
    """True if a kernel was built and stored, and why not; ("" if it is in the cache now)."""
    first = ""
    with settings.override(cache_dir=folder):
        for each in chain((config,), (other for other, _ in ranking(problem, gpu))):
            try:
                program = kernel_cache.program_of(problem, each, keep=True)
                build = on_gpu.build(program, on_gpu.target_for(program, gpu.arch))
                if not cache.builds().stored(build.key, folder):
                    return False, f"it was built, but could not be stored in {folder}"  # a CacheWarning says why
                return not build.from_cache, ""
            except (CompilationError, TraceError) as error:  # matmul then takes the next best
                first = first or f"{type(error).__name__}: {error.what}"
            except WarploomError as error:
                return False, f"{type(error).__name__}: {error.what}"
    return False, first
