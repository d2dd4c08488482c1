"""Products with their communication, on all GPUs of this machine: ours, NCCL, PyTorch's fused operators.

    python -m benchmarks.tensor_parallel [--out benchmarks/results/nvidia-h200/tensor-parallel.json] [--seconds 60]

One process for each GPU, NCCL, no NVLink multicast. bf16, random normal; M, N, K are those of the whole product: with
the all-gather each GPU has M / ranks rows of A and N / ranks columns of B, with the reduce-scatter K / ranks of both.
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
from pathlib import Path
from typing import Any

ROUNDS, CALLS = 9, 10
TOLERANCE = 0.02
SHAPES = [
    (8192, 8192, 28672), (4096, 8192, 28672), (2048, 8192, 28672), (8192, 28672, 8192), (2048, 28672, 8192),
    (16384, 5120, 25600),
]  # fmt: skip


def worker(rank: int, world: int, port: int, options: argparse.Namespace) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    began, rows = time.monotonic(), []
    for m, n, k in SHAPES[: options.shapes]:
        for kind in ("all-gather", "reduce-scatter"):
            left = torch.tensor([options.seconds - (time.monotonic() - began)], device=device)
            dist.broadcast(left, 0)
            if float(left) <= 0:
                if rank == 0:
                    print(f"left out: {kind} {m}x{n}x{k}", flush=True)
                continue
            row = case(kind, m, n, k, rank, world, device)
            rows.append(row)
            if rank == 0:
                times = ", ".join(f"{name} {us:.0f}" for name, us in row["us"].items())
                ratios = f"ours {row['ratio']:.3f} of the faster baseline, {row['of_bound']:.3f} of the bound"
                print(f"{kind} {m}x{n}x{k}: {times}; {ratios}", flush=True)
    if rank == 0 and options.out:
        evidence = {
            "suite": "tensor-parallel", "gpu": torch.cuda.get_device_name(device), "ranks": world,
            "date": time.strftime("%Y-%m-%d"), "command": "python -m benchmarks.tensor_parallel",
            "versions": {"torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version()))},
            "protocol": f"interleaved, median of {ROUNDS} rounds of {CALLS} calls, slowest rank", "rows": rows,
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(evidence, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def case(kind: str, m: int, n: int, k: int, rank: int, world: int, device: Any) -> dict[str, Any]:
    """Check and time one product."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    from warploom.integrations import torch_distributed as ours

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


def timed(calls: dict[str, Callable[[], Any]], device: Any) -> dict[str, Any]:
    """Microseconds of each, and what they say."""
    import torch
    import torch.distributed as dist

    order, found = random.Random(1), {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in order.sample(sorted(calls), len(calls)):
            calls[name]()
            dist.barrier()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(CALLS):
                calls[name]()
            end.record()
            torch.cuda.synchronize()
            slowest = torch.tensor([start.elapsed_time(end) * 1000 / CALLS], device=device)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            found[name].append(float(slowest))
    us = {name: statistics.median(values) for name, values in found.items()}
    bound = max(us["mm"], us["collective"])
    return {
        "us": us, "rounds": found, "ratio": min(us["nccl"], us["torch fused"]) / us["warploom"],
        "of_bound": bound / us["warploom"],
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="")
    parser.add_argument("--seconds", type=float, default=120.0, help="no further case is begun after that")
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
