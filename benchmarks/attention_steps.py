"""Predict the steps towards the attention kernel with the timing model (`warploom.timing`), for the book's table.

    python -m benchmarks.attention_steps [--out FILE]

Only the last step was measured (attention.json). The predictions are for an H200 and random data.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from warploom.kernels.hopper import attention
from warploom.kernels.hopper.attention_config import Attention, Config, section
from warploom.operators.attention.request import LOG2_E

OUT = Path(__file__).resolve().parent / "results" / "emulator" / "attention-steps.json"
HEADS, LENGTH = 16, 4096
STEPS = {
    "one kernel": Config(consumers=1, key_stages=2, query_slots=1, guarded=False, ordered=False),
    "two consumers": Config(key_stages=2, query_slots=1, guarded=False, ordered=False),
    "turns": Config(key_stages=2, query_slots=1, guarded=False),
    "guarded softmax": Config(key_stages=2, query_slots=1),
    "next block early": Config(),
}
"""Each step adds one change to the previous step."""


def operands(of: Attention, heads: int, length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Q, K, V of zeros with a batch of one, and the scalars."""
    q = np.zeros((1, length, heads, of.head_dim), ml_dtypes.bfloat16)
    return (q, q, q), {"scale": of.head_dim**-0.5 * LOG2_E, "section": section(of, False, length, heads, heads)}


def row(name: str) -> dict[str, Any]:
    """One step."""
    of = Attention()
    arrays, numbers = operands(of, HEADS, LENGTH)
    found = attention.build(of, STEPS[name]).predict(*arrays, **numbers)
    flops = 4 * HEADS * LENGTH * LENGTH * of.head_dim
    return {"step": name, "config": repr(STEPS[name]), "heads": HEADS, "length": LENGTH, "head_dim": of.head_dim,
            "predicted_us": round(found.us, 1), "predicted_tflops": round(flops / found.us / 1e6, 1)}  # fmt: skip


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=OUT)
    rows = [row(name) for name in STEPS]
    found = {"suite": "attention-steps", "command": "python -m benchmarks.attention_steps",
             "note": "predicted by warploom.timing, not measured", "rows": rows}  # fmt: skip
    parser.parse_args().out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
