"""Time free tiles next to cuBLAS and the current choice, on products of public models: the data for fitting the choice.

    python -m benchmarks.sweep_free_tile --out FOLDER [--seed 1] [--count 200] [--rows 1:512] [--seconds 500]
        [--dtype bf16|e4m3] [--scales tensor|row] [--most 16] [--chosen-first | --forms | --pairs | --clusters]
        [--layout forward|input-gradient|weight-gradient] [--shapes 256x6144x4096,...] [--products FILE.json]
        [--alone 0.6] [--evidence FILE.json]

Kernels are built meanwhile, by as many processes as the machine has cores but two. For each product, every contender's
result is compared with one accumulated in f64. The correct ones are timed interleaved, in short slices, and the best of
them again next to cuBLAS and `warploom.matmul` in longer ones, with --alone also each alone, for that many seconds.
FOLDER/points.jsonl gets a line for each product; a run that finds the file resumes after it. After --seconds no new
product starts. A launch that hangs ends the process (exit code 3) and is named in FOLDER/hung.json; the next run leaves
that kernel out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.free_tile_candidates import (
    MOST_CANDIDATES,
    AnyConfig,
    candidates,
    chosen_first,
    clusters,
    first_of_forms,
    pairs,
)
from benchmarks.sweep_builds import Builds
from warploom.errors import ArgumentError, WarploomError
from warploom.isa.residency import H200_SMS
from warploom.kernels.hopper import free_tile_choice
from warploom.kernels.hopper.description import Config
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.names import any_config
from warploom.lab import catalogue, evidence
from warploom.lab.bench import Stage
from warploom.lab.contender import Prepared
from warploom.lab.contenders import find
from warploom.lab.library_calls import call_of, chosen_config
from warploom.lab.operands import Operands, stored
from warploom.lab.warploom_contender import product_of
from warploom.lab.work import LAYOUTS, GemmWork, parse_shapes
from warploom.operators.spec.gpu import gpu_of
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.power import driver_version
from warploom.runtime.benchmark.watchdog import Watchdog
from warploom.runtime.caller import Caller
from warploom.runtime.program import Program

SUITE = "sweep-free-tile"
POINTS, HUNG = "points.jsonl", "hung.json"
SWEEP, FINAL = {"rounds": 4, "slice_s": 0.006}, {"rounds": 8, "slice_s": 0.010}
FINALISTS = 4
CORES_LEFT = 2
"""Cores that build no kernels, so that the launches that are timed do not wait."""
LIBRARY, CUBLAS = "library", "cublas"


@dataclass
class Sweep:
    """One run over products.

    Attributes:
        stage: the machine (`lab.gpu_stage`, or a mock one).
        beat: tells the watchdog which contender is running.
        program: the program of a configuration for a product; None if it was refused.
        left_out: names of kernels that hung in an earlier run.
        alone_s: seconds for which each of the best is timed alone, too; 0: not at all.
    """

    stage: Stage
    beat: Callable[..., None]
    program: Callable[[GemmWork, AnyConfig], Program | None]
    left_out: frozenset[str] = frozenset()
    sms: int = H200_SMS
    most: int = MOST_CANDIDATES
    candidates: Callable[..., list[AnyConfig]] = candidates
    alone_s: float = 0.0

    def point(self, problem: GemmWork) -> dict[str, Any]:
        """Check and time every contender for one product."""
        self.beat(f"operands of {problem.shape}", 120.0)
        sets = self.stage.operands(problem, "normal")
        prepared, wrong = self._prepared(problem, sets)
        calls, per = {}, {}
        for name, one in prepared.items():
            self.beat(f"{name} {problem.shape}, capturing", 60.0)
            calls[name], per[name] = self.stage.ready(one.calls, "graph", 0)
        times = self._timed(problem, calls, per, SWEEP)
        ours = sorted((name for name in times if name not in (CUBLAS, LIBRARY)), key=times.__getitem__)
        kept = [*ours[:FINALISTS], *(name for name in (CUBLAS, LIBRARY) if name in times)]
        best = {name: calls[name] for name in kept}
        final = self._timed(problem, best, per, FINAL)
        alone = self._alone(problem, best, per) if self.alone_s else {}
        configs = {config.name(): config for config in self.candidates(problem, self.sms, self.most)}
        found = {
            **problem.as_dict(), "us": {name: round(us, 3) for name, us in times.items()},
            "final_us": {name: round(us, 3) for name, us in final.items()}, **alone, "wrong": wrong,
            "library": prepared[LIBRARY].config if LIBRARY in prepared else "",
            "model_us": {
                name: round(self._expected(config, problem), 3)
                for name, config in configs.items() if isinstance(config, FreeTileConfig)
            },
        }  # fmt: skip
        del sets, prepared, calls
        self.stage.release()
        return found

    def _expected(self, config: FreeTileConfig, problem: GemmWork) -> float:
        sizes = problem.m, problem.n, problem.k
        return free_tile_choice.terms(config, *sizes, product_of(problem), sms=self.sms).total

    def _timed(
        self, problem: GemmWork, calls: Mapping[str, Any], per: Mapping[str, int], how: Mapping[str, Any]
    ) -> dict[str, float]:
        """Microseconds of one call of each."""
        watch = lambda name, counting: self.beat(f"{name} {problem.shape}")  # noqa: E731
        spreads = protocols.interleaved(calls, self.stage.timer, watch=watch, **how)
        return {name: spread.median / per[name] * 1e6 for name, spread in spreads.items()}

    def _alone(self, problem: GemmWork, calls: Mapping[str, Any], per: Mapping[str, int]) -> dict[str, Any]:
        watch = lambda name, counting: self.beat(f"{name} {problem.shape}, alone")  # noqa: E731
        spreads = protocols.sample("alone", calls, self.alone_s, self.stage.timer, per, watch)
        return {"alone_us": {name: round(spread.median * 1e6, 3) for name, spread in spreads.items()}}

    def _prepared(self, problem: GemmWork, sets: Sequence[Operands]) -> tuple[dict[str, Prepared], dict[str, str]]:
        """The contenders whose result is right, and the errors of the others."""
        found: dict[str, Prepared] = {}
        wrong: dict[str, str] = {}
        makers: dict[str, Callable[[], Prepared]] = {
            CUBLAS: lambda: find(_rival(problem)).prepare(problem, sets, self.beat),
            LIBRARY: lambda: library(problem, sets),
        }
        for config in self.candidates(problem, self.sms, self.most):
            self.beat(f"{config.name()} {problem.shape}, building", 120.0)
            if program := self.program(problem, config):
                makers[config.name()] = partial(_own, program, config, problem, sets, self.sms)
        for name, make in makers.items():
            if name in self.left_out:
                wrong[name] = "hung in a run before"
                continue
            self.beat(f"{name} {problem.shape}, first run", 60.0)
            try:
                one = make()
                error, right = self.stage.check(problem, sets, one)
            except (WarploomError, RuntimeError, ValueError, TypeError) as failure:
                wrong[name] = f"{type(failure).__name__}: {str(failure)[:300]}"
                continue
            if right:
                found[name] = one
            else:
                wrong[name] = f"relative error {error:.2e}"
        return found, wrong


def _rival(problem: GemmWork) -> str:
    return {"": "cublas", "tensor": "scaled-mm", "row": "scaled-mm-row"}[problem.scales]


def _own(
    program: Program, config: AnyConfig, problem: GemmWork, sets: Sequence[Operands], sms: int
) -> Prepared:  # fmt: skip
    run, workspaces, of = Caller(program), {}, product_of(problem)

    def workspace(device: Any) -> tuple[Any, ...]:
        """Workspace of a kernel whose CTAs add up in memory: one for all calls, which are sequential."""
        import torch

        if not workspaces and not isinstance(config, Config) and config.shared_workspace:
            u32 = torch.uint32
            (blocks, width), counters = config.workspace(sets[0].out.shape[0], sets[0].out.shape[1], sms)
            workspaces["all"] = (torch.empty(blocks, width, device=device),
                                 torch.zeros(counters, dtype=torch.int32, device=device).view(u32))  # fmt: skip
        return workspaces.get("all", ())

    def one(o: Operands) -> Callable[[], object]:
        a, b = stored(o.a, of.a_major), stored(o.b, of.b_major)
        scales = () if o.scale_a is None else (o.scale_a.reshape(-1), o.scale_b.reshape(-1))
        more = (*scales, *workspace(o.a.device))
        return lambda: run(a, b, *more, out=o.out)

    return Prepared([one(o) for o in sets], "free_tile", config.name())


def library(problem: GemmWork, sets: Sequence[Operands]) -> Prepared:
    """`warploom.matmul` as users call it."""
    return Prepared([call_of(problem, o) for o in sets], "matmul", chosen_config(problem, gpu_of(0)).name())


# -- the program ---------------------------------------------------------------------------------------------------


def points(folder: Path) -> list[dict[str, Any]]:
    """The rows of earlier runs; a truncated last line is dropped."""
    found = []
    path = folder / POINTS
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            point = json.loads(line)
        except ValueError:
            continue
        if isinstance(point, dict) and "us" in point:
            found.append(point)
    return found


def hung_before(folder: Path) -> frozenset[str]:
    """Kernels that hung in an earlier run. Raises ArgumentError for a file that does not name them."""
    path = folder / HUNG
    try:
        names = json.loads(path.read_text())
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be read: {error}", hint="without it no kernel is left out") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"{path} does not say which kernels hung", expected="a list of their names", got=names)
    return frozenset(names)


def identity(point: Mapping[str, Any]) -> tuple[Any, ...]:
    """The identity of a point."""
    return tuple(point.get(name, "") for name in ("m", "n", "k", "dtype", "scales", "layout"))


def run(
    sweep: Sweep, problems: Sequence[GemmWork], folder: Path, seconds: float, now: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = print,
) -> int:  # fmt: skip
    """Measure what `folder` does not have yet, until time is up. Returns how many products were measured."""
    done = {identity(point) for point in points(folder)}
    begun, count = now(), 0
    with (folder / POINTS).open("a") as file:
        file.write("\n")  # ends a line that an interrupted run cut off
        for problem in problems:
            if identity(problem.as_dict()) in done:
                continue
            if now() - begun > seconds:
                say(f"the time is over after {count} products; the next run goes on here")
                break
            point = sweep.point(problem)
            file.write(json.dumps(point) + "\n")
            file.flush()
            os.fsync(file.fileno())
            count += 1
            say(_line(problem, point))
    return count


def _line(problem: GemmWork, point: Mapping[str, Any]) -> str:
    final = point["final_us"]
    ours = {name: us for name, us in final.items() if name not in (CUBLAS, LIBRARY)}
    if CUBLAS not in final or not ours:
        return f"{problem.shape}: incomplete, {len(point['wrong'])} wrong"
    best, base = min(ours, key=ours.__getitem__), final[CUBLAS]
    library_ratio = base / final[LIBRARY] if LIBRARY in final else 0.0
    return (f"{problem.shape}: {best} {ours[best]:.2f} us, {base / ours[best]:.3f} of cuBLAS, library "
            f"{library_ratio:.3f}, wrong {len(point['wrong'])}")  # fmt: skip


def of_file(path: Path) -> dict[GemmWork, list[AnyConfig]]:
    """The products of a file, each with the configurations to time beside its candidates, such as an earlier choice."""
    found = {}
    for each in json.loads(path.read_text()):
        configs = [any_config(name) for name in each.pop("configs", ())]
        found[GemmWork(**each)] = configs
    return found


def problems_of(options: argparse.Namespace) -> tuple[GemmWork, ...]:
    """The products: those of a file, or given ones first, then random ones."""
    if options.products:
        return tuple(of_file(options.products))
    like = GemmWork(1, 1, 1, dtype=options.dtype, scales=options.scales, layout=LAYOUTS[options.layout])
    given = parse_shapes(options.shapes, like) if options.shapes else ()
    least, _, most = options.rows.partition(":")
    if not (least.isdecimal() and most.isdecimal()):
        raise ArgumentError("these are not rows", expected="LEAST:MOST, such as 1:512", got=options.rows)
    least, most = int(least), int(most)
    how = {"like": like, "layouts": [options.layout], "least": least, "most": most}
    drawn = catalogue.draw(options.seed, options.count, **how) if options.count else ()
    return tuple(dict.fromkeys((*given, *drawn)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rows", default="1:512")
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--most", type=int, default=MOST_CANDIDATES, help="candidates of a product")
    parser.add_argument("--chosen-first", action="store_true", help="time the library's own first candidates")
    parser.add_argument("--forms", action="store_true", help="time its first ones and the first of each form")
    parser.add_argument("--pairs", action="store_true", help="beside it pairs of CTAs that share an operand")
    parser.add_argument("--clusters", action="store_true", help="beside it clusters of four and eight CTAs that share")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--scales", default="")
    parser.add_argument("--layout", default="forward", choices=LAYOUTS)
    parser.add_argument("--shapes", default="")
    parser.add_argument("--products", type=Path, help="objects with m, n, k, dtype, scales, layout, configs")
    parser.add_argument("--alone", type=float, default=0.0, help="seconds for which the best are timed alone, too")
    parser.add_argument("--evidence", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    ways = {"chosen_first": chosen_first, "forms": first_of_forms, "pairs": pairs, "clusters": clusters}
    which = next((way for name, way in ways.items() if getattr(options, name)), candidates)
    from warploom.lab.gpu_stage import GpuStage

    stage = GpuStage()
    problems = problems_of(options)
    done = {identity(point) for point in points(options.out)}
    missing = [problem for problem in problems if identity(problem.as_dict()) not in done]
    hung, left_out = options.out / HUNG, hung_before(options.out)

    def hang(who: str) -> None:
        print(f"no answer from the GPU for a while: {who}", file=sys.stderr, flush=True)
        hung.write_text(json.dumps(sorted({*left_out, who.split()[0]})))

    workers = max(1, (os.cpu_count() or 1) - CORES_LEFT)
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool, Watchdog(hang) as watchdog, stage
    ):  # fmt: skip
        also = of_file(options.products) if options.products else {}
        builds = Builds(missing, which, stage.sms, options.most, stage.arch, pool, also)
        chosen = lambda problem, *_: builds.candidates[problem]  # noqa: E731
        sweep = Sweep(stage, watchdog.beat, builds.program, left_out, stage.sms, options.most, chosen, options.alone)
        run(sweep, missing, options.out, options.seconds - (time.monotonic() - begun))
        pool.shutdown(cancel_futures=True)
    (options.out / "refused.json").write_text(json.dumps(builds.refused, indent=1))
    head = {**evidence.header(SUITE, gpu=stage.name, driver=driver_version()), "protocol": "interleaved",
            "seed": options.seed, "rows_drawn": options.rows}  # fmt: skip
    evidence.write(options.evidence or options.out / f"{SUITE}.json", head, points(options.out))


if __name__ == "__main__":
    try:
        main()
    except (WarploomError, OSError) as failure:  # measured points are kept; the next run resumes after them
        sys.exit(f"{type(failure).__name__}: {failure}")
