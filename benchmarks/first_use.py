"""Measure the first use of a model of many products: cold, after `warm`, and in a new process.

    python -m benchmarks.first_use [--model Llama-3-8B] [--rows 1,16,64,256,1024] [--count 40] [--workers 0] [--builds]
        [--out benchmarks/results/nvidia-h200/first-use.json]

Three parts, each in its own process, with the products that `warploom warm MODEL` builds:

    cold     an empty cache: the first call of each product, one after the other
    warm     another empty cache: `warm` builds the kernels by that many processes (0: one per core)
    warmed   the cache of `warm`: the first call of each product, again in a new process

A call's time is divided into the choice of a kernel and the rest: tracing, ptxas, loading and the launch, until the GPU
has finished. With --builds, and without a GPU, the calls are replaced by the same choice and build for an H200, without
loading and launching. Times are wall-clock seconds; starting Python and importing torch are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from warploom.cli.warm import problems_of
from warploom.driver import library
from warploom.lab import evidence
from warploom.operators import kernel_cache
from warploom.operators.select import choose
from warploom.operators.spec.gpu import EMULATED, Gpu, gpu_of
from warploom.operators.spec.problem import Problem
from warploom.operators.warm import warm
from warploom.runtime import on_gpu

SUITE = "first-use"
PARTS = ("cold", "warm", "warmed")
MOST_S = 600


def products(model: str, rows: str, count: int) -> list[Problem]:
    """The first `count` different products that `warploom warm` builds for a model."""
    return list(dict.fromkeys(problems_of(model, rows, "bf16", "", 1, True)))[:count]


def built(problem: Problem, gpu: Gpu) -> Callable[[], None]:
    """What builds a product's kernel as its first call does."""

    def build() -> None:
        program = kernel_cache.program_of(problem, choose(problem, gpu).config, keep=True)
        on_gpu.build(program, on_gpu.target_for(program, gpu.arch))

    return build


def called(problem: Problem) -> Callable[[], None]:
    """What calls a product on the GPU and waits for it."""
    import torch

    from warploom.operators import matmul
    from warploom.operators.grouped import grouped_matmul
    from warploom.operators.tune import grouped_operands, operands

    given = (grouped_operands if problem.groups else operands)(problem, 0)[0]
    function = grouped_matmul if problem.groups else matmul
    torch.cuda.synchronize()

    def call() -> None:
        function(**given)
        torch.cuda.synchronize()

    return call


def timed(problems: Sequence[Problem], gpu: Gpu, make: Callable[[Problem], Callable[[], None]]) -> dict[str, Any]:
    """The seconds of each product's choice, and of what remains of its first call."""
    choices, rests = [], []
    for problem in problems:
        run = make(problem)
        begun = time.perf_counter()
        choose(problem, gpu)
        chosen = time.perf_counter()
        run()
        choices.append(chosen - begun)
        rests.append(time.perf_counter() - chosen)
    each = [choice + rest for choice, rest in zip(choices, rests, strict=True)]
    kernels = {(choose(each, gpu).config, each.product, each.fusion, each.groups > 0) for each in problems}
    return {
        "products": len(problems), "kernels": len(kernels), "seconds": round(sum(each), 3),
        "choices_s": round(sum(choices), 3), "first_choice_s": round(choices[0], 3),
        "each_s": {"median": round(statistics.median(each), 4), "min": round(min(each), 4), "max": round(max(each), 4)},
    }  # fmt: skip


def measured(part: str, problems: Sequence[Problem], workers: int, builds: bool) -> dict[str, Any]:
    """The row of a part."""
    gpu = EMULATED if builds else gpu_of(0)
    if part == "warm":
        begun = time.perf_counter()
        found = warm(problems, gpu, workers=workers or None, progress=sys.stderr.isatty())
        seconds = round(time.perf_counter() - begun, 3)
        facts = {name: value for name, value in asdict(found).items() if name != "folder"}
        return {**facts, "workers": workers or os.cpu_count(), "seconds": seconds}
    return timed(problems, gpu, (lambda problem: built(problem, gpu)) if builds else called)


def in_a_process(part: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a part, measured by a new process with a cache in `folder`."""
    words = ["--model", options.model, "--rows", options.rows, "--count", str(options.count),
             "--workers", str(options.workers), *(["--builds"] if options.builds else []), "--part", part]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_use", *words], stdout=subprocess.PIPE, text=True, timeout=MOST_S,
        env={**os.environ, "WARPLOOM_CACHE_DIR": str(folder)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.returncode)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"part": part, "measures": "builds" if options.builds else "calls", **row}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Llama-3-8B")
    parser.add_argument("--rows", default="1,16,64,256,1024")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--builds", action="store_true", help="only choose and build, for an H200; needs no GPU")
    parser.add_argument("--part", choices=PARTS, help="measure one part in this process; prints its row")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.builds = options.builds or not library.available()
    if options.part:
        wanted = products(options.model, options.rows, options.count)
        print(json.dumps(measured(options.part, wanted, options.workers, options.builds)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as cold, tempfile.TemporaryDirectory() as warmed:
        for part, folder in zip(PARTS, (cold, warmed, warmed), strict=True):
            rows.append(in_a_process(part, Path(folder), options))
            print(rows[-1], flush=True)
    if options.out is not None:
        head = evidence.header(SUITE, gpu="" if options.builds else gpu_of(0).name)
        head |= {"model": options.model, "cores": os.cpu_count()}
        evidence.write(options.out, head, rows)


if __name__ == "__main__":
    main()
