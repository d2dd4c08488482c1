"""Every rung of the ladder on a GPU, against torch.mm of the same types: correctness, speed, resources.

    python benchmarks/ladder.py [--size 4096] [--rungs 1,4,17] [--out benchmarks/results/nvidia-h200/ladder.json]

Each rung runs in a process of its own, so that one that hangs or faults costs its own row. It is checked on ragged
sizes and on the measured one against a float64-accumulated reference, then timed beside torch.mm under the protocols
alone (blocks of half a second, twice) and interleaved, on random normal data.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from warploom.kernels.ladder import RUNGS, find
from warploom.lab import evidence, timing

ROOT = Path(__file__).resolve().parents[1]
RAGGED = ((64, 64, 64), (200, 328, 136), (1000, 1048, 520), (384, 640, 4096))
TIMEOUT_S = 90
BOUND = {"f32": 1e-5, "bf16": 3e-3}


def measure(number: int, size: int) -> list[dict[str, Any]]:
    """The rows of one rung."""
    import torch

    from warploom.isa import dtypes

    rung = find(number)
    kernel = rung.build()
    dtype = getattr(torch, dtypes.torch_name(rung.dtype))

    def operands(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (n, k) if rung.layout == "TN" else (k, n)
        return torch.randn(m, k, device="cuda").to(dtype), torch.randn(*shape, device="cuda").to(dtype)

    def error(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> float:
        wide = (b.T if rung.layout == "TN" else b).double()
        squared = norm = 0.0
        for start in range(0, a.shape[0], 512):
            exact = a[start : start + 512].double() @ wide
            squared += float((c[start : start + 512].double() - exact).square().sum())
            norm += float(exact.square().sum())
        return (squared / norm) ** 0.5

    for m, n, k in RAGGED:
        a, b = operands(m, n, k)
        found = error(a, b, kernel(a, b))
        if not found < BOUND[rung.out.name]:
            raise SystemExit(f"{rung.module} is wrong at {m} x {n} x {k}: relative error {found:.2e}")
    a, b = operands(size, size, size)
    c = kernel(a, b)
    library = torch.empty_like(c)
    other = b.T if rung.layout == "TN" else b
    worst = error(a, b, c)
    used = kernel.resources()
    contenders = {rung.module: lambda: kernel(a, b, out=c), "torch.mm": lambda: torch.mm(a, other, out=library)}
    rows = []
    for protocol, times in (
        ("alone", timing.alone(contenders, block_s=0.5)),
        ("interleaved", timing.interleaved(contenders)),
    ):
        for name, spread in times.items():
            ours = name == rung.module
            row = {
                "m": size, "n": size, "k": size, "dtype": rung.dtype.name, "layout": rung.layout.lower(),
                "provider": "warploom" if ours else "cublas", "kernel": name, "beside": rung.module,
                "protocol": protocol,
                "tflops": spread.as_dict(lambda seconds: 2 * size**3 / seconds / 1e12, 2),
                "ratio_to": {"cublas": round(times["torch.mm"].median / spread.median, 4)},
            }  # fmt: skip
            if ours:
                row |= {
                    "relative_error": worst,
                    "registers": used.registers,
                    "spill_bytes": used.spill_stores + used.spill_loads,
                    "ptx_sha256": evidence.ptx_sha256(kernel.ptx()),
                }
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rungs", default="", help="numbers, comma-separated; all by default")
    parser.add_argument("--only", type=int, help="measure this rung here and print its rows")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/nvidia-h200/ladder.json")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options.size)))
        return
    numbers = [int(word) for word in options.rungs.split(",") if word] or [rung.number for rung in RUNGS]
    rows: list[dict[str, Any]] = []
    with timing.PowerMeter() as meter:
        for number in numbers:
            command = [sys.executable, __file__, "--only", str(number), "--size", str(options.size)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
            except (subprocess.SubprocessError, IndexError, json.JSONDecodeError) as failure:
                print(f"rung {number:2} failed: {(getattr(failure, 'stderr', '') or str(failure))[-300:]}", flush=True)
                continue
            rows += found
            row = found[0]
            ratio = row["ratio_to"]["cublas"]
            print(f"{row['kernel']:28} {row['tflops']['median']:8.2f} TFLOP/s alone, {ratio} of torch.mm", flush=True)
    import torch

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    head = evidence.header("ladder", gpu=torch.cuda.get_device_name(), driver=driver)
    head["sm_clock_mhz"] = meter.clock.as_dict() if meter.clock.samples else {}
    head["power_w"] = meter.power.as_dict() if meter.power.samples else {}
    evidence.write(options.out, head, rows)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
