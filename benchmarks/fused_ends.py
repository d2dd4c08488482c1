"""Time a gate and an addend in the epilogue of a product: the first candidates of each family, with and without them.

    python -m benchmarks.fused_ends [--out FILE.json] [--seconds 75]

Products of a Llama-3-8B layer with 16 to 512 rows, timed in alternation like `warploom tune`. `expected_us` is the
library model's estimate for a configuration.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from warploom.collective.epilogue.spec import Fusion
from warploom.lab import evidence
from warploom.operators import Problem
from warploom.operators.families import ranked
from warploom.operators.select import ranking
from warploom.operators.spec.gpu import Gpu
from warploom.operators.tune import time_on_gpu

SUITE = "fused-ends"
ROWS = (16, 64, 128, 256, 512)
ADDEND, GATE, PLAIN = Fusion(addend=True), Fusion(activation="silu", gate=True), Fusion()
ENDS = {"addend": ADDEND, "gate": GATE, "plain": PLAIN}
SHAPES = ((4096, 4096), (4096, 14336), (14336, 4096))
OF_A_FAMILY, ROUNDS = 4, 8


def problems(size: tuple[int, int, int]) -> dict[str, Problem]:
    """A product with each epilogue."""
    return {end: replace(Problem.of(*size), fusion=fusion) for end, fusion in ENDS.items()}


def candidates(problem: Problem, gpu: Gpu) -> list[Any]:
    """The model's first of each family."""
    seen: dict[type, int] = {}
    first = []
    for config, _ in ranking(problem, gpu):
        seen[type(config)] = seen.get(type(config), 0) + 1
        if seen[type(config)] <= OF_A_FAMILY:
            first.append(config)
    return first


def rows(size: tuple[int, int, int], gpu: Gpu) -> list[dict[str, Any]]:
    """The candidates of all epilogues, each with each epilogue: the difference is the cost of an epilogue."""
    ends = problems(size)
    configs = list(dict.fromkeys(config for problem in ends.values() for config in candidates(problem, gpu)))
    found = []
    for end, problem in ends.items():
        expected = dict(ranked(configs, problem, gpu))
        times, failed = time_on_gpu(problem, configs, 0, ROUNDS, lambda: None)
        for name, why in failed.items():
            print(f"{problem.describe()} {end} {name}: {why}", flush=True)
        of = dict(zip("mnk", size, strict=True)) | {"end": end}
        found += [
            {**of, "config": config.name(), "us": round(us, 3), "expected_us": round(expected[config].time_us, 3)}
            for config, us in times.items()
        ]
    return found


def main() -> None:
    import torch

    from warploom.operators.spec.gpu import gpu_of
    from warploom.runtime.benchmark.power import driver_version

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=75.0)
    options = parser.parse_args()
    gpu, begun = gpu_of(0), time.monotonic()
    head = evidence.header(SUITE, gpu=torch.cuda.get_device_name(), driver=driver_version())
    found: list[dict[str, Any]] = []
    for size in ((m, n, k) for m in ROWS for n, k in SHAPES):
        if time.monotonic() - begun > options.seconds:
            print(f"the time is over before {size}")
            break
        new = rows(size, gpu)
        found += new
        for end in ENDS:
            best = min((row for row in new if row["end"] == end), key=lambda row: row["us"])
            print(f"{size} {end}: {best['us']:.2f} us, {best['config']}", flush=True)
        if options.out is not None:
            evidence.write(options.out, head, found)


if __name__ == "__main__":
    main()
