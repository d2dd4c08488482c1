"""Time two changes of Hopper kernels next to the kernels without them.

    python -m benchmarks.uniform_ab [--seconds 300] [--out FILE.json] [--only WORDS]

exclusive       consumers are arms of one if/else (`each_consumer`), so that ptxas keeps their values uniform
no end barrier  a cluster ends by `TmaPipeline.producer_tail`, not by a cluster barrier

A case is one problem with its first configurations. All of its kernels are checked against an exact result and timed
interleaved. A row is a kernel: its time, and how many times as fast it is as its `base`. The file is written after each
case; a run that finds it goes on after it. After --seconds no new case starts, and a kernel that hangs ends the process
(exit code 3). --only: cases whose name has every one of these words.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

from warploom.errors import WarploomError
from warploom.kernels.hopper import attention, block_scaled, gemm, grouped, grouped_config
from warploom.kernels.hopper.attention_config import Config as AttentionConfig
from warploom.kernels.hopper.attention_config import default
from warploom.kernels.hopper.description import Config, Fusion
from warploom.lab import evidence, through_library
from warploom.lab.attention_contenders import ours, subject
from warploom.lab.attention_problem import ForwardProblem
from warploom.lab.contender import Prepared
from warploom.lab.warploom_contender import product_of
from warploom.lab.work import GemmWork
from warploom.operators.select import ranking
from warploom.operators.spec.gpu import EMULATED
from warploom.runtime.benchmark.power import driver_version
from warploom.runtime.benchmark.protocols import interleaved
from warploom.runtime.benchmark.watchdog import Watchdog

SUITE = "uniform-ab"
ROUNDS, SLICE_S = 11, 0.02
Row: TypeAlias = dict[str, Any]
Problem: TypeAlias = GemmWork | ForwardProblem
AnyConfig: TypeAlias = Config | AttentionConfig

FAST = AttentionConfig(keys=128, apart=0, ordered=False, renewed=True)


@dataclass(frozen=True)
class Contender:
    """A kernel of a case. `base`: the name of the kernel that it changes."""

    name: str
    config: AnyConfig
    base: str


def cases() -> list[Problem]:
    """The problems, the most telling first."""
    e4m3 = [ForwardProblem(width, 4096, causal, "e4m3") for width in (128, 256, 64) for causal in (True, False)]
    bf16 = [ForwardProblem(128, 4096, causal) for causal in (True, False)]
    squares = [GemmWork(size, size, size) for size in (4096, 8192, 6144, 2048)]
    short = [GemmWork(8192, 8192, 1024), GemmWork(16384, 4096, 1536), GemmWork(4096, 14336, 4096)]
    narrow = [
        GemmWork(size, size, size, dtype="e4m3", scales=scales) for size in (4096, 8192) for scales in ("tensor", "row")
    ]
    blocks = [GemmWork(size, size, size, dtype="e4m3", scales="block128") for size in (4096, 8192)]
    groups = [GemmWork(8 * 512, 4096, 7168, kind="grouped", rows=(512,) * 8),
              GemmWork(64 * 256, 4096, 7168, kind="grouped", rows=(256,) * 64)]  # fmt: skip
    longer = [ForwardProblem(128, 16384, causal, "e4m3") for causal in (True, False)]
    return [*e4m3[:2], *squares, *short, *e4m3[2:], *narrow, *bf16, *longer, *blocks, *groups]


def contenders(problem: Problem) -> list[Contender]:
    """The kernels of a case: each base, then what changes it."""
    if isinstance(problem, ForwardProblem):
        chosen = default(subject(problem))
        found = _changed("chosen", chosen)
        if problem.dtype != "e4m3":
            return found
        turns = replace(chosen, exclusive=True, ordered=not chosen.ordered)
        found.append(Contender("chosen, exclusive, ordered", turns, "chosen"))
        if problem.head_dim > 128:
            return found
        fast = replace(FAST, key_stages=4 if problem.head_dim <= 64 else 3, value_stages=2)
        return [
            *found, Contender("fast", fast, "chosen"),
            Contender("fast, exclusive", replace(fast, exclusive=True), "chosen"),
            Contender("fast, exclusive, ordered", replace(fast, exclusive=True, ordered=True), "chosen"),
        ]  # fmt: skip
    return [each for config in _bases(problem) for each in _changed(config.name(), config)]


def _changed(name: str, config: Any) -> list[Contender]:
    found = [Contender(name, config, name), Contender(f"{name} exclusive", replace(config, exclusive=True), name)]
    if isinstance(config, Config) and config.ctas > 1:
        tail = replace(config, end_barrier=False)
        found += [Contender(f"{name} no end barrier", tail, name),
                  Contender(f"{name} both", replace(tail, exclusive=True), name)]  # fmt: skip
    return found


def _bases(problem: GemmWork) -> list[Config]:
    """The model's first large tile of each schedule; a grouped product's choice."""
    if problem.kind == "grouped":
        return [grouped_config.choose(problem.m, len(problem.rows), problem.n, EMULATED.sms)]
    first: dict[str, Config] = {}
    for config, _ in ranking(problem.posed, EMULATED):
        if isinstance(config, Config):
            first.setdefault(config.kernel_schedule, config)
    return list(first.values())


def build(problem: Problem, config: AnyConfig) -> str:
    """Build a kernel into the cache; the reason why it cannot be built, or ""."""
    try:
        if isinstance(problem, ForwardProblem):
            assert isinstance(config, AttentionConfig)
            attention.build(subject(problem), config).resources()
            return ""
        assert isinstance(config, Config)
        product, fusion = product_of(problem), Fusion(scales=problem.scales or None)
        if problem.kind == "grouped":
            grouped.build(product, config, fusion, "offsets").resources()
        elif problem.scales == "block128":
            block_scaled.build(product, config).resources()
        else:
            gemm.build(product, config, fusion).resources()
    except WarploomError as error:
        return f"{type(error).__name__}: {error.what}"
    return ""


def prepare(problem: Problem, sets: Sequence[Any], config: AnyConfig) -> Prepared:
    """The calls of one kernel."""
    if isinstance(problem, ForwardProblem):
        assert isinstance(config, AttentionConfig)
        return ours(problem, sets, config)
    assert isinstance(config, Config)
    return through_library.prepare(problem, sets, pinned=config)


def measure(stage: Any, beat: Any, problem: Problem, kernels: Sequence[Contender]) -> list[Row]:
    """The rows of one case."""
    beat(f"{problem.shape}: operands", 120.0)
    sets = stage.operands(problem, "normal")
    ready, facts = {}, {}
    for each in kernels:
        beat(f"{problem.shape}: {each.name}", 60.0)
        try:
            found = prepare(problem, sets, each.config)
            error, right = stage.check(problem, sets, found)
            if not right:
                print(f"{problem.shape}: {each.name} is wrong, {error:.2e}", flush=True)
                continue
            ready[each.name], _ = stage.ready(found.calls, "stream")
        except (WarploomError, RuntimeError) as failure:
            print(f"{problem.shape}: {each.name}: {failure}", flush=True)
            continue
        facts[each.name] = {**found.facts, "relative_error": float(f"{error:.4g}")}
    spreads = interleaved(ready, stage.timer, ROUNDS, SLICE_S, watch=lambda name, _: beat(f"{problem.shape}: {name}"))
    rows = []
    for each in kernels:
        if each.name not in ready:
            continue
        spread, base = spreads[each.name], spreads.get(each.base)
        faster = None if base is None else round(base.median / spread.median, 4)
        rows.append({**problem.as_dict(), "case": problem.shape, "kernel": each.name, "config": each.config.name(),
                     "base": each.base, "us": spread.as_dict(lambda s: s * 1e6, 2),
                     "times_as_fast": faster, **facts[each.name]})  # fmt: skip
        print(f"{problem.shape:34} {spread.median * 1e6:9.2f} us  {faster}  {each.name}", flush=True)
    stage.release()
    return rows


def run(options: argparse.Namespace) -> None:
    from warploom.lab.gpu_stage import GpuStage

    begun, stage = time.monotonic(), GpuStage()
    old: list[Row] = evidence.read(options.out)["rows"] if options.out and options.out.exists() else []
    done, words = {row["case"] for row in old}, options.only.split()
    left = [each for each in cases() if each.shape not in done and all(word in each.shape for word in words)]
    head: Mapping[str, Any] = {
        **evidence.header(SUITE, gpu=stage.name, driver=driver_version()), "protocol": "interleaved",
    }  # fmt: skip
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        pending = {
            (case, each): pool.submit(build, case, each.config) for case in left for each in contenders(case)
        }  # fmt: skip
        with Watchdog(partial(print, "no answer from the GPU:", file=sys.stderr, flush=True)) as watchdog, stage:
            for case in left:
                if time.monotonic() - begun > options.seconds:
                    print(f"the time is over before {case.shape}; the next run goes on here")
                    break
                kernels = []
                for each in contenders(case):
                    watchdog.beat(f"{case.shape}: building", 240.0)
                    reason = pending[case, each].result()
                    if reason:
                        print(f"{case.shape}: {each.name}: {reason}", flush=True)
                    else:
                        kernels.append(each)
                old += measure(stage, watchdog.beat, case, kernels)
                if options.out:
                    evidence.write(options.out, head, old)
        pool.shutdown(cancel_futures=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
