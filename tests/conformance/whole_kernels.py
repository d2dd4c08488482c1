"""Whole kernels, recorded: an H200's results for the walkthrough and every tensor-core rung, at two sizes each.

    PYTHONPATH=src:. python -m tests.conformance.whole_kernels --out FOLDER

writes FOLDER/whole_kernels.json: a SHA-256 of each result's bits. The emulator in hardware numerics must give the same
bits (`test_whole_kernels.py`): sums with the order and rounding of the tensor core, through a whole pipeline.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks import warp_specialised
from warploom.kernels import walkthrough
from warploom.kernels.hopper import block_scaled, gemm
from warploom.kernels.hopper.description import Config, Product
from warploom.kernels.ladder import RUNGS
from warploom.types import e4m3

RECORDED = Path(__file__).parents[1] / "golden" / "whole_kernels.json"
SEED = 20
SIZES = ((200, 328, 136), (384, 264, 520))
"""Ragged in all dimensions, one and several tiles; more k-tiles than some rings have stages."""


@dataclass(frozen=True)
class Whole:
    """A kernel with its arguments."""

    name: str
    kernel: Any
    arguments: tuple[np.ndarray, ...]


def cases() -> Iterator[Whole]:
    """All of them, in a fixed order; inputs come from `SEED`."""
    for m, n, k in ((64, 64, 96), (128, 192, 64)):
        a, b = normal(m, k), normal(k, n, seed=1)
        yield Whole(f"walkthrough {m}x{n}x{k}", walkthrough.build_gemm_m64n64(m, n, k), (a, b))
    for m, n, k in ((128, 128, 512), (256, 384, 128)):
        yield Whole(f"warp_specialised {m}x{n}x{k}", warp_specialised.build(), (normal(m, k), normal(n, k, seed=1)))
    for rung in RUNGS:
        if rung.number < 5:
            continue  # fp32 without tensor cores: the order of sums is in the text
        for m, n, k in SIZES:
            yield Whole(f"{rung.module} {m}x{n}x{k}", rung.build(), (normal(m, k), normal(n, k, seed=1)))
    eight = Product(e4m3, e4m3)
    for config in (
        Config(tile_n=128),
        Config("ping_pong", 64, 64, stages=3),
        Config("staggered", 256, 64, multicast="a"),
    ):
        for m, n, k in ((200, 136, 272), (300, 264, 512)):
            yield Whole(f"e4m3 {config.name()} {m}x{n}x{k}", gemm.build(eight, config), (eights(m, k), eights(n, k, 1)))
    for m, n, k in ((200, 136, 256), (400, 264, 384)):
        scales = (
            np.abs(normal(k // 128, m, dtype=np.float32)),
            np.abs(normal(-(-n // 128), k // 128, dtype=np.float32)),
        )
        yield Whole(f"block_scaled {m}x{n}x{k}", block_scaled.build(), (eights(m, k), eights(n, k, 1), *scales))


def normal(*shape: int, seed: int = 0, dtype: Any = ml_dtypes.bfloat16) -> np.ndarray:
    return np.random.default_rng((SEED, seed, *shape)).standard_normal(shape).astype(dtype)


def eights(rows: int, k: int, seed: int = 0) -> np.ndarray:
    return normal(rows, k, seed=seed, dtype=ml_dtypes.float8_e4m3fn)


def fingerprint(result: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    import torch

    def on_gpu(array: np.ndarray) -> Any:
        bits = torch.from_numpy(array.view({1: np.uint8, 2: np.int16, 4: np.int32}[array.dtype.itemsize]).copy()).cuda()
        kinds = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn, "float32": torch.float32}
        return bits.view(kinds[array.dtype.name])

    def bits_of(tensor: Any) -> np.ndarray:
        return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16).cpu().numpy()

    found: dict[str, str] = {}
    for case in cases():
        arguments = [on_gpu(a) for a in case.arguments]
        first, again = (bits_of(case.kernel(*arguments)) for _ in range(2))
        assert np.array_equal(first, again), f"{case.name} is not deterministic"
        found[case.name] = fingerprint(first)
        print(case.name, found[case.name][:12], flush=True)
    head = {"gpu": torch.cuda.get_device_name(), "date": time.strftime("%Y-%m-%d"), "seed": SEED}
    (out / "whole_kernels.json").write_text(json.dumps({**head, "sha256": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
