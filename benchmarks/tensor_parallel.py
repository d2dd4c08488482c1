"""Products with their communication, on all GPUs of this machine: ours, NCCL, PyTorch's fused operators.

    python -m benchmarks.tensor_parallel [--out benchmarks/results/nvidia-h200/tensor-parallel.json] [--seconds 500]
                                         [--only all-gather] [--forms copy] [--more] [--pretend]

One process for each GPU, NCCL, no NVLink multicast. bf16, random normal; M, N, K are those of the whole product: with
the all-gather each GPU has M / ranks rows of A and N / ranks columns of B, with the others K / ranks of both.
"warploom" is what a call does by default; `--forms` names what else is timed beside it ("warploom copy" is
`by="copy"`). Without it, all are, in rows behind those of the default forms. `--more` adds what
`tensor_parallel_more` has: eight-bit operands and experts.

What matters most comes first: the default forms, the other forms, few rows, a graph, `--more`. Each row is written
when it is measured, and no row is begun that would end behind `--seconds`. Kernels are built ahead by all cores. A form
that fails or is wrong is left out of its row, which says so, and the group's memory is made anew. If a process ends or
hangs, `tensor_parallel_restarts` starts all anew without the contender at fault.

Products of few rows with an all-reduce, and one all-gather at the end, are replayed from a CUDA graph of `CALLS` calls,
as decoding does; "torch fused" is torch.mm and the better of PyTorch's one-shot and two-shot all-reduce of symmetric
memory there. Contenders take turns, ROUNDS rounds in random order, the same on all ranks; a round is `CALLS` calls
between two CUDA events, and the time is that of the slowest rank. The figure is the median of the rounds. "bound" is
the longer of product and collective, each by itself. Results are compared with a product in f32 before anything is
timed, and ours must have the same bits in `SAME_BITS` runs: sums are always added in rank order, so there is no other
mode to compare with.

`--pretend` tries the program with small products on the CPU, under gloo; its times mean nothing. `--break` lets a
contender raise, end its process or hang on the last rank: "warploom copy=exit".
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from typing import Any

from benchmarks import tensor_parallel_more
from benchmarks.tensor_parallel_machine import Case, Gpus, Processes, build_ahead
from benchmarks.tensor_parallel_restarts import Failed, Notes, supervise
from benchmarks.tensor_parallel_rows import CALLS, GRAPH, ROUNDS, SETUP, WrongBaseline, measured, named
from warploom.collective.reduce.peers import FORMS as SUMS
from warploom.settings import GATHERS

PRETENDED_RANKS = 2
SHAPES = [
    (2048, 8192, 28672), (4096, 8192, 28672), (8192, 8192, 28672), (2048, 28672, 8192), (8192, 28672, 8192),
    (16384, 5120, 25600),
]  # fmt: skip
FEW = [(m, n, k) for n, k in ((8192, 28672), (8192, 8192), (4096, 14336)) for m in (1, 16, 64, 128)]
"""Products of few rows."""
SMALL = [(16, 32, 64)]
KINDS = ("all-gather", "reduce-scatter", "all-reduce", *tensor_parallel_more.KINDS, f"all-gather{GRAPH}")
FORMS = (*GATHERS, *SUMS)
PATIENCE_S = "20"
"""How long a kernel waits for another GPU here."""
Entry = tuple[Case, tuple[str, ...]]
"""A case, and the forms beside the default one."""


def entries_of(options: argparse.Namespace) -> list[Entry]:
    """What is measured, the most important first."""
    shapes = SMALL if options.pretend else SHAPES[: options.shapes]
    forms = tuple(options.forms.split(",")) if options.forms else FORMS
    only = options.only.split(",") if options.only else KINDS
    large: list[Case] = [(kind, *shape) for shape in shapes for kind in KINDS[:2]]
    entries: list[Entry] = [] if options.forms else [(case, ()) for case in large]
    entries += [(case, forms) for case in large if options.forms or case[0] == KINDS[0]]
    entries += [(("all-reduce", *shape), forms) for shape in (SMALL if options.pretend else FEW)]
    entries.append(((KINDS[-1], *shapes[0]), forms))
    if (options.more or (options.only and set(only) & set(tensor_parallel_more.KINDS))) and not options.pretend:
        entries += [(case, forms) for case in tensor_parallel_more.cases(shapes)]
    return [each for each in entries if each[0][0] in only]


def worker(
    rank: int, world: int, port: int, options: argparse.Namespace, folder: str, left: list[int], failed: Failed
) -> None:
    """Measure the rows `left` without the contenders that `failed`."""
    notes = Notes(folder, rank)
    notes.starts()
    machine: Gpus = (Processes if options.pretend else Gpus)(rank, world, port)
    entries, longest = entries_of(options), 0.0
    broken = dict([options.broken.split("=")] if options.broken and rank == world - 1 else [])
    for index in left:
        case, forms = entries[index]
        began = time.time()
        notes.row = index
        notes.tell(SETUP, "")
        if machine.most(began - options.began + 1.2 * longest) > options.seconds:
            if rank == 0:
                print("left out, for lack of time:", *case, flush=True)
            continue
        try:
            row = measured(case, machine, forms, notes.tell, failed.get(index), broken)
        except WrongBaseline as error:
            row = {**named(case), "error": f"the baseline is wrong: {error}", "failed": failed.get(index, {})}
        longest = max(longest, time.time() - began)
        if rank == 0:
            told(row, time.time() - began)
            notes.keep(index, row, header(machine))
            notes.write(options.out)
    machine.dist.barrier()
    machine.dist.destroy_process_group()
    notes.ends()


def told(row: dict[str, Any], seconds: float) -> None:
    """Print a row."""
    size = f"{row['kind']} {row['m']}x{row['n']}x{row['k']}"
    if "error" in row:
        print(f"{size}: {row['error']}", flush=True)
        return
    times = ", ".join(f"{name} {us:.1f}" for name, us in row["us"].items())
    forms = ", ".join(f"{name} {each['ratio']:.3f} ({each['of_bound']:.3f})" for name, each in row["forms"].items())
    print(f"{size}: {times}; of the faster baseline (of the bound): {forms}; {seconds:.0f} s", flush=True)
    for name, us in row.get("eager_us", {}).items():
        print(f"    eager {name} {us:.1f} us, host {row['host_us'][name]:.1f} us", flush=True)
    for name, problem in row["failed"].items():
        print(f"    left out: {name}: {problem}", flush=True)


def header(machine: Gpus) -> dict[str, Any]:
    """What the evidence says of all rows."""
    return {
        "suite": "tensor-parallel", "gpu": machine.name(), "ranks": machine.world,
        "date": time.strftime("%Y-%m-%d"), "command": "python -m benchmarks.tensor_parallel",
        "versions": machine.versions(),
        "protocol": f"interleaved, median of {ROUNDS} rounds of {CALLS} calls, slowest rank",
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="")
    parser.add_argument("--seconds", type=float, default=500.0, help="no row is begun that would end behind that")
    parser.add_argument("--forms", default="", help=f"which are timed, of {','.join(FORMS)}; all by default")
    parser.add_argument("--more", action="store_true", help="eight-bit operands and experts, too")
    parser.add_argument("--only", default="", help=f"some kinds alone, of {','.join(KINDS)}")
    parser.add_argument("--shapes", type=int, default=len(SHAPES))
    parser.add_argument("--pretend", action="store_true", help="on the CPU")
    parser.add_argument("--break", dest="broken", default="", help="CONTENDER=raise, exit or hang, on the last rank")
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
        build_ahead([case for case, _ in entries_of(options)], world, sms, options.seconds / 4)
    os.environ.setdefault("WARPLOOM_PEER_TIMEOUT_S", PATIENCE_S)
    cases = [named(case) for case, _ in entries_of(options)]
    ports = iter(range(29577 + os.getpid() % 1000, 65536))
    with tempfile.TemporaryDirectory() as folder:

        def start(left: list[int], failed: Failed) -> Any:
            given = world, next(ports), options, folder, left, failed
            return torch.multiprocessing.spawn(worker, args=given, nprocs=world, join=False)  # type: ignore[no-untyped-call]

        supervise(
            start, cases, [Notes(folder, rank) for rank in range(world)], options.out, options.began + options.seconds
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
