"""`warm`: build ahead what `matmul` will run for many products, by all cores, so that no first call waits for it.

Each kernel is traced and assembled once, in a process of its own, and put into the cache on disk, where every later
process finds it (`kernel_cache`, `driver.cache`). It needs ptxas, not a GPU.
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
    """What `warm` did.

    Attributes:
        products, kernels: how many products were asked for, and how many kernels those are.
        built: kernels that were not in the cache before.
        failed: products whose kernel does not build, with the reason.
        folder: the cache.
    """

    products: int
    kernels: int
    built: int
    failed: dict[str, str] = field(default_factory=dict)
    folder: str = ""


def warm(problems: Iterable[Problem], gpu: Gpu, *, workers: int | None = None, progress: bool = True) -> Warmed:
    """Build the kernels that `matmul` chooses for these products on a GPU.

    Args:
        workers: processes; as many as the machine has cores by default; 0: in this one.
        progress: show a bar on stderr.

    Raises ArgumentError where the cache is off, and for a product that no kernel computes. Interrupted, it ends its
    processes; what was built stays, and the next call goes on from there.
    """
    folder = settings.cache_dir
    if folder is None:
        raise ArgumentError("the cache is off, so what is built would be lost",
                            expected="a folder: config.cache_dir, or WARPLOOM_CACHE_DIR")  # fmt: skip
    wanted = list(dict.fromkeys(replace(each, batch=()) for each in problems))
    kernels: dict[Any, Problem] = {}
    for problem in wanted:
        whole = problem.n * problem.product.out.bytes % TMA_BYTES == 0
        kernels.setdefault((choose(problem, gpu).config, problem.product, problem.fusion, whole), problem)
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
    """Each job's problem and result, as they come; one that ended its process is done here."""
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
            except BaseException:  # interrupted: what waits is not begun, and what is half built is nowhere
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list((pool._processes or {}).values()):
                    process.terminate()
                raise
    except BrokenProcessPool:  # killed, for lack of memory say: one after the other needs less
        for job in list(left.values()):
            yield job[0], _build(*job)


@contextmanager
def _begun_without_interrupts() -> Iterator[None]:
    """Processes that begin here never hear of Ctrl-C, which a terminal sends to all: this one ends them.

    A process begins with the mask of the thread that made it, so it is deaf while it still imports, too. An interrupt
    that comes here meanwhile is heard afterwards.
    """
    resource_tracker.ensure_running()  # begins with the first process otherwise, and lifts the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _submitted(pool: Executor, jobs: dict[int, tuple[Any, ...]]) -> Iterable[tuple[int, tuple[bool, str]]]:
    with _begun_without_interrupts():  # the first submission begins all processes
        futures: dict[Future[tuple[bool, str]], int] = {
            pool.submit(_build, *job): number for number, job in jobs.items()
        }
    for future in as_completed(futures):
        yield futures[future], future.result()


def _build(problem: Problem, config: Any, gpu: Gpu, folder: Path) -> tuple[bool, str]:
    """Whether a kernel was built, and why not; ("" where it is in the cache now)."""
    first = ""
    with settings.override(cache_dir=folder):
        for each in chain((config,), (other for other, _ in ranking(problem, gpu))):
            try:
                program = kernel_cache.program_of(problem, each, keep=True)
                return not on_gpu.build(program, on_gpu.target_for(program, gpu.arch)).from_cache, ""
            except (CompilationError, TraceError) as error:  # matmul takes the next best then
                first = first or f"{type(error).__name__}: {error.what}"
            except WarploomError as error:
                return False, f"{type(error).__name__}: {error.what}"
    return False, first
