"""Measure what the order of remote arrivals costs: the consumers' `empty` arrivals in a multicast kernel, three ways.

    python benchmarks/remote_arrival.py [--out benchmarks/results/nvidia-h200/remote-arrival.json]

The arrival signals that wgmmas have read a stage. These reads are asynchronous and complete, and nothing was written.
So the arrival may be relaxed, as in the package's kernels. The same text is timed with the default scope (.release.cta)
and with .release.cluster, a memory barrier for the whole GPU; alone and in alternation.
"""

from __future__ import annotations

import argparse
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from warploom.kernels.hopper.description import Config, Product
from warploom.kernels.hopper.gemm import build
from warploom.lab import evidence
from warploom.runtime import Caller
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.gpu import CudaTimer
from warploom.runtime.benchmark.power import PowerMeter

ROOT = Path(__file__).resolve().parents[1]
RELAXED = "mbarrier.arrive.relaxed.cluster.shared::cluster.b64"
SPELLINGS = {
    "relaxed.cluster": RELAXED,
    "default (release.cta)": "mbarrier.arrive.shared::cluster.b64",
    "release.cluster": "mbarrier.arrive.release.cluster.shared::cluster.b64",
}
SIZES = ((8192, 8192, 8192), (8192, 8192, 1024))
CONFIG = Config()


def rows_of(m: int, n: int, k: int) -> list[dict[str, Any]]:
    """One row for each variant, with its ratio to the relaxed one."""
    program = build(Product(), CONFIG).program()
    a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in ((m, k), (n, k)))
    d = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    texts = {name: program.text.replace(RELAXED, spelling) for name, spelling in SPELLINGS.items()}
    calls = {name: Caller(replace(program, text=text)) for name, text in texts.items()}
    contenders = {name: lambda call=call: call(a, b, out=d) for name, call in calls.items()}
    found = protocols.alone(contenders, CudaTimer(), block_s=0.5)
    first = found["relaxed.cluster"].median
    return [
        {
            "m": m, "n": n, "k": k, "dtype": "bf16", "layout": "tn", "provider": "warploom", "kernel": CONFIG.name(),
            "arrival": name, "protocol": "alone",
            "tflops": spread.as_dict(lambda seconds: 2 * m * n * k / seconds / 1e12, 1),
            "ratio_to": {"relaxed.cluster": round(first / spread.median, 4)},
            "ptx_sha256": evidence.ptx_sha256(texts[name]),
        }
        for name, spread in found.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/nvidia-h200/remote-arrival.json")
    out = parser.parse_args().out
    with PowerMeter() as meter:
        rows = [row for size in SIZES for row in rows_of(*size)]
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    head = evidence.header("remote-arrival", gpu=torch.cuda.get_device_name(), driver=driver)
    head["power_w"] = meter.power.as_dict() if meter.power.samples else {}
    evidence.write(out, head, rows)
    for row in rows:
        print(row["m"], row["k"], row["arrival"], row["tflops"]["median"], row["ratio_to"])


if __name__ == "__main__":
    main()
