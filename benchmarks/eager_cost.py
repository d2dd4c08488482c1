"""Measure the host cost of one eager call in microseconds, next to `torch.mm(out=)`; prints JSON.

    python benchmarks/eager_cost.py [--calls 10000] [--sets 64] [--size 256]

"kernel call" is the walkthrough kernel called as a user calls it, `gemm(a, b, out=c)`; the ratio uses it. The other
figures are for a kernel that takes a GEMM's arguments (two tensor maps, a pointer, three sizes) and exits at once.
Queues are drained between rounds, untimed, so that they never fill. Every figure is the median of fifteen passes of
`calls` public calls with full validation, over `sets` rotating sets of buffers. "miss" is the first call with each set:
checks, tensor maps, layout. "prepared launch" is the launch alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from warploom.driver import library
from warploom.isa.dtypes import bf16, f32, u32
from warploom.kernels.walkthrough import build_gemm_m64n64
from warploom.runtime import ArraySpec, Caller, Parameter, Program, TiledMap

EMPTY = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry nothing(
    .param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 c,
    .param .u32 m, .param .u32 n, .param .u32 k)
{
    ret;
}
"""


def program(pdl: bool = False, cluster: int = 1) -> Program:
    """A kernel with a GEMM's arguments that does nothing."""
    box = TiledMap(box=(64, 64), swizzle="128B")
    return Program(
        EMPTY,
        "nothing",
        arrays=(
            ArraySpec("a", ("m", "k"), bf16, multiple=(64, 64), order="rows", align=16),
            ArraySpec("b", ("k", "n"), bf16, multiple=(64, 64), order="rows", align=16),
            ArraySpec("c", ("m", "n"), f32, "out", align=16),
        ),
        parameters=(
            Parameter("a", "tensor_map", bf16, map=box),
            Parameter("b", "tensor_map", bf16, map=box),
            Parameter("c", "pointer", f32),
            Parameter("m", "scalar", u32),
            Parameter("n", "scalar", u32),
            Parameter("k", "scalar", u32),
        ),
        grid=lambda dims, machine: (cluster,),
        block=(128,),
        cluster=(cluster, 1, 1),
        pdl=pdl,
    )


def per_call(call: Callable[..., Any], sets: list[tuple[Any, ...]], calls: int, passes: int = 15) -> dict[str, float]:
    """Host microseconds per call: median, least and most over the passes."""
    rounds = max(1, calls // len(sets))
    times = []
    for _ in range(passes):
        torch.cuda.synchronize()
        spent = 0
        for at in range(rounds):
            start = time.perf_counter_ns()
            for arguments in sets:
                call(*arguments)
            spent += time.perf_counter_ns() - start
            if at % 8 == 7:
                torch.cuda.synchronize()  # not timed: keeps the queue from filling up
        times.append(spent / (rounds * len(sets)) / 1000)
    return {"median": round(statistics.median(times), 3), "min": round(min(times), 3), "max": round(max(times), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--sets", type=int, default=64)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    size = options.size
    torch.set_grad_enabled(False)

    def tensor(dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(size, size, device="cuda").to(dtype)

    buffers = [
        (tensor(torch.bfloat16), tensor(torch.bfloat16), tensor(torch.float32), tensor(torch.bfloat16))
        for _ in range(options.sets)
    ]
    ours = [(a, b, c) for a, b, c, _ in buffers]
    theirs = [(a, b, d) for a, b, _, d in buffers]
    gemm = build_gemm_m64n64(size, size, size)
    call = Caller(program())
    call(*ours[0])
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for arguments in ours[1:]:
        call(*arguments)
    miss = (time.perf_counter_ns() - start) / (len(ours) - 1) / 1000
    figures: dict[str, Any] = {
        "kernel call, out=": _warm(lambda a, b, c: gemm(a, b, out=c), ours, options.calls),
        "public call, positional": per_call(call, ours, options.calls),
        "public call, out=": per_call(lambda a, b, c: call(a, b, out=c), ours, options.calls),
        "public call, output made": per_call(lambda a, b, c: call(a, b), ours, options.calls),
        "torch.mm(out=)": per_call(lambda a, b, out: torch.mm(a, b, out=out), theirs, options.calls),
        "torch.mm": per_call(torch.mm, [(a, b) for a, b, _, _ in buffers], options.calls),
    }
    figures["public call, cluster and PDL"] = _warm(Caller(program(pdl=True, cluster=2)), ours, options.calls)
    stream = torch.cuda.current_stream().cuda_stream
    plan = next(launch for _, _, _, launch in call.cache.hits.values())
    prepared = per_call(plan, [(stream,)] * options.sets, options.calls)
    ratio = figures["kernel call, out="]["median"] / figures["torch.mm(out=)"]["median"]
    print(
        json.dumps(
            {
                "suite": "eager-cost",
                "gpu": torch.cuda.get_device_name(),
                "driver": library.load().version,
                "versions": {"torch": torch.__version__},
                "calls": options.calls,
                "buffer_sets": options.sets,
                "size": size,
                "unit": "microseconds per call, host side",
                "figures": figures,
                "miss_us": round(miss, 2),
                "prepared launch": prepared,
                "ratio_to_torch_mm_out": round(ratio, 3),
                "target_ratio": 0.6,
            },
            indent=2,
        )
    )


def _warm(call: Callable[..., Any], sets: list[tuple[Any, ...]], calls: int) -> dict[str, float]:
    for arguments in sets:
        call(*arguments)
    return per_call(call, sets, calls)


if __name__ == "__main__":
    main()
