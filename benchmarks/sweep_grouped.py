"""Time every tile of grouped products next to torch's, on layers of experts of public models, and judge the choice.

    python -m benchmarks.sweep_grouped --evidence FILE.json [--seed 1] [--count 30] [--dtype bf16|e4m3] [--seconds 100]
        [--equal] [--tiles 64x128 64x256+ ...]
    python -m benchmarks.sweep_grouped --judge FILE.json [--keep]

A draw takes a model with experts, one of its layers, the experts of one of 1 to 8 GPUs, an average number of rows of a
group, uniform on a logarithmic scale, and a router: its experts are drawn with weights that are equal, or spread. With
--equal all groups have the same number of rows, a power of two, as in benchmarks and at full capacity. The kernels are
built first, by all cores. Each result is compared with one accumulated in f64; the correct ones are timed interleaved,
in short slices, as replayed graphs. e4m3 has row scales. --tiles: only these tiles, with + for ping-pong.

--judge: the regret of the choice, its time over the best tile's minus 1, and the choice's ratio to torch. The file has
those of the choice of its day as `choice`; --keep adds those of today's as `choice_since`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from warploom.errors import ArgumentError, WarploomError
from warploom.kernels.hopper.description import Config, Fusion, Product
from warploom.kernels.hopper.grouped_config import check, tile
from warploom.lab import catalogue, evidence
from warploom.lab.bench import Stage
from warploom.lab.contender import Prepared
from warploom.lab.contenders import find
from warploom.lab.library_calls import call_of
from warploom.lab.operands import Operands
from warploom.lab.work import GemmWork
from warploom.operators import kernel_cache, select
from warploom.operators.families import candidates
from warploom.operators.spec.gpu import EMULATED, Gpu
from warploom.runtime import on_gpu
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.power import driver_version
from warploom.runtime.benchmark.watchdog import Watchdog

SUITE, RIVAL = "sweep-grouped", "torch-grouped"
ROUNDS, SLICE_S = 6, 0.008
MOST_AVERAGE, MOST_ROWS, MOST_BYTES, LEAST_EXPERTS = 1024, 32768, 3e9, 4
GPUS, SPREADS = (1, 2, 4, 8), (0.0, 0.5, 1.0)
"""GPUs over which experts are divided, and standard deviations of the logarithm of a router's weights."""


def drawn(seed: int, count: int, dtype: str = "bf16", equal: bool = False) -> list[GemmWork]:
    """Grouped products, the same ones for the same seed. equal: groups of equal rows, a power of two."""
    generator = random.Random(seed)
    models = [[layer for layer in model.layers() if layer.experts] for model in catalogue.load()]
    models = [layers for layers in models if layers]
    found: dict[GemmWork, None] = {}
    while len(found) < count:
        layer = generator.choice(generator.choice(models))
        groups = layer.experts // generator.choice(GPUS)
        average = math.exp(generator.uniform(0, math.log(MOST_AVERAGE)))
        if equal:
            average = 2 ** round(math.log2(average))
        total, spread = round(groups * average), generator.choice(SPREADS)
        weights = [math.exp(generator.gauss(0, spread)) for _ in range(groups)]
        taken = [at % groups for at in range(total)] if equal else generator.choices(range(groups), weights, k=total)
        fits = total <= MOST_ROWS and groups * layer.n * layer.k * 2 <= MOST_BYTES and layer.k % 16 == layer.n % 8 == 0
        if fits and groups >= LEAST_EXPERTS:
            rows = np.bincount(taken, minlength=groups).tolist()
            scales = "row" if dtype == "e4m3" else ""
            found[GemmWork(total, layer.n, layer.k, dtype=dtype, kind="grouped", scales=scales, rows=tuple(rows))] = (
                None
            )
    return list(found)


def named(text: str) -> Config:
    """The configuration of "64x256", or of "64x256+" in ping-pong. Raises ArgumentTypeError if no kernel has it."""
    try:
        tile_m, tile_n = map(int, text.removesuffix("+").split("x"))
        config = tile(tile_m, tile_n, "ping_pong" if text.endswith("+") else "cooperative")
        check(Product(), config, Fusion())
    except (ValueError, ZeroDivisionError, ArgumentError):
        raise argparse.ArgumentTypeError(
            f"no kernel has the tile {text!r}; tiles are like 64x256 and 64x256+"
        ) from None
    return config


def at_least_one(text: str) -> int:
    """A count of products. Raises ArgumentTypeError."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of products; at least 1 is drawn")
    return int(text)


def built(problem: GemmWork, config: Config, arch: str) -> str:
    """In its own process: the kernel, into the cache. Returns why it was not built."""
    try:
        program = kernel_cache.program_of(problem.posed, config, keep=True)
        on_gpu.build(program, on_gpu.target_for(program, arch))
    except WarploomError as error:
        return f"{type(error).__name__}: {error.what}"
    return ""


def point(stage: Stage, problem: GemmWork, configs: Sequence[Config], beat: Callable[..., None]) -> dict[str, Any]:
    """Check and time every tile, and torch's product."""
    calls, per, wrong = _ready(stage, problem, configs, beat)
    watch = lambda name, counting: beat(f"{name} {problem.shape}")  # noqa: E731
    spreads = protocols.interleaved(calls, stage.timer, ROUNDS, SLICE_S, watch=watch)
    times = {name: round(spread.median / per[name] * 1e6, 3) for name, spread in spreads.items()}
    del calls
    stage.release()
    return {**problem.as_dict(), "us": times, "wrong": wrong}


def _ready(
    stage: Stage, problem: GemmWork, configs: Sequence[Config], beat: Callable[..., None]
) -> tuple[dict[str, Any], dict[str, int], dict[str, str]]:
    """What is to be timed of each contender whose result is right, its launches, and the errors of the others."""
    beat(f"operands of {problem.shape}", 120.0)
    sets: Sequence[Operands] = stage.operands(problem, "normal")
    makers: dict[str, Callable[[], Prepared]] = {
        config.name(): partial(_own, problem, sets, config) for config in configs
    }
    makers[RIVAL] = partial(find(RIVAL).prepare, problem, sets, beat)
    calls, per, wrong = {}, {}, {}
    for name, make in makers.items():
        beat(f"{name} {problem.shape}", 120.0)
        try:
            one = make()
            error, right = stage.check(problem, sets, one)
            if right:
                calls[name], per[name] = stage.ready(one.calls, "graph", 0)
            else:
                wrong[name] = f"relative error {error:.2e}"
        except (WarploomError, RuntimeError, ValueError, TypeError) as failure:
            wrong[name] = f"{type(failure).__name__}: {str(failure)[:300]}"
    return calls, per, wrong


def _own(problem: GemmWork, sets: Sequence[Operands], config: Config) -> Prepared:
    return Prepared([call_of(problem, o, config) for o in sets], "hopper_grouped", config.name())


def judged(rows: Sequence[Mapping[str, Any]], gpu: Gpu = EMULATED) -> dict[str, Any]:
    """The regrets of today's choice on a sweep, and its ratio to torch's product."""
    regrets, ratios = [], []
    for row in rows:
        times = {name: us for name, us in row["us"].items() if name != RIVAL}
        order = [config.name() for config, _ in select.ranking(GemmWork.of_row(row).posed, gpu)]
        chosen = next(name for name in order if name in times)
        regrets.append(times[chosen] / min(times.values()) - 1)
        if RIVAL in row["us"]:
            ratios.append(row["us"][RIVAL] / times[chosen])
    return {
        "products": len(regrets), "regret_mean": round(float(np.mean(regrets)), 4),
        "regret_p99": round(float(np.quantile(regrets, 0.99)), 4), "regret_most": round(max(regrets), 4),
        "of_torch_geomean": round(float(np.exp(np.mean(np.log(ratios)))), 4) if ratios else None,
        "of_torch_least": round(min(ratios), 4) if ratios else None,
    }  # fmt: skip


def measure(options: argparse.Namespace) -> None:
    """Time the products, until time is up."""
    from warploom.lab.gpu_stage import GpuStage

    begun, stage = time.monotonic(), GpuStage()
    rows: list[dict[str, Any]] = []
    problems = drawn(options.seed, options.count, options.dtype, options.equal)
    configs: list[Config] = options.tiles or list(candidates(problems[0].posed, EMULATED, every=True))
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        refused = list(pool.map(partial(built, problems[0], arch=stage.arch), configs))
    for config, reason in zip(configs, refused, strict=True):
        if reason:
            print(f"{config.name()}: {reason}", file=sys.stderr)
    configs = [config for config, reason in zip(configs, refused, strict=True) if not reason]
    head = {**evidence.header(SUITE, gpu=stage.name, driver=driver_version()), "protocol": "interleaved",
            "seed": options.seed}  # fmt: skip

    def hang(who: str) -> None:
        print(f"no answer from the GPU for a while: {who}", file=sys.stderr, flush=True)

    with Watchdog(hang) as watchdog, stage:
        for problem in problems:
            if time.monotonic() - begun > options.seconds:
                print(f"the time is over after {len(rows)} products")
                break
            rows.append(point(stage, problem, configs, watchdog.beat))
            order = sorted(rows[-1]["us"].items(), key=lambda row: row[1])
            print(f"{problem.shape}:", ", ".join(f"{name} {us:.1f}" for name, us in order[:3]),
                  rows[-1]["wrong"] or "", flush=True)  # fmt: skip
            evidence.write(options.evidence, {**head, "choice": judged(rows)}, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evidence", type=Path)
    parser.add_argument("--judge", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=at_least_one, default=30)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "e4m3"))
    parser.add_argument("--equal", action="store_true", help="groups of equal rows")
    parser.add_argument("--tiles", type=named, nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=100.0)
    options = parser.parse_args()
    if options.judge:
        whole = evidence.read(options.judge)
        found = judged(whole["rows"])
        print(json.dumps(found, indent=1))
        if options.keep:
            head = {name: value for name, value in whole.items() if name != "rows"}
            evidence.write(options.judge, {**head, "choice_since": found}, whole["rows"])
    elif options.evidence:
        measure(options)
    else:
        parser.error("one of --evidence and --judge is required")


if __name__ == "__main__":
    try:
        main()
    except (WarploomError, OSError) as failure:
        sys.exit(f"{type(failure).__name__}: {failure}")
