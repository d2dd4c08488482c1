"""Measure what O in e4m3 loses to the tensor core's 13 bits, by keys accumulated there and by the mean of the values.

    python -m benchmarks.eight_bit_sums [--out FILE] [--keys 1024,4096,16384,65536]

Emulated: `multiply_accumulate` in Hopper's arithmetic, of which tests/golden holds recordings of an H200. P is the
kernel's: 16 2^(s - m) with the maximum m of the first 128 scores, s normal. Values are normal with deviation 1 around a
mean. Errors are those of O against float64 of the same 8-bit P and V, relative to its norm.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from warploom.emulator.numerics.tensor_core import Product, multiply_accumulate
from warploom.lab import evidence

KIND = Product("e4m3", "e4m3", "f32")
STEP, FIRST, LARGEST = 32, 128, 448.0
ROWS, COLUMNS = 16, 32
MEANS, KEYS = (0.0, 0.25, 1.0), (1024, 4096, 16384, 65536)
FLUSHED = (128, 512, 1024, 2048, 0)
"""Keys after which O is added in f32; 0: never."""


def summed(p: np.ndarray, v: np.ndarray, flushed: int) -> np.ndarray:
    """P (rows, keys) V (keys, columns), both e4m3, with wgmma's accumulation of 32 keys at a time; f32."""
    shape = (p.shape[0], v.shape[1])
    total, held = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for key in range(0, p.shape[1], STEP):
        a = p[:, key : key + STEP].view(np.uint8)
        b = np.ascontiguousarray(v[key : key + STEP].T).view(np.uint8)
        held = multiply_accumulate(a, b, held.view(np.uint32), KIND, "hardware").view(np.float32)
        if flushed and (key + STEP) % flushed == 0:
            total, held = total + held, np.zeros(shape, np.float32)
    return total + held


def row(mean: float, keys: int) -> dict[str, object]:
    """Errors for one mean and number of keys."""
    draw = np.random.default_rng(0)
    scores = draw.standard_normal((ROWS, keys))
    p = np.minimum(16 * np.exp(scores - scores[:, :FIRST].max(1, keepdims=True)), LARGEST)
    v = draw.standard_normal((keys, COLUMNS)) + mean
    p8, v8 = (x.astype(ml_dtypes.float8_e4m3fn) for x in (p, v))
    exact, unrounded = (x.astype(np.float64) @ v8.astype(np.float64) for x in (p8, p))
    found = {"rounding P": exact - unrounded} | {str(n): summed(p8, v8, n) - exact for n in FLUSHED}
    norm = np.linalg.norm(exact)
    errors = {name: float(f"{np.linalg.norm(off) / norm:.3g}") for name, off in found.items()}
    return {"mean": mean, "keys": keys, "errors": errors}


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.eight_bit_sums", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keys", default=",".join(map(str, KEYS)))
    asked = parser.parse_args(words)
    rows = []
    for mean in MEANS:
        for keys in map(int, asked.keys.split(",")):
            rows.append(row(mean, keys))
            print(rows[-1], flush=True)
    if asked.out:
        evidence.write(asked.out, {**evidence.header("eight-bit-sums"), "note": "emulated"}, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
