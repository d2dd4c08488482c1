"""Measure the first product of a new process, with torch imported and program and cubin in the disk cache.

    python benchmarks/first_call.py [--processes 7] [--out benchmarks/results/nvidia-h200/first-call.json]

Each process imports torch, makes its tensors, multiplies once with torch (to create the context and cuBLAS), then
imports warploom and multiplies once. The first process fills the cache and is not counted. Milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from warploom.lab import evidence

ONE = """
import json, sys, time
import torch
m, n, k = json.loads(sys.argv[1])
a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(n, k, device="cuda").bfloat16().T
out = torch.mm(a, b)
torch.cuda.synchronize()
start = time.perf_counter()
import warploom
warploom.matmul
imported = time.perf_counter()
found = warploom.matmul(a, b)
torch.cuda.synchronize()
end = time.perf_counter()
assert torch.allclose(out.float(), found.float(), rtol=2**-6, atol=2**-6 * k**0.5)
print(json.dumps({"import": (imported - start) * 1e3, "call": (end - imported) * 1e3, "together": (end - start) * 1e3}))
"""


def one(shape: tuple[int, int, int]) -> dict[str, float]:
    """Run one process."""
    done = subprocess.run([sys.executable, "-c", ONE, json.dumps(shape)], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def measured(shape: tuple[int, int, int], processes: int) -> dict[str, object]:
    """One row: medians and extremes over the processes."""
    one(shape)
    runs = [one(shape) for _ in range(processes)]
    row: dict[str, object] = dict(zip("mnk", shape, strict=True)) | {"dtype": "bf16", "processes": processes}
    for name in runs[0]:
        times = [run[name] for run in runs]
        row[name + "_ms"] = {"median": round(statistics.median(times), 1), "min": round(min(times), 1),
                             "max": round(max(times), 1)}  # fmt: skip
    return row


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for shape in ((4096, 4096, 4096), (16, 8192, 8192)):
        rows.append(measured(shape, options.processes))
        print(rows[-1], flush=True)
    if options.out is not None:
        evidence.write(options.out, evidence.header("first-call", gpu=torch.cuda.get_device_name()), rows)


if __name__ == "__main__":
    main()
