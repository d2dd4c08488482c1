"""The steps towards the attention kernel, for the book's table: predicted by the timing model, and measured.

    python -m benchmarks.attention_steps [--out FILE]                 predictions, on any machine
    python -m benchmarks.attention_steps --measure --out FILE         times on a GPU, each step alone

Both are of random data; the predictions are for an H200.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from warploom.kernels.hopper import attention
from warploom.kernels.hopper.attention_config import LOG2_E, Attention, Config, section
from warploom.lab import evidence
from warploom.lab.recipe import recipe
from warploom.lang import Kernel

OUT = Path(__file__).resolve().parent / "results" / "emulator" / "attention-steps.json"
HEADS, LENGTH = 16, 4096
Row = dict[str, Any]
STEPS = {
    "one kernel": Config(
        consumers=1, key_stages=2, query_stages=1, guarded=False, ping_pong=False, rounded_row_sum=False
    ),
    "two consumers": Config(key_stages=2, query_stages=1, guarded=False, ping_pong=False, rounded_row_sum=False),
    "turns": Config(key_stages=2, query_stages=1, guarded=False, rounded_row_sum=False),
    "guarded softmax": Config(key_stages=2, query_stages=1, rounded_row_sum=False),
    "next block early": Config(rounded_row_sum=False),
}
"""Each step adds one change to the previous step. The library's kernel has rounded sums beside, for accuracy."""


def operands(of: Attention, heads: int, length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Q, K, V of zeros with a batch of one, and the scalars."""
    q = np.zeros((1, length, heads, of.head_dim), ml_dtypes.bfloat16)
    return (q, q, q), {"scale": of.head_dim**-0.5 * LOG2_E, "section": section(of, False, length, heads, heads)}


def drawn(of: Attention) -> list[Any]:
    """Q, K and V on the GPU, random normal."""
    import torch

    draw = torch.Generator("cuda").manual_seed(1)
    shape = (1, LENGTH, HEADS, of.head_dim)
    return [torch.randn(shape, generator=draw, device="cuda").to(torch.bfloat16) for _ in range(3)]


def built(of: Attention, name: str) -> Kernel:
    """The kernel of a step. One consumer needs a few registers more than it has."""
    kernel = attention.build(of, STEPS[name])
    kernel.allow_spills = True
    return kernel


def row(name: str) -> Row:
    """One step."""
    of = Attention()
    arrays, numbers = operands(of, HEADS, LENGTH)
    found = attention.build(of, STEPS[name]).predict(*arrays, **numbers)
    flops = 4 * HEADS * LENGTH * LENGTH * of.head_dim
    return {"step": name, "config": repr(STEPS[name]), "heads": HEADS, "length": LENGTH, "head_dim": of.head_dim,
            "predicted_us": round(found.us, 1), "predicted_tflops": round(flops / found.us / 1e6, 1)}  # fmt: skip


def measured(seconds: float) -> list[Row]:
    """All steps on a GPU, alone, compared with float64 before."""
    import torch

    from warploom.runtime.benchmark import protocols
    from warploom.runtime.benchmark.gpu import Gpu

    of = Attention()
    q, k, v = drawn(of)
    first = [x[0, :, 0].double() for x in (q, k, v)]
    exact = torch.softmax(first[0] @ first[1].T * of.head_dim**-0.5, -1) @ first[2]
    numbers = operands(of, HEADS, LENGTH)[1]
    gpu, calls, errors, counts, kept = Gpu(0, 20.0), {}, {}, {}, []
    for name in STEPS:
        kernel = built(of, name)
        outs = kernel(q, k, v, **numbers)
        errors[name] = float((outs[0][0, :, 0].double() - exact).norm() / exact.norm())
        kept.append(outs)  # a graph does not keep its arrays
        calls[name], counts[name] = gpu.ready([partial(kernel, q, k, v, out=outs, **numbers)], "graph")
    spreads = protocols.sample("alone", calls, seconds, gpu.timer, counts)
    flops = 4 * HEADS * LENGTH * LENGTH * of.head_dim
    return [{"step": name, "config": repr(STEPS[name]), "heads": HEADS, "length": LENGTH, "head_dim": of.head_dim,
             "us": spread.as_dict(lambda s: s * 1e6, 1), "tflops": spread.as_dict(lambda s: flops / s / 1e12, 1),
             "relative_error": float(f"{errors[name]:.3g}"),
             **evidence.facts(built(of, name), recipe(attention.build, of, STEPS[name]))}
            for name, spread in spreads.items()]  # fmt: skip


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--measure", action="store_true", help="on a GPU, instead of predicting")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each step")
    asked = parser.parse_args()
    if asked.measure:
        from warploom.runtime.benchmark.gpu import Gpu
        from warploom.runtime.benchmark.power import driver_version

        head = evidence.header("attention-steps", gpu=Gpu(0, 20.0).name, driver=driver_version())
        evidence.write(asked.out, {**head, "protocol": "alone"}, measured(asked.seconds))
        return
    rows = [row(name) for name in STEPS]
    found = {"suite": "attention-steps", "command": "python -m benchmarks.attention_steps",
             "note": "predicted by warploom.timing, not measured", "rows": rows}  # fmt: skip
    asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
