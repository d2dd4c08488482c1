"""Products with their communication, on all GPUs of this machine: ours, NCCL, PyTorch's fused operators.

    python -m benchmarks.tensor_parallel [--out benchmarks/results/nvidia-h200/tensor-parallel.json] [--seconds 500]
                                         [--only all-gather] [--forms copy,staged] [--more] [--pretend]

One process for each GPU, NCCL, no NVLink multicast. bf16, random normal; M, N, K are those of the whole product: with
the all-gather each GPU has M / ranks rows of A and N / ranks columns of B, with the others K / ranks of both.
"warploom" is what a call does by default; `--forms` names what else is timed beside it, all of them by default
("warploom copy" is `by="copy"`). `--more` adds what `tensor_parallel_more` has: eight-bit operands and experts.

What matters most comes first, each row is written when it is measured, and no row is begun that would end behind
`--seconds`; a program that hangs is ended soon after. Kernels are built ahead by all cores. A form that fails or is
wrong is left out of its row, which says so, and the group's memory is made anew.

Products of few rows with an all-reduce, and one all-gather at the end, are replayed from a CUDA graph of `CALLS` calls,
as decoding does; "torch fused" is torch.mm and the better of PyTorch's one-shot and two-shot all-reduce of symmetric
memory there. Contenders take turns, ROUNDS rounds in random order, the same on all ranks; a round is `CALLS` calls
between two CUDA events, and the time is that of the slowest rank. The figure is the median of the rounds. "bound" is
the longer of product and collective, each by itself. Results are compared with a product in f32 before anything is
timed.

`--pretend` tries the program with small products on the CPU, under gloo; its times mean nothing.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import tensor_parallel_cases as contenders
from benchmarks import tensor_parallel_more
from benchmarks.tensor_parallel_cases import TOLERANCE, Contest
from benchmarks.tensor_parallel_machine import Call, Case, Gpus, Processes, build_ahead
from warploom.collective.reduce.peers import FORMS as SUMS
from warploom.settings import GATHERS, SCATTERS

ROUNDS, CALLS = 9, 10
PRETENDED_RANKS = 2
SHAPES = [
    (2048, 8192, 28672), (4096, 8192, 28672), (8192, 8192, 28672), (2048, 28672, 8192), (8192, 28672, 8192),
    (16384, 5120, 25600),
]  # fmt: skip
FEW = [(m, n, k) for n, k in ((8192, 28672), (8192, 8192), (4096, 14336)) for m in (1, 16, 64, 128)]
"""Products of few rows."""
SMALL = [(16, 32, 64)]
GRAPH = "-graph"
"""Behind a kind: from a CUDA graph."""
KINDS = ("all-gather", "reduce-scatter", "all-reduce", *tensor_parallel_more.KINDS, f"all-gather{GRAPH}")
FORMS = (*GATHERS, *SCATTERS, *SUMS)
PATIENCE_S = "20"
"""How long a kernel waits for another GPU here."""
HUNG_S = 60
"""Behind the limit, when a program is ended that has not."""


def cases_of(options: argparse.Namespace) -> list[Case]:
    """What is measured, the most important first."""
    shapes = SMALL if options.pretend else SHAPES[: options.shapes]
    cases: list[Case] = [(kind, *shape) for kind in KINDS[:2] for shape in shapes]
    cases += [("all-reduce", *shape) for shape in (SMALL if options.pretend else FEW)]
    if (options.more or options.only in tensor_parallel_more.KINDS) and not options.pretend:
        cases += tensor_parallel_more.cases(shapes)
    cases.append((KINDS[-1], *shapes[0]))
    return [case for case in cases if options.only in ("", case[0])]


def worker(rank: int, world: int, port: int, options: argparse.Namespace) -> None:
    faulthandler.dump_traceback_later(options.seconds + HUNG_S - (time.time() - options.began), exit=True)
    machine: Gpus = (Processes if options.pretend else Gpus)(rank, world, port)
    rows: list[dict[str, Any]] = []
    longest = 0.0
    for case in cases_of(options):
        began = time.time()
        if machine.most(began - options.began + 1.2 * longest) > options.seconds:
            if rank == 0:
                print("left out, for lack of time:", *case, flush=True)
            continue
        row = measured(case, machine, options)
        rows.append(row)
        longest = max(longest, time.time() - began)
        if rank == 0:
            told(row, time.time() - began)
            write(options.out, rows, machine)
    machine.dist.barrier()
    machine.dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


def told(row: dict[str, Any], seconds: float) -> None:
    """Print a row."""
    times = ", ".join(f"{name} {us:.1f}" for name, us in row["us"].items())
    forms = ", ".join(f"{name} {each['ratio']:.3f} ({each['of_bound']:.3f})" for name, each in row["forms"].items())
    size = f"{row['m']}x{row['n']}x{row['k']}"
    print(f"{row['kind']} {size}: {times}; of the faster baseline (of the bound): {forms}; {seconds:.0f} s", flush=True)
    for name, us in row.get("eager_us", {}).items():
        print(f"    eager {name} {us:.1f} us, host {row['host_us'][name]:.1f} us", flush=True)
    for name, problem in row["failed"].items():
        print(f"    left out: {name}: {problem}", flush=True)


def write(out: str, rows: list[dict[str, Any]], machine: Gpus) -> None:
    """The evidence so far."""
    if not out:
        return
    evidence = {
        "suite": "tensor-parallel", "gpu": machine.name(), "ranks": machine.world,
        "date": time.strftime("%Y-%m-%d"), "command": "python -m benchmarks.tensor_parallel",
        "versions": machine.versions(),
        "protocol": f"interleaved, median of {ROUNDS} rounds of {CALLS} calls, slowest rank", "rows": rows,
    }  # fmt: skip
    Path(out).write_text(json.dumps(evidence, indent=1) + "\n")


# -- a row -------------------------------------------------------------------------------------------------------------


def measured(case: Case, machine: Gpus, options: argparse.Namespace) -> dict[str, Any]:
    """Check and time one product."""
    kind, *sizes = case
    forms = options.forms.split(",") if options.forms else FORMS
    if kind in tensor_parallel_more.KINDS:
        place = machine.rank, machine.world, machine.device
        contest = Contest(*tensor_parallel_more.calls(kind, tuple(sizes), *place, forms))
    else:
        contest = getattr(contenders, kind.removesuffix(GRAPH).replace("-", "_"))(machine, *sizes[:3], forms)
    if kind.endswith(GRAPH):
        contest.calls.pop("torch fused", None)  # it is not made for it
    tolerance = tensor_parallel_more.TOLERANCE if kind in tensor_parallel_more.KINDS else TOLERANCE
    errors, failed = surviving(contest, machine, tolerance)
    named: dict[str, Any] = dict(zip(("m", "n", "k", "experts", "topk"), sizes, strict=False))
    row = {"kind": kind, **named, "relative_error": errors, "failed": failed, **contest.more}
    if kind != "all-reduce" and not kind.endswith(GRAPH):
        return {**row, **timed(contest.calls, machine)}
    eager = timed(contest.calls, machine)
    host = {name: machine.most(machine.on_host(call)) for name, call in contest.calls.items()}
    graphs = {name: machine.replayed(call, CALLS) for name, call in contest.calls.items()}
    return {
        **row, **timed(graphs, machine, 1, CALLS), "eager_us": eager["us"], "eager_ratio": eager["ratio"],
        "host_us": host,
    }  # fmt: skip


def surviving(contest: Contest, machine: Gpus, tolerance: float) -> tuple[dict[str, float], dict[str, str]]:
    """Relative errors of the contenders; what fails on any rank is taken out, and why. Ends the program where the
    baseline is wrong."""
    from warploom.integrations.torch import distributed as ours

    errors, failed = {}, {}
    for name in [each for each in contest.calls if each not in ("mm", "collective")]:
        problem = ""
        try:
            errors[name] = contest.error_of(name, machine)
            if not errors[name] < tolerance:
                problem = f"relative error {errors[name]}"
            elif name.startswith("warploom"):
                problem = contest.unsteady(name, machine)
                ours.check()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:400]
        if machine.most(float(bool(problem))):
            failed[name] = problem or "on another rank"
            errors.pop(name, None)
            del contest.calls[name]
            if name == "nccl":
                raise SystemExit(f"the baseline is wrong: {problem}")
            if name.startswith("warploom"):
                ours.reset()
    contest.expected = None
    return errors, failed


def timed(calls: dict[str, Call], machine: Gpus, repeats: int = CALLS, each: int = 1) -> dict[str, Any]:
    """Microseconds of each, and what they say; `each`: how many products a call is."""
    order = random.Random(1)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in order.sample(sorted(calls), len(calls)):
            calls[name]()
            machine.dist.barrier()
            found[name].append(machine.most(machine.microseconds(calls[name], repeats) / each))
    us = {name: statistics.median(values) for name, values in found.items()}
    bound = max(us["mm"], us["collective"])
    baseline = min(value for name, value in us.items() if name.startswith(("nccl", "torch")))
    forms = {
        name: {"ratio": baseline / value, "of_bound": bound / value}
        for name, value in us.items()
        if name.startswith("warploom")
    }
    default = forms.get("warploom", {"ratio": None, "of_bound": None})
    ratio_to_nccl = us["nccl"] / us["warploom"] if "warploom" in us else None
    return {"us": us, "rounds": found, **default, "ratio_to_nccl": ratio_to_nccl, "forms": forms}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="")
    parser.add_argument("--seconds", type=float, default=500.0, help="no row is begun that would end behind that")
    parser.add_argument("--forms", default="", help=f"which are timed, of {','.join(FORMS)}; all by default")
    parser.add_argument("--more", action="store_true", help="eight-bit operands and experts, too")
    parser.add_argument("--only", choices=KINDS, default="", help="one kind alone")
    parser.add_argument("--shapes", type=int, default=len(SHAPES))
    parser.add_argument("--pretend", action="store_true", help="on the CPU")
    options = parser.parse_args(arguments)
    options.began = time.time()
    import torch

    world, sms = PRETENDED_RANKS, 132
    if not options.pretend:
        world = torch.cuda.device_count()
        if world < 2:
            print("this needs a machine with two GPUs or more")
            return 1
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        build_ahead(cases_of(options), world, sms, options.seconds / 4)
    os.environ.setdefault("WARPLOOM_PEER_TIMEOUT_S", PATIENCE_S)
    start: Callable[..., Any] = torch.multiprocessing.spawn
    start(worker, args=(world, 29577 + os.getpid() % 1000, options), nprocs=world)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
