"""One rung on the GPU, in a process of its own: `python -m warploom.lab.rung_on_gpu NUMBER SIZE SECONDS DATA`.

The last line of stdout is the rung's rows as JSON: ours and torch.mm's of the same types, alone and interleaved.
It is checked on ragged sizes and on the measured one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ..errors import WarploomError
from ..kernels.ladder import Rung, find
from . import operands, timing
from .bench import CLOCK_S, ratios
from .climb import facts_of
from .contenders import Prepared
from .evidence import facts
from .gpu_stage import GpuStage
from .operands import Operands
from .power import PowerMeter
from .problem import Problem
from .recipe import recipe
from .watchdog import Watchdog

RAGGED = ((64, 64, 64), (200, 328, 136), (1000, 1048, 520), (384, 640, 4096))
CUBLAS = "cublas"
SLOW_US, SLOW_ROUNDS = 100_000, 3
"""A rung without tensor cores takes seconds where others take a millisecond; it varies little, so a few rounds do."""


def arrays(rung: Rung, problem: Problem, data: str) -> Operands:
    """Operands as the rung takes them: B (K, N) where its layout is NN."""
    (made,) = operands.make(problem, data, 1)
    if rung.layout == "NN":
        made.b = made.b.T.contiguous()
    return made


def error_of(rung: Rung, problem: Problem, o: Operands, kernel: Any) -> float:
    """Relative error of a call. Ends the process with a sentence where an element is wrong."""
    o.out.fill_(float("nan"))
    kernel(o.a, o.b, out=o.out)
    plain = Operands(o.a, o.b if rung.layout == "TN" else o.b.T, o.out)
    error, right = operands.reference(problem, plain).errors(o.out)
    if not right:
        raise SystemExit(f"{rung.module} is wrong at {problem.shape}: relative error {error:.2e}")
    return error


def measure(rung: Rung, size: int, seconds: float, data: str, stage: GpuStage) -> list[dict[str, Any]]:
    """The rows of a rung."""
    import torch

    def hang(who: str) -> None:
        print(f"no answer from the GPU: {who}", file=sys.stderr, flush=True)

    meter = PowerMeter(stage.uuid)
    with Watchdog(hang) as watchdog, meter:
        watchdog.beat("building", 120)
        kernel = rung.build()
        for shape in RAGGED:
            problem = Problem(*shape, dtype=rung.dtype.name, out=rung.out.name)
            error_of(rung, problem, arrays(rung, problem, "normal"), kernel)
        problem = Problem(size, size, size, dtype=rung.dtype.name, out=rung.out.name)
        watchdog.beat(f"{size} x {size} x {size}", 120)
        o = arrays(rung, problem, data)
        error = error_of(rung, problem, o, kernel)
        b, theirs = o.b.T if rung.layout == "TN" else o.b, torch.empty_like(o.out)
        calls = {rung.module: lambda: kernel(o.a, o.b, out=o.out), CUBLAS: lambda: torch.mm(o.a, b, out=theirs)}
        prepared = Prepared([calls[rung.module]], program=kernel.program(), arguments=[((o.a, o.b), o.out)])
        own = {**facts(kernel, recipe(rung.build, rung.load().Config())), "relative_error": float(f"{error:.4g}")}
        rows: list[dict[str, Any]] = []
        for protocol in ("alone", "interleaved"):

            def watch(name: str, counting: bool, protocol: str = protocol) -> None:
                watchdog.beat(f"{name}, {protocol}", 60)
                meter.label = f"{name}|{protocol}" if counting else None

            if protocol == "alone":
                spreads = timing.alone(calls, block_s=seconds / 2, timer=stage.timer, watch=watch)
            else:
                slow = rows[0]["us"]["median"] > SLOW_US
                rounds = SLOW_ROUNDS if slow else 15
                spreads = timing.interleaved(calls, rounds=rounds, timer=stage.timer, watch=watch)
            meter.label = None
            for name, spread in spreads.items():
                row = {
                    **facts_of(rung), **problem.as_dict(), "layout": rung.layout.lower(), "beside": rung.module,
                    "protocol": protocol,
                    "tflops": spread.as_dict(lambda each: problem.flops / each / 1e12, 2),
                    "us": spread.as_dict(lambda each: each * 1e6, 2), "ratio_to": ratios_to(name, spreads),
                }  # fmt: skip
                if data != "normal":
                    row["data"] = data
                readings = meter.labelled.get(f"{name}|{protocol}")
                if protocol == "alone" and readings is not None and readings.watts:
                    row["sm_clock_mhz"], row["power_w"] = readings.megahertz, round(readings.watts, 1)
                    row["pj_per_flop"] = round(readings.watts * spread.median / problem.flops * 1e12, 4)
                if name == rung.module:
                    row |= own
                    if protocol == "alone":
                        row |= clocked(stage, prepared, problem)
                else:
                    row |= {"provider": CUBLAS, "kernel": "torch.mm"}
                    row.pop("seed", None)
                rows.append(row)
        return rows


def ratios_to(name: str, spreads: dict[str, timing.Spread]) -> dict[str, float]:
    """How many times as fast as cuBLAS."""
    return {CUBLAS: ratios(name, spreads)[CUBLAS]}


def clocked(stage: GpuStage, prepared: Prepared, problem: Problem) -> dict[str, float]:
    """The clock the kernel counts, and the share of the peak at it."""
    try:
        found = stage.clock(prepared, CLOCK_S)
    except WarploomError as error:  # with the clock read in it the kernel does not build: then there is no share
        print(f"the clock could not be read: {error}", file=sys.stderr)
        return {}
    if found is None:
        return {}
    reading, each = found
    share = stage.share(reading, problem.flops / each / 1e12, problem.dtype)
    activity = {} if share is None else {"tensor_activity": round(share, 4)}
    return {"kernel_clock_mhz": round(reading.megahertz, 1), **activity}


def main() -> None:
    number, size, seconds, data = sys.argv[1:5]
    rows = measure(find(number), int(size), float(seconds), data, GpuStage())
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
