"""First run on a GPU: the tests, the walkthrough kernel at 4096³ next to cuBLAS, and the cost of a call.

    python -m benchmarks.first_light [--size 4096] [--out benchmarks/results/nvidia-h200/first-light.json]

Runs `pytest -m gpu` and keeps its last line. Times the walkthrough kernel and the warp-specialised one next to torch.mm
under the protocols alone, interleaved and burst, on random normal data; each product is checked against a reference
accumulated in float64 in the same run. Also measures the eager host cost (`eager_cost.py`) and the time from a cached
cubin to a loaded module. Writes one evidence file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import warploom
from benchmarks import warp_specialised
from warploom.driver import cache, compile, library, module
from warploom.kernels.walkthrough import build_gemm_m64n64
from warploom.lab import evidence
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.gpu import CudaTimer
from warploom.runtime.benchmark.power import PowerMeter

ROOT = Path(__file__).resolve().parents[1]
EAGER = ("calls", "buffer_sets", "figures", "miss_us", "ratio_to_torch_mm_out")


def relative_error(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, rows: int = 512) -> float:
    """‖C − ref‖ / ‖ref‖ with a float64 reference, in strips of rows to bound the memory."""
    squared = norm = 0.0
    wide = b.double()
    for start in range(0, a.shape[0], rows):
        reference = a[start : start + rows].double() @ wide
        squared += float((c[start : start + rows].double() - reference).square().sum())
        norm += float(reference.square().sum())
    return (squared / norm) ** 0.5


def products(size: int) -> tuple[list[dict[str, Any]], PowerMeter]:
    """The rows of all contenders under all protocols, with clock and power during them."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    a = torch.randn(size, size, device="cuda", generator=generator).bfloat16()
    b = torch.randn(size, size, device="cuda", generator=generator).bfloat16()
    b_columns = b.t().contiguous()
    c = torch.full((size, size), float("nan"), device="cuda")
    narrow = torch.empty(size, size, device="cuda", dtype=torch.bfloat16)
    walkthrough, specialised = build_gemm_m64n64(size, size, size), warp_specialised.build()
    contenders = {
        "walkthrough": (lambda: walkthrough(a, b, out=c), c, walkthrough),
        "warp_specialised": (lambda: specialised(a, b_columns, out=c), c, specialised),
        "torch.mm": (lambda: torch.mm(a, b, out=narrow), narrow, None),
    }
    facts: dict[str, dict[str, Any]] = {}
    for name, (call, out, kernel) in contenders.items():
        out.fill_(float("nan"))
        call()
        torch.cuda.synchronize()
        facts[name] = {
            "provider": "cublas" if kernel is None else "warploom",
            "kernel": name,
            "layout": "nt" if name == "warp_specialised" else "nn",
            "out_dtype": "bf16" if kernel is None else "f32",
            "relative_error": relative_error(out, a, b),
        }
        if kernel is not None:
            used = kernel.resources()
            facts[name] |= {
                "registers": used.registers,
                "spill_bytes": used.spill_stores + used.spill_loads,
                "ptx_sha256": evidence.ptx_sha256(kernel.ptx()),
            }
    rows = []
    with PowerMeter() as meter:
        for protocol in protocols.PROTOCOLS:
            calls = {name: call for name, (call, _, _) in contenders.items()}
            times = protocols.sample(protocol, calls, 2.0, CudaTimer())
            for name, spread in times.items():
                tflops = spread.as_dict(lambda seconds: 2 * size**3 / seconds / 1e12, 1)
                ratio = round(times["torch.mm"].median / spread.median, 4)
                shape = {"m": size, "n": size, "k": size, "dtype": "bf16"}
                measured = {"protocol": protocol, "tflops": tflops, "ratio_to": {"cublas": ratio}}
                rows.append({**shape, **facts[name], **measured})
                print(f"{protocol:12} {name:17} {tflops['median']:8.1f} TFLOP/s", flush=True)
    return rows, meter


def load_from_cache() -> dict[str, float]:
    """Milliseconds from a cubin in the disk cache to a loaded module in a running process: five loads."""
    program = build_gemm_m64n64(2048, 2048, 2048).program()
    device, stream = torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream
    spread = protocols.Spread()
    for _ in range(6):
        cache.builds().clear()
        started = time.perf_counter()
        built = compile.build(program.text, name=program.title)
        module.Modules(library.load()).kernel(built, program.entry, device, stream)
        spread.samples.append(time.perf_counter() - started)
    spread.samples.pop(0)  # the first one may build
    return spread.as_dict(lambda seconds: seconds * 1e3)


def run(*command: str) -> str:
    """The output of a Python program of this repository."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/nvidia-h200/first-light.json")
    options = parser.parse_args()
    closing = [line for line in run("-m", "pytest", "-q", "-m", "gpu", "tests").splitlines() if " passed" in line]
    print("pytest -m gpu:", *closing, flush=True)
    eager = json.loads(run("benchmarks/eager_cost.py"))
    print(
        "eager call:",
        eager["figures"]["kernel call, out="],
        "torch.mm:",
        eager["figures"]["torch.mm(out=)"],
        flush=True,
    )
    rows, meter = products(options.size)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    head = evidence.header("first-light", gpu=torch.cuda.get_device_name(), driver=driver)
    head |= {
        "warploom": warploom.__version__,
        "sm_clock_mhz": meter.clock.as_dict() if meter.clock.samples else {},
        "power_w": meter.power.as_dict() if meter.power.samples else {},
        "pytest": {"command": "pytest -m gpu tests", "closing_line": closing[-1] if closing else "no closing line"},
        "eager_us": {
            key: eager[key] for key in ("calls", "buffer_sets", "figures", "miss_us", "ratio_to_torch_mm_out")
        },
        "load_from_cache_ms": load_from_cache(),
    }
    evidence.write(options.out, head, rows)
    print("load from cache, ms:", head["load_from_cache_ms"])
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
