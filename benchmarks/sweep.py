"""Time configurations of the generated GEMM against each other on the suites' shapes, as a basis for the choice.

    python benchmarks/sweep.py --shapes 8192x8192x8192 --configs ping_pong_128x192x5_2b_g8,staggered_256x128x4_2a_g8
        [--layouts tn,tt,nt,nn] [--out benchmarks/results/nvidia-h200/sweep-bf16.json]

bf16, A (M, K) times B (N, K) in each of the layouts (`Problem.of`), random normal data, buffers rotated beyond L2;
interleaved and alone, each next to torch.mm in the same process. Without --shapes and --configs, the pairs in the file
are timed again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from warploom.kernels.hopper.description import Config
from warploom.kernels.hopper.gemm import build
from warploom.kernels.hopper.names import large_config
from warploom.lab import evidence
from warploom.operators.spec.problem import Problem
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.gpu import CudaTimer
from warploom.runtime.benchmark.power import PowerMeter

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks/results/nvidia-h200/sweep-bf16.json"
L2_BYTES = 260e6
SMALL_FLOP = 1e10
"""FLOP below which a kernel is not power-limited and not timed alone."""

Shape = tuple[int, int, int]


def contenders(shape: Shape, configs: list[Config], layout: str) -> Mapping[str, Callable[[], object]]:
    """torch.mm and a call for each configuration, over rotating sets of buffers."""
    import torch

    m, n, k = shape
    product = Problem.of(*shape, layout=layout).product
    sets = max(1, min(8, int(L2_BYTES / (2 * (m * k + n * k + m * n))) + 1))
    majors = (product.a_major, product.b_major, "K")
    sizes = [size if major == "K" else size[::-1] for size, major in zip(((m, k), (n, k), (m, n)), majors, strict=True)]
    buffers = [tuple(torch.randn(size, device="cuda").bfloat16() for size in sizes) for _ in range(sets)]

    def rotated(call: Callable[..., object]) -> Callable[[], object]:
        at = [0]

        def go() -> object:
            at[0] = (at[0] + 1) % sets
            return call(*buffers[at[0]])

        return go

    turned = [major == "MN" for major in majors]

    def cublas(a: Any, b: Any, d: Any) -> object:
        return torch.mm(a.T if turned[0] else a, b if turned[1] else b.T, out=d)

    calls = {"torch.mm": rotated(cublas)}
    for config in configs:
        kernel = build(product, config)
        calls[config.name()] = rotated(lambda a, b, d, kernel=kernel: kernel(a, b, out=d))
    for call in calls.values():  # the first call with a set of buffers takes long
        for _ in range(sets):
            call()
    torch.cuda.synchronize()
    return calls


def rows_of(shape: Shape, configs: list[Config], layout: str, alone: bool = True) -> list[dict[str, Any]]:
    """Rows of one shape, one for each configuration and protocol."""
    m, n, k = shape
    calls = contenders(shape, configs, layout)
    timer = CudaTimer()
    found = {"interleaved": protocols.interleaved(calls, timer, rounds=9, slice_s=0.012)}
    if 2 * m * n * k > SMALL_FLOP and alone:
        found["alone"] = protocols.alone(calls, timer, block_s=0.3)
    return [
        row(shape, layout, name, protocol, 2 * m * n * k / spread.median / 1e12,
            times["torch.mm"].median / spread.median)
        for protocol, times in found.items() for name, spread in times.items()
    ]  # fmt: skip


def row(shape: Shape, layout: str, name: str, protocol: str, tflops: float, ratio: float) -> dict[str, Any]:
    """One row of the evidence file."""
    m, n, k = shape
    ours = name != "torch.mm"
    result: dict[str, Any] = {
        "m": m, "n": n, "k": k, "dtype": "bf16", "layout": layout, "provider": "warploom" if ours else "cublas",
        "kernel": name, "protocol": protocol, "tflops": {"median": round(tflops, 1)},
        "ratio_to": {"cublas": round(ratio, 4)},
    }  # fmt: skip
    if ours:
        result["ptx_sha256"] = evidence.ptx_sha256(
            build(Problem.of(*shape, layout=layout).product, large_config(name)).ptx()
        )
    return result


def pairs(shapes: str, configs: str, out: Path) -> dict[Shape, list[Config]]:
    """What to time: the requested pairs, or those in the file."""
    if shapes and configs:
        chosen = [large_config(name) for name in configs.split(",")]
        return {tuple(map(int, shape.split("x"))): chosen for shape in shapes.split(",")}  # type: ignore[misc]
    found: dict[Shape, list[Config]] = {}
    for known in json.loads(out.read_text())["rows"]:
        listed = found.setdefault((known["m"], known["n"], known["k"]), [])
        if known["provider"] == "warploom" and known["protocol"] == "interleaved":
            listed.append(large_config(known["kernel"]))
    return found


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="")
    parser.add_argument("--configs", default="")
    parser.add_argument("--layouts", default="tn")
    parser.add_argument("--interleaved", action="store_true", help="do not time them alone")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with PowerMeter() as meter:
        for shape, configs in pairs(options.shapes, options.configs, options.out).items():
            for layout in options.layouts.split(","):
                found = rows_of(shape, configs, layout, not options.interleaved)
                best = max((r for r in found if r["provider"] == "warploom"), key=lambda r: r["ratio_to"]["cublas"])
                print(shape, layout, best["kernel"], best["protocol"], best["ratio_to"], flush=True)
                rows += found
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    head = evidence.header("sweep-bf16", gpu=torch.cuda.get_device_name(), driver=driver)
    head |= meter.header()
    evidence.write(options.out, head, rows)


if __name__ == "__main__":
    main()
