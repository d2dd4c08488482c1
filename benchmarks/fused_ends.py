"""A gate and an addend at the end of a product: the first candidates of each family, with them and without.

    python -m benchmarks.fused_ends [--out FILE.json] [--seconds 75]

Products of a Llama-3-8B layer at 16 to 512 rows, in graphs that go through more weights than L2 holds. Each result is
checked against torch's. `expected` is what the library's model says of a configuration.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

import warploom
from warploom.collective.epilogue.spec import Fusion
from warploom.errors import CompilationError, TraceError
from warploom.lab import evidence
from warploom.operators import Problem, kernel_cache
from warploom.operators.select import Choice, ranking
from warploom.operators.spec.gpu import Gpu, gpu_of
from warploom.runtime.benchmark.power import driver_version

SUITE = "fused-ends"
ROWS = (16, 64, 128, 256, 512)
ENDS = {"addend": Fusion(addend=True), "gate": Fusion(activation="silu", gate=True), "plain": Fusion()}
SHAPES = ((4096, 4096, "addend"), (4096, 14336, "addend"), (14336, 4096, "gate"),
          (4096, 4096, "plain"), (4096, 14336, "plain"), (14336, 4096, "plain"))  # fmt: skip
OF_A_FAMILY = {"addend": 4, "gate": 4, "plain": 2}
WEIGHTS_BYTES, REPLAYS, ROUNDS = 150_000_000, 6, 5
MOST_ERROR = 0.01


@dataclass(frozen=True)
class Case:
    """A product, how it ends, and a configuration with what the model expects of it."""

    problem: Problem
    end: str
    config: Any
    estimate: Any


def cases(gpu: Gpu) -> Iterator[Case]:
    """The first of each family, the model's order kept."""
    for m in ROWS:
        for n, k, end in SHAPES:
            problem = replace(Problem.of(m, n, k), fusion=ENDS[end])
            seen: dict[type, int] = {}
            for config, estimate in ranking(problem, gpu):
                seen[type(config)] = seen.get(type(config), 0) + 1
                if seen[type(config)] <= OF_A_FAMILY[end]:
                    yield Case(problem, end, config, estimate)


def built(case: Case, gpu: Gpu) -> bool:
    """Whether a configuration can be built."""
    try:
        kernel_cache.ready(case.problem, gpu, Choice(case.config, "pinned", case.estimate), 0)
    except (CompilationError, TraceError):
        return False
    return True


class Operands:
    """What the calls of one product work on."""

    def __init__(self, problem: Problem) -> None:
        m, n, k = problem.m, problem.n, problem.k
        copies = WEIGHTS_BYTES // (2 * n * k) + 2
        self.x = torch.randn(m, k, device="cuda").bfloat16()
        self.weights = [torch.randn(n, k, device="cuda").bfloat16() for _ in range(copies)]
        self.extra = torch.randn(m, n, device="cuda").bfloat16()
        self.outs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in self.weights]

    def microseconds(self, call: Callable[[torch.Tensor, torch.Tensor], object]) -> float:
        """Of one call, as the median of some rounds of replays."""
        pairs = list(zip(self.weights, self.outs, strict=True))
        for weight, out in pairs:
            call(weight, out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for weight, out in pairs:
                call(weight, out)
        times = []
        for _ in range(ROUNDS + 1):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(REPLAYS):
                graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / REPLAYS / len(pairs))
        return float(median(times[1:]))

    def ours(self, case: Case) -> tuple[float, float]:
        """Microseconds, and the largest error of the largest result."""
        options: dict[str, Any] = {"addend": {"residual": self.extra}, "plain": {},
                                   "gate": {"activation": "silu", "gate": self.extra}}[case.end]  # fmt: skip
        us = self.microseconds(lambda w, out: warploom.linear(self.x, w, out=out, config=case.config, **options))
        exact = self.x.float() @ self.weights[0].float().T
        if case.end == "addend":
            exact = exact + self.extra.float()
        elif case.end == "gate":
            exact = torch.nn.functional.silu(exact) * self.extra.float()
        return us, float((self.outs[0].float() - exact).abs().max() / exact.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=75.0)
    options = parser.parse_args()
    gpu = gpu_of(0)
    todo = list(cases(gpu))
    with ThreadPoolExecutor() as pool:
        todo = [case for case, fine in zip(todo, pool.map(lambda case: built(case, gpu), todo), strict=True) if fine]
    head = evidence.header(SUITE, gpu=torch.cuda.get_device_name(), driver=driver_version())
    rows: list[dict[str, Any]] = []
    begun, shape, operands, torch_us = time.monotonic(), None, None, 0.0
    for case in todo:
        if time.monotonic() - begun > options.seconds:
            print(f"the time is over before {case.problem.describe()}")
            break
        if operands is None or (case.problem.m, case.problem.n, case.problem.k) != shape:
            shape, operands = (case.problem.m, case.problem.n, case.problem.k), Operands(case.problem)
            torch_us = operands.microseconds(lambda w, out, x=operands.x: torch.mm(x, w.T, out=out))
        us, error = operands.ours(case)
        m, n, k = shape  # type: ignore[misc]
        rows.append({"m": m, "n": n, "k": k, "end": case.end, "config": case.config.name(), "us": round(us, 3),
                     "expected": round(case.estimate.time_us, 3), "torch_mm": round(torch_us, 3)})  # fmt: skip
        wrong = "" if error < MOST_ERROR else f"  WRONG by {error:.3g}"
        times = f"{us:7.2f} us, expected {case.estimate.time_us:7.2f}, torch.mm {torch_us:7.2f}"
        print(f"{m}x{n}x{k} {case.end:6s} {times} {case.config.name()}{wrong}", flush=True)
        if options.out is not None:
            evidence.write(options.out, head, rows)


if __name__ == "__main__":
    main()
