"""Run the kernels of `unseen.brought` on the GPU and compare their results with numpy's.

    python -m benchmarks.unseen_results [--seconds S] [--out benchmarks/results/nvidia-h200/unseen-results.json]

First all on small problems; then those for which numpy is quick on whole problems, until S seconds have passed.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.unseen import SMALL, brought
from benchmarks.unseen.brought_exact import compare
from benchmarks.unseen.case import Case
from benchmarks.unseen.elementwise import MILLION
from warploom import launch
from warploom.isa import dtypes
from warploom.lab import evidence
from warploom.lang import Kernel

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks/results/nvidia-h200/unseen-results.json"
SLOW = (
    "pooled", "blocks_times_vector", "bilateral", "orbits", "joint_histogram", "half_product", "tf32_product",
    "gated_product", "simulated", "nearest", "neighbour_forces", "queued_picture",
)  # fmt: skip
"""Kernels whose whole problems take numpy seconds."""


def run(case: Case) -> None:
    """Launch a kernel once. Raises AssertionError for a wrong result."""
    import torch

    def moved(values: np.ndarray, dtype: Any) -> Any:
        plain = torch.from_numpy(values.view(f"u{dtype.bytes}")).cuda()
        return plain.view(getattr(torch, dtypes.torch_name(dtype)))

    subject = case.build()
    call = subject if isinstance(subject, Kernel) else partial(launch, subject)
    inputs = [one.made() for one in case.inputs]
    outputs = tuple(moved(one.made(), one.dtype) for one in case.outputs)
    call(
        *(moved(values, one.dtype) for values, one in zip(inputs, case.inputs, strict=True)),
        out=outputs if len(outputs) > 1 else outputs[0], **case.scalars,
    )  # fmt: skip
    torch.cuda.synchronize()
    compare(case, inputs, [
        made.cpu().view(torch.uint8).numpy().view(one.dtype.numpy).reshape(one.shape)
        for made, one in zip(outputs, case.outputs, strict=True)
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    import torch

    from warploom.runtime.benchmark.power import driver_version

    head = evidence.header("unseen-results", gpu=torch.cuda.get_device_name(), driver=driver_version())
    rows: list[dict[str, Any]] = []
    begun = time.perf_counter()
    for million, whole in ((SMALL, False), (MILLION, True)):
        for case in brought.cases(million):
            late = time.perf_counter() - begun > options.seconds
            if whole and (case.name.removeprefix("nvcc_") in SLOW or late):
                continue
            try:
                run(case)
                result = "right"
            except Exception as error:  # one that fails must not cost the others
                result = f"{type(error).__name__}: {error}"[:600]
            rows.append({"kernel": case.name, "whole": whole, "result": result})
            print(rows[-1], flush=True)
    evidence.write(options.out, head, rows)


if __name__ == "__main__":
    main()
