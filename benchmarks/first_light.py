"""First light on a GPU: the walkthrough kernel at 4096³ against cuBLAS, with its error and its eager host cost.

    python benchmarks/first_light.py [--size 4096] [--out benchmarks/results/nvidia-h200/first-light.json]

Runs the protocols alone, interleaved and burst on random normal data, checks the product against a
float64-accumulated reference in the same run, and writes the evidence file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import warploom
from warploom.kernels.walkthrough import build_gemm_m64n64
from warploom.lab import evidence, timing


def relative_error(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, rows: int = 512) -> float:
    """‖C − ref‖ / ‖ref‖ with a float64 reference, in strips of rows to bound the memory."""
    squared = norm = 0.0
    wide = b.double()
    for start in range(0, a.shape[0], rows):
        reference = a[start : start + rows].double() @ wide
        squared += float((c[start : start + rows].double() - reference).square().sum())
        norm += float(reference.square().sum())
    return (squared / norm) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nvidia-h200/first-light.json"))
    options = parser.parse_args()
    size = options.size
    generator = torch.Generator(device="cuda").manual_seed(0)
    a = torch.randn(size, size, device="cuda", generator=generator).bfloat16()
    b = torch.randn(size, size, device="cuda", generator=generator).bfloat16()
    c = torch.full((size, size), float("nan"), device="cuda")
    narrow = torch.empty(size, size, device="cuda", dtype=torch.bfloat16)
    gemm = build_gemm_m64n64(size, size, size)
    gemm(a, b, out=c)
    torch.cuda.synchronize()
    errors = {"warploom": relative_error(c, a, b)}
    torch.mm(a, b, out=narrow)
    errors["cublas"] = relative_error(narrow, a, b)
    contenders = {"warploom": lambda: gemm(a, b, out=c), "cublas": lambda: torch.mm(a, b, out=narrow)}
    resources = gemm.resources()
    rows = []
    with timing.PowerMeter() as meter:
        for protocol in (timing.alone, timing.interleaved, timing.burst):
            times = protocol(contenders)
            for name, spread in times.items():
                rows.append(
                    {
                        "m": size, "n": size, "k": size, "dtype": "bf16", "layout": "nn",
                        "out_dtype": "f32" if name == "warploom" else "bf16",
                        "provider": name,
                        "kernel": "walkthrough m64n64k16" if name == "warploom" else "torch.mm",
                        "protocol": protocol.__name__,
                        "tflops": spread.as_dict(lambda seconds: 2 * size**3 / seconds / 1e12, 1),
                        "ratio_to": {"cublas": round(times["cublas"].median / spread.median, 4)},
                        "relative_error": errors[name],
                        **({"ptx_sha256": evidence.ptx_sha256(gemm.ptx()),
                            "registers": resources.registers,
                            "spill_bytes": resources.spill_stores + resources.spill_loads}
                           if name == "warploom" else {}),
                    }
                )  # fmt: skip
                print(f"{protocol.__name__:12} {name:9} {rows[-1]['tflops']['median']:8.1f} TFLOP/s", flush=True)
    head = evidence.header("first-light", gpu=torch.cuda.get_device_name(), driver=torch_driver())
    head["sm_clock_mhz"] = meter.clock.as_dict() if meter.clock.samples else {}
    head["power_w"] = meter.power.as_dict() if meter.power.samples else {}
    head["warploom"] = warploom.__version__
    evidence.write(options.out, head, rows)
    print(f"wrote {options.out}")


def torch_driver() -> str:
    """The driver's version as nvidia-smi gives it."""
    import subprocess

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
