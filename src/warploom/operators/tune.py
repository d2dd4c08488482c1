"""`tune(problem)`: time the best candidates on this GPU, and remember the fastest.

The model picks the candidates. Operands are random normal, in several sets so that L2 does not hold them all; each
round times every candidate in random order, and medians count. The result is kept on disk for this GPU, driver and
version of the package (`choice.Tables`), and `matmul` uses it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from ..errors import ArgumentError, NoGpuError, WarploomError
from ..isa import dtypes
from ..isa.dtypes import s8
from ..runtime import on_gpu
from ..runtime.benchmark.gpu import CudaTimer, Rotation
from ..runtime.benchmark.protocols import interleaved
from ..runtime.progress import Progress
from ..settings import config as settings
from .execute import run
from .families import candidates, family_of, ranked
from .request import Request, read
from .select import choose
from .spec.gpu import Gpu, gpu_of
from .spec.problem import Problem
from .spec.scales import BLOCK
from .tuned import key_of, tables

TOP = 10
"""Default number of candidates to time; all small-M ones are timed."""
ROUNDS = 9
SLICE_S = 0.006
"""Approximate run time of one candidate in each round."""
ROTATED_BYTES = 160e6
"""Operands rotate through at least this much memory: more than twice the L2 of an H200."""
MOST_SETS = 64
WORTH = 0.01
"""A candidate replaces the current choice only if it is faster by more than this."""


class Timed(Protocol):
    """The thing that candidates are timed for: a product, or an attention."""

    @property
    def flops(self) -> int:
        """Number of multiplications and additions."""

    def describe(self) -> str:
        """A description for people."""


@dataclass(frozen=True)
class Tuned:
    """The result of tuning.

    Attributes:
        problem, gpu: what was timed, and where.
        before: the previous choice.
        best: the fastest configuration.
        times_us: median time of each, by name, fastest first.
        failed: candidates that could not be built or launched, with the reason.
        kept: the file that stores the choice; "" if the cache is off, or its disk full.
    """

    problem: Timed
    gpu: Gpu
    before: Any
    best: Any
    times_us: dict[str, float]
    failed: dict[str, str] = field(default_factory=dict)
    kept: str = ""

    def text(self) -> str:
        """A table of the times."""
        lines = [f"{self.problem.describe()}  on  {self.gpu.name}"]
        for name, time in self.times_us.items():
            marks = [word for word, config in (("before", self.before), ("chosen", self.best)) if config.name() == name]
            rate = self.problem.flops / time / 1e6
            lines.append(f"  {name:44}{time:10.2f} us{rate:9.0f} TFLOP/s  {', '.join(marks)}")
        lines += [f"  {name:44} failed: {reason}" for name, reason in self.failed.items()]
        lines.append(f"  kept in {self.kept}" if self.kept else "  not kept on disk: only this process uses it")
        return "\n".join(lines)


def tune(
    problem: Problem, *, device: int = 0, top: int = TOP, rounds: int = ROUNDS, progress: bool = True,
    timer: Callable[[Problem, list[Any], int, int, Callable[[], None]], Any] | None = None,
    gpu: Gpu | None = None,
) -> Tuned:  # fmt: skip
    """Time the best `top` candidates of a problem on a GPU, and keep the fastest.

    Args:
        device: number of the GPU; torch makes the operands.
        rounds: how often each candidate is timed; medians count.
        progress: show a bar on stderr.
        timer: (problem, configurations, device, rounds, step) -> times and failures, instead of the GPU's.
        gpu: the GPU, instead of asking the driver.

    Raises ArgumentError if there is nothing to time, NoGpuError without a GPU.
    """
    problem = replace(problem, batch=())
    where = gpu or gpu_to_tune(device, "`warploom explain M N K` shows the model's order")
    before = choose(problem, where).config
    return fastest(
        problem, key_of(problem), where, before, select(problem, where, top), device=device, rounds=rounds,
        progress=progress, timer=timer or time_on_gpu,
    )  # fmt: skip


def fastest(
    problem: Timed, key: str, gpu: Gpu, before: Any, candidates: list[Any], *, device: int, rounds: int,
    progress: bool, timer: Callable[..., Any],
) -> Tuned:  # fmt: skip
    """Time the candidates and the previous choice, and keep the fastest under `key` in the table. Raises ArgumentError
    if nothing could be timed."""
    configs = candidates if before in candidates else [before, *candidates]
    title, steps = f"tuning {problem.describe()}", len(configs) * (rounds + 1)
    with Progress(title, steps, after_s=0.0 if progress else float("inf")) as shown:
        times, failed = timer(problem, configs, device, rounds, shown.step)
    if not times:
        raise ArgumentError("no candidate could be timed", got="; ".join(f"{k}: {v}" for k, v in failed.items()))
    order = sorted(times, key=lambda config: times[config])
    best = order[0]
    if before in times and times[best] > (1 - WORTH) * times[before]:
        best = before
    kept = ""
    if settings.cache_dir is not None:
        data = {"time_us": round(times[best], 3), "model_time_us": round(times.get(before, times[best]), 3)}
        kept = str(tables().keep(gpu, str(settings.cache_dir), key, best, data) or "")
    named = {config.name(): times[config] for config in order}
    return Tuned(problem, gpu, before, best, named, failed, kept)


def gpu_to_tune(device: int, otherwise: str) -> Gpu:
    """The GPU of a number. Raises NoGpuError, with an alternative in the hint."""
    try:
        return gpu_of(device)
    except NoGpuError as error:
        reason = str(error).partition("(")[2].partition(")")[0]
        raise NoGpuError(f"there is no GPU here to time candidates on ({reason})", hint=otherwise) from error


def select(problem: Problem, gpu: Gpu, top: int) -> list[Any]:
    """The candidates worth timing: those that their family always wants timed, and the model's best, at most three of
    a tile."""
    chosen: list[Any] = []
    others: list[Any] = []
    tiles: dict[Any, int] = {}
    for config, _ in ranked(candidates(problem, gpu, every=True), problem, gpu):
        tile = family_of(config, problem).tile(config)
        if tile is None:
            chosen.append(config)
        elif tiles.setdefault(tile, 0) < 3:
            tiles[tile] += 1
            others.append(config)
    return [*chosen, *others[: max(0, top - len(chosen))]]


# -- the GPU -------------------------------------------------------------------------------------------------------


def time_on_gpu(
    problem: Problem, configs: list[Any], device: int, rounds: int, step: Callable[[], None]
) -> tuple[dict[Any, float], dict[str, str]]:
    """Median microseconds of each configuration, and why the others failed. Needs torch with CUDA."""
    sets, calls = (grouped_operands, grouped_caller) if problem.groups else (operands, caller)
    made = sets(problem, device)
    return timed({config: calls(problem, config, made) for config in configs}, len(made), device, rounds, step)


def timed(
    callers: Mapping[Any, Callable[[int], Any]], sets: int, device: int, rounds: int, step: Callable[[], None]
) -> tuple[dict[Any, float], dict[str, str]]:
    """Median microseconds of each configuration's call, and why the others failed. A call gets the index of the set of
    arrays to compute."""
    import torch

    ready: dict[Any, Callable[[int], Any]] = {}
    failed: dict[str, str] = {}
    for config, call in callers.items():
        try:
            call(0)
            torch.cuda.synchronize(device)
            ready[config] = call
        except WarploomError as error:
            failed[config.name()] = error.what
    timer, named = CudaTimer(device), {config.name(): config for config in ready}
    calls = {name: Rotation([partial(ready[config], at) for at in range(sets)]) for name, config in named.items()}
    spreads = interleaved(calls, timer, rounds, SLICE_S, watch=lambda name, counting: step())
    return {named[name]: spread.median * 1e6 for name, spread in spreads.items()}, failed


def sets_of(problem: Problem) -> int:
    """Number of sets of arguments that are together larger than L2."""
    return max(2, min(MOST_SETS, int(ROTATED_BYTES / max(problem.bytes, 1)) + 1))


def drawn(*shape: int, dtype: Any, device: int) -> Any:
    """A random array on a GPU."""
    import torch

    kind = torch.device("cuda", device)
    if dtype is s8:
        return torch.randint(-8, 9, shape, device=kind, dtype=torch.int8)
    return torch.randn(shape, device=kind).to(getattr(torch, dtypes.torch_name(dtype)))


def operands(problem: Problem, device: int) -> list[dict[str, Any]]:
    """Sets of random arguments of `matmul`, together larger than L2."""
    import torch

    product, fusion = problem.product, problem.fusion
    kind, make = torch.device("cuda", device), partial(drawn, device=device)

    def ones(shape: tuple[int, ...], turned: bool) -> Any:
        """f32 ones; `turned`: the first dimension is contiguous."""
        return torch.ones(shape[::-1], device=kind).T if turned and len(shape) > 1 else torch.ones(shape, device=kind)

    found = []
    for _ in range(sets_of(problem)):
        m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
        a = make(*batch, m, k, dtype=product.a) if product.a_major == "K" else make(*batch, k, m, dtype=product.a).mT
        b = make(*batch, n, k, dtype=product.b).mT if product.b_major == "K" else make(*batch, k, n, dtype=product.b)
        given: dict[str, Any] = {"a": a, "b": b, "out": make(*batch, m, n, dtype=product.out)}
        if fusion.bias:
            shape = (n,) if fusion.bias == "column" else (m, 1)
            given["bias"] = make(*shape, dtype=fusion.bias_dtype or product.out)
        if fusion.gate:
            given["gate"] = make(*batch, m, n, dtype=product.out)
        if fusion.addend:
            given |= {"c": make(*batch, m, n, dtype=product.out), "beta": 1.0}
        if fusion.scales:
            shapes = {
                "tensor": ((1,), (1,)),
                "row": ((m, 1), (1, n)),
                "block128": ((m, -(-k // BLOCK)), (-(-k // BLOCK), -(-n // BLOCK))),
            }[fusion.scales]
            given["scale_a"] = ones(shapes[0], problem.scale_a_major == "MN")
            given["scale_b"] = ones(shapes[1], problem.scale_b_major == "K")
        if fusion.scale_out:
            given["scale_out"] = torch.ones(1, device=kind)
        if fusion.amax:
            given["amax"] = torch.zeros(1, device=kind)
        given |= {"activation": fusion.activation, "alpha": 0.5 if fusion.alpha else 1.0}
        given |= {"accumulate": problem.accumulate, "constant_weights": problem.constant_weights}
        found.append({name: value for name, value in given.items() if value is not None})
    return found


def caller(problem: Problem, config: Any, sets: list[dict[str, Any]]) -> Callable[[int], Any]:
    """A function that computes the n-th set with a configuration; after the first call it only launches."""
    import torch

    repeated: dict[int, Any] = {}

    def call(at: int) -> None:
        number = at % len(sets)
        launches = repeated.get(number)
        if launches is None:
            given = {**sets[number], "config": config}
            a, b, out = given.pop("a"), given.pop("b"), given["out"]
            repeated[number] = run(read(a, b, given), out).launches
            return
        for each in launches:
            each.launch(torch._C._cuda_getCurrentRawStream(each.views[0].index))

    return call


def grouped_operands(problem: Problem, device: int) -> list[dict[str, Any]]:
    """Sets of random arguments of `grouped_matmul`; groups have 0 to twice the average number of rows."""
    import torch

    product, fusion, make = problem.product, problem.fusion, partial(drawn, device=device)
    groups, m, n, k = problem.groups, problem.m, problem.n, problem.k
    order = torch.randperm(groups, generator=torch.Generator().manual_seed(0))
    share = torch.arange(1, 2 * groups, 2, dtype=torch.float64)[order].cumsum(0) / groups**2
    found = []
    for _ in range(sets_of(problem)):
        given = {"a": make(m, k, dtype=product.a), "b": make(groups, n, k, dtype=product.b).mT,
                 "offsets": (share * m).round().int().to(device), "out": make(m, n, dtype=product.out)}  # fmt: skip
        if fusion.scales:
            sizes = {"tensor": ((1,), (1,)), "row": ((m, 1), (groups, 1, n))}[fusion.scales]
            given |= {
                f"scale_{which}": torch.ones(size, device=device) for which, size in zip("ab", sizes, strict=True)
            }
        if fusion.bias:
            given["bias"] = make(groups, n, dtype=fusion.bias_dtype or product.out)
        found.append({**given, "activation": fusion.activation})
    return found


def grouped_caller(problem: Problem, config: Any, sets: list[dict[str, Any]]) -> Callable[[int], Any]:
    """A function that computes the n-th set with a configuration."""
    from .grouped import grouped_matmul

    return lambda at: grouped_matmul(**sets[at % len(sets)], config=config)


def untimed_gpu(request: Request) -> Gpu | None:
    """The GPU of a call whose product was never timed there; None if nothing is to be timed, because the arrays are in
    host memory or the configuration is pinned."""
    if request.config is not None or request.a.device == "cpu":
        return None
    gpu = gpu_of(request.a.index)
    return gpu if gpu.runs("sm_90a") and choose(request.problem, gpu).source == "model" else None


def is_captured(request: Request) -> bool:
    """True if a call on a GPU is captured into a CUDA graph, so that nothing may be timed."""
    from ..driver import library

    return library.load().is_capturing(on_gpu.current_stream([request.a], request.a.index))


def tune_before(request: Request) -> None:
    """With `config.autotune` 1 or 2: time a problem that has not been timed yet."""
    if request.a.framework == "torch" and untimed_gpu(request) is not None and not is_captured(request):
        tune(request.problem, device=request.a.index, top=TOP if settings.autotune == 1 else 1000)


__all__ = ["Tuned", "select", "tune"]
