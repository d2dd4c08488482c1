"""Products with their communication, on all GPUs of this machine: ours, NCCL, PyTorch's fused operators.

    python -m benchmarks.tensor_parallel [--out benchmarks/results/nvidia-h200/tensor-parallel.json] [--seconds 60]
                                         [--only all-reduce] [--more]

One process for each GPU, NCCL, no NVLink multicast. bf16, random normal; M, N, K are those of the whole product: with
the all-gather each GPU has M / ranks rows of A and N / ranks columns of B, with the others K / ranks of both.
`--more` adds what `tensor_parallel_more` has: eight-bit operands and experts.
Products of few rows with an all-reduce are replayed from a CUDA graph of `CALLS` calls, as decoding does; "torch fused"
is torch.mm and the better of PyTorch's one-shot and two-shot all-reduce of symmetric memory there.
Contenders take turns, ROUNDS rounds in random order, the same on all ranks; a round is `CALLS` calls between two CUDA
events, and the time is that of the slowest rank. The figure is the median of the rounds. "bound" is the longer of
product and collective, each by itself. Results are compared with a product in f32 before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import tensor_parallel_more

ROUNDS, CALLS = 9, 10
TOLERANCE = 0.02
SHAPES = [
    (8192, 8192, 28672), (4096, 8192, 28672), (2048, 8192, 28672), (8192, 28672, 8192), (2048, 28672, 8192),
    (16384, 5120, 25600),
]  # fmt: skip
FEW = [(m, n, k) for n, k in ((8192, 28672), (8192, 8192), (4096, 14336)) for m in (1, 16, 64, 128)]
"""Products of few rows."""
SAME_BITS = 100
"""Runs of a product with an all-reduce that must give the same bits on all ranks."""
KINDS = ("all-reduce", "all-gather", "reduce-scatter", *tensor_parallel_more.KINDS)


def worker(rank: int, world: int, port: int, options: argparse.Namespace) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    began, rows = time.monotonic(), []
    cases = [("all-reduce", *shape) for shape in FEW]
    cases += [(kind, *shape) for shape in SHAPES[: options.shapes] for kind in ("all-gather", "reduce-scatter")]
    if options.more or options.only in tensor_parallel_more.KINDS:
        cases += tensor_parallel_more.cases(SHAPES[: options.shapes])
    for kind, m, n, k, *others in cases:
        if options.only and kind != options.only:
            continue
        left = torch.tensor([options.seconds - (time.monotonic() - began)], device=device)
        dist.broadcast(left, 0)
        if float(left) <= 0:
            if rank == 0:
                print(f"left out: {kind} {m}x{n}x{k}", flush=True)
            continue
        size = (m, n, k, rank, world, device)
        if kind in tensor_parallel_more.KINDS:
            row = further(kind, (m, n, k, *others), rank, world, device)
        else:
            row = few_rows(*size, options.candidates) if kind == "all-reduce" else case(kind, *size)
        rows.append(row)
        if rank == 0:
            times = ", ".join(f"{name} {us:.1f}" for name, us in row["us"].items())
            ratios = f"ours {row['ratio']:.3f} of the faster baseline, {row['of_bound']:.3f} of the bound"
            print(f"{kind} {m}x{n}x{k}: {times}; {ratios}", flush=True)
            write(options.out, rows, world, device)
    dist.barrier()
    dist.destroy_process_group()


def write(out: str, rows: list[dict[str, Any]], world: int, device: Any) -> None:
    """The evidence so far."""
    import torch

    if not out:
        return
    evidence = {
        "suite": "tensor-parallel", "gpu": torch.cuda.get_device_name(device), "ranks": world,
        "date": time.strftime("%Y-%m-%d"), "command": "python -m benchmarks.tensor_parallel",
        "versions": {"torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version()))},
        "protocol": f"interleaved, median of {ROUNDS} rounds of {CALLS} calls, slowest rank", "rows": rows,
    }  # fmt: skip
    Path(out).write_text(json.dumps(evidence, indent=1) + "\n")


def few_rows(m: int, n: int, k: int, rank: int, world: int, device: Any, others: int) -> dict[str, Any]:
    """Check and time one product of few rows with its all-reduce; `others`: tiles that are tried beside the chosen."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    from warploom.integrations.torch import distributed as ours
    from warploom.kernels.hopper import gemm_all_reduce

    generator = torch.Generator(device).manual_seed(rank + 1)
    kind: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    a, weight = (torch.randn(rows, k // world, generator=generator, **kind) for rows in (m, n))
    b, group = weight.mT, dist.group.WORLD.group_name
    shared = symmetric.empty((m, n), **kind)
    symmetric.rendezvous(shared, group)
    outs = {name: torch.zeros(m, n, **kind) for name in ("warploom", "nccl", "mm", "collective")}

    def nccl() -> Any:
        torch.mm(a, b, out=outs["nccl"])
        dist.all_reduce(outs["nccl"])
        return outs["nccl"]

    def of_symmetric(reduce: Callable[..., Any]) -> Any:
        torch.mm(a, b, out=shared)
        return reduce(shared, "sum", group)

    calls = {
        "warploom": lambda: ours.matmul_all_reduce(a, b, out=outs["warploom"]),
        "nccl": nccl,
        "torch one-shot": lambda: of_symmetric(torch.ops.symm_mem.one_shot_all_reduce),
        "torch two-shot": lambda: of_symmetric(torch.ops.symm_mem.two_shot_all_reduce_),
        "mm": lambda: torch.mm(a, b, out=outs["mm"]),
        "collective": lambda: dist.all_reduce(outs["collective"]),
    }
    expected = a.float() @ b.float()
    dist.all_reduce(expected)
    errors = {name: error_of(calls[name], expected) for name in list(calls)[:4]}
    first = calls["warploom"]().clone()
    everyone = torch.empty(world, m, n, **kind)
    dist.all_gather_into_tensor(everyone, first)
    same = all(torch.equal(each, first) for each in everyone)
    for _ in range(SAME_BITS):
        same = same and torch.equal(calls["warploom"](), first)
    if not same:
        raise SystemExit(f"the bits differ: all-reduce {m}x{n}x{k}")
    ours.check()
    eager = timed(calls, device)
    if rank == 0:
        print(f"eager {m}x{n}x{k}: " + ", ".join(f"{name} {us:.1f}" for name, us in eager["us"].items()), flush=True)
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    tiles = gemm_all_reduce.candidates(m, n, k // world, sms)
    for tile in [*tiles[1 : others + 1], *decoding(m, n, k // world, sms)][: others + 1 if others else 0]:
        calls[tile.name()] = lambda tile=tile: ours.matmul_all_reduce(a, b, out=outs["warploom"], config=tile)
        error_of(calls[tile.name()], expected)
    captured = {name: replayed(call) for name, call in calls.items()}
    found = timed(captured, device, 1, CALLS)
    config = tiles[0]
    return {"kind": "all-reduce", "m": m, "n": n, "k": k, "config": config.name(), "relative_error": errors,
            "same_bits": SAME_BITS, **found, "eager_us": eager["us"], "eager_ratio": eager["ratio"]}  # fmt: skip


def decoding(m: int, n: int, k: int, sms: int) -> list[Any]:
    """The free tile that does as much as the small-M kernel that would be chosen, where there is one."""
    from warploom.kernels.hopper import small_m_config
    from warploom.kernels.hopper.free_tile_choice import of_decode, waves_of

    small = small_m_config.choose(m, n, k, sms)
    tile = of_decode(small)
    tile = replace(tile, tile_n=max(tile.tile_n, 8 * tile.split_k)).filled()
    return [tile] if (small.split_k == 1 or small.clustered) and waves_of(tile, m, n, sms) == 1 else []


def error_of(call: Callable[[], Any], expected: Any, tolerance: float = TOLERANCE) -> float:
    """Relative error of a call's result. Ends the program where it is wrong."""
    import torch

    for _ in range(3):
        found = call()
    torch.cuda.synchronize()
    error = float((found.float() - expected).norm() / expected.norm())
    if not error < tolerance:
        raise SystemExit(f"a contender is wrong: relative error {error}")
    return error


def replayed(call: Callable[[], Any]) -> Callable[[], Any]:
    """The replay of a graph of `CALLS` calls."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(CALLS):
            call()
    replay: Callable[[], Any] = graph.replay
    return replay


def case(kind: str, m: int, n: int, k: int, rank: int, world: int, device: Any) -> dict[str, Any]:
    """Check and time one product."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    from warploom.integrations.torch import distributed as ours

    generator = torch.Generator(device).manual_seed(rank + 1)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device=device, dtype=torch.bfloat16, generator=generator)

    group = dist.group.WORLD.group_name
    if kind == "all-gather":
        a, weight = normal(m // world, k), normal(n // world, k)
        b, whole = weight.mT, torch.empty(m, k, device=device, dtype=torch.bfloat16)
        out = torch.empty(m, n // world, device=device, dtype=torch.bfloat16)
        shared = symmetric.empty(a.shape, dtype=a.dtype, device=device).copy_(a)
        symmetric.rendezvous(shared, group)

        def nccl() -> Any:
            dist.all_gather_into_tensor(whole, a)
            return torch.mm(whole, b, out=out)

        calls = {
            "warploom": lambda: ours.all_gather_matmul(a, b, out=out),
            "nccl": nccl,
            "torch fused": lambda: torch.ops.symm_mem.fused_all_gather_matmul(shared, [b], 0, group)[1][0],
            "mm": lambda: torch.mm(whole, b, out=out),
            "collective": lambda: dist.all_gather_into_tensor(whole, a),
        }
        dist.all_gather_into_tensor(whole, a)
        expected = whole.float() @ b.float()
    else:
        a, weight = normal(m, k // world), normal(n, k // world)
        b, part = weight.mT, torch.empty(m, n, device=device, dtype=torch.bfloat16)
        out = torch.empty(m // world, n, device=device, dtype=torch.bfloat16)

        def nccl() -> Any:
            torch.mm(a, b, out=part)
            dist.reduce_scatter_tensor(out, part)
            return out

        calls = {
            "warploom": lambda: ours.matmul_reduce_scatter(a, b, out=out),
            "nccl": nccl,
            "torch fused": lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, group),
            "mm": lambda: torch.mm(a, b, out=part),
            "collective": lambda: dist.reduce_scatter_tensor(out, part),
        }
        expected = torch.empty(m // world, n, device=device)
        dist.reduce_scatter_tensor(expected, a.float() @ b.float())
    errors = {}
    for name in ("warploom", "nccl", "torch fused"):
        for _ in range(3):
            out.fill_(float("nan"))
            found = calls[name]()
        torch.cuda.synchronize()
        errors[name] = float((found.float() - expected).norm() / expected.norm())
        if not errors[name] < TOLERANCE:
            raise SystemExit(f"{name} is wrong: {kind} {m}x{n}x{k}, relative error {errors[name]}")
    del expected
    return {"kind": kind, "m": m, "n": n, "k": k, "relative_error": errors, **timed(calls, device)}


def further(kind: str, sizes: tuple[int, ...], rank: int, world: int, device: Any) -> dict[str, Any]:
    """Check and time one of the further products."""
    calls, expected = tensor_parallel_more.calls(kind, sizes, rank, world, device)
    first = [name for name in calls if name not in ("mm", "collective")]
    errors = {name: error_of(calls[name], expected, tensor_parallel_more.TOLERANCE) for name in first}
    named = dict(zip(("m", "n", "k", "experts", "topk"), sizes, strict=False))
    return {"kind": kind, **named, "relative_error": errors, **timed(calls, device)}


def timed(calls: dict[str, Callable[[], Any]], device: Any, repeats: int = CALLS, each: int = 1) -> dict[str, Any]:
    """Microseconds of each, and what they say; `each`: how many products a call is."""
    import torch
    import torch.distributed as dist

    order, found = random.Random(1), {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in order.sample(sorted(calls), len(calls)):
            calls[name]()
            dist.barrier()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(repeats):
                calls[name]()
            end.record()
            torch.cuda.synchronize()
            slowest = torch.tensor([start.elapsed_time(end) * 1000 / (repeats * each)], device=device)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            found[name].append(float(slowest))
    us = {name: statistics.median(values) for name, values in found.items()}
    bound = max(us["mm"], us["collective"])
    baselines = [value for name, value in us.items() if name.startswith(("nccl", "torch"))]
    return {
        "us": us, "rounds": found, "ratio": min(baselines) / us["warploom"], "of_bound": bound / us["warploom"],
        "ratio_to_nccl": us["nccl"] / us["warploom"],
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="")
    parser.add_argument("--seconds", type=float, default=120.0, help="no further case is begun after that")
    parser.add_argument("--candidates", type=int, default=0, help="further tiles to try for few rows")
    parser.add_argument("--more", action="store_true", help="eight-bit operands and experts, too")
    parser.add_argument("--only", choices=KINDS, help="one kind alone")
    parser.add_argument("--shapes", type=int, default=len(SHAPES))
    options = parser.parse_args(arguments)
    import torch

    world = torch.cuda.device_count()
    if world < 2:
        print("this needs a machine with two GPUs or more")
        return 1
    torch.multiprocessing.spawn(worker, args=(world, 29577, options), nprocs=world)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
