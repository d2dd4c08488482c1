"""One rung on the GPU, in a separate process: `python -m warploom.lab.rung_on_gpu NUMBER SIZE SECONDS DATA`.

The last line of stdout is the rung's rows as JSON: ours and torch.mm's of the same types, alone and interleaved.
It is checked on ragged sizes and on the measured one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ..kernels.ladder import Rung, find
from ..runtime.benchmark.power import PowerMeter
from ..runtime.benchmark.protocols import ratios, sample
from ..runtime.benchmark.watchdog import Watchdog
from . import operands
from .bench import clocked, energy
from .contender import Prepared
from .evidence import facts
from .gpu_stage import GpuStage
from .ladder_runner import facts_of
from .operands import Operands
from .recipe import recipe
from .work import GemmWork

RAGGED = ((64, 64, 64), (200, 328, 136), (1000, 1048, 520), (384, 640, 4096))
CUBLAS = "cublas"
SLOW_US, SLOW_ROUNDS = 100_000, 3
"""A rung without tensor cores takes seconds where others take a millisecond; it varies little, so few rounds do."""


def arrays(rung: Rung, problem: GemmWork, data: str) -> Operands:
    """Operands in the layout of the rung: B (K, N) if it is NN."""
    (made,) = operands.make(problem, data, 1)
    if rung.layout == "NN":
        made.b = made.b.T.contiguous()
    return made


def error_of(rung: Rung, problem: GemmWork, o: Operands, kernel: Any) -> float:
    """Relative error of a call. Ends the process with a message if an element is wrong."""
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
    with Watchdog(hang) as watchdog, meter, stage:
        watchdog.beat("building", 120)
        kernel = rung.build()
        for shape in RAGGED:
            problem = GemmWork(*shape, dtype=rung.dtype.name, out=rung.out.name)
            error_of(rung, problem, arrays(rung, problem, "normal"), kernel)
        problem = GemmWork(size, size, size, dtype=rung.dtype.name, out=rung.out.name)
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

            slow = rows and rows[0]["us"]["median"] > SLOW_US
            rounds = (SLOW_ROUNDS if slow else 15) if protocol == "interleaved" else 0
            spreads = sample(protocol, calls, seconds, stage.timer, watch=watch, rounds=rounds)
            meter.label = None
            for name, spread in spreads.items():
                row = {
                    **facts_of(rung), **problem.as_dict(), "layout": rung.layout.lower(), "beside": rung.module,
                    "protocol": protocol,
                    "tflops": spread.as_dict(lambda each: problem.flops / each / 1e12, 2),
                    "us": spread.as_dict(lambda each: each * 1e6, 2), "ratio_to": ratios(name, spreads, {CUBLAS: 1}),
                }  # fmt: skip
                if data != "normal":
                    row["data"] = data
                if protocol == "alone":
                    row |= energy(meter.labelled.get(f"{name}|{protocol}"), spread, problem)
                if name == rung.module:
                    row |= own
                    if protocol == "alone":
                        row |= clocked(stage, prepared, problem, lambda line: print(line, file=sys.stderr))
                else:
                    row |= {"provider": CUBLAS, "kernel": "torch.mm"}
                    row.pop("seed", None)
                rows.append(row)
        return rows


def main() -> None:
    number, size, seconds, data = sys.argv[1:5]
    rows = measure(find(number), int(size), float(seconds), data, GpuStage())
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
