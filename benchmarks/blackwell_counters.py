"""Count the emulator's events on the sm_100 kernels for one product: the tables of the book's second part.

    python -m benchmarks.blackwell_counters [--out FILE]

Nothing is timed or run on hardware. Operands are zeros, because no counter depends on them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from warploom.kernels.blackwell import block_scaled, gemm, minimal, small_m, specialised
from warploom.kernels.blackwell.block_scaled import MXFP8, NVFP4
from warploom.kernels.blackwell.description import Config, SmallMConfig
from warploom.lang import Kernel
from warploom.runtime import B200

OUT = Path(__file__).resolve().parent / "results" / "emulated" / "blackwell-counters.json"
SMS = 4
SIZE = (512, 512, 512)
FEW = (16, 512, 2048)
COUNTED = (
    "instructions", "tma_load_bytes", "matrix_operand_bytes", "tensor_memory_load_bytes", "tensor_memory_copy_bytes",
    "mbarrier_waits", "mbarrier_arrivals", "ctas",
)  # fmt: skip


def plain(m: int, n: int, k: int) -> tuple[Any, ...]:
    """A and B in bf16."""
    return tuple(np.zeros((rows, k), ml_dtypes.bfloat16) for rows in (m, n))


def scaled(config: block_scaled.Config) -> Callable[[int, int, int], tuple[Any, ...]]:
    """A and B as they are stored, and the atoms of both."""

    def operands(m: int, n: int, k: int) -> tuple[Any, ...]:
        form = config.format
        stored = [np.zeros((rows, k * form.bits // 8), _numpy(config)) for rows in (m, n)]
        atoms = [np.zeros((-(-rows // 128), k // (4 * form.block), 512), np.uint8) for rows in (m, n)]
        return (*stored, *atoms)

    return operands


def _numpy(config: block_scaled.Config) -> Any:
    return ml_dtypes.float8_e4m3fn if config.format.bits == 8 else np.uint8


Case = tuple[Callable[[], Kernel], Callable[[int, int, int], tuple[Any, ...]], tuple[int, int, int]]


def cases() -> dict[str, Case]:
    """By name: the kernel, its operands, the product."""
    formats = {form.kind: block_scaled.Config(form, stages=4) for form in (MXFP8, NVFP4)}
    return {
        "minimal": (minimal.build, plain, SIZE),
        "specialised": (specialised.build, plain, SIZE),
        "gemm, one CTA": (lambda: gemm.build(Config(tile_m=128, stages=4)), plain, SIZE),
        "gemm, pairs": (gemm.build, plain, SIZE),
        **{
            f"block_scaled, {kind}": (lambda config=config: block_scaled.build(config), scaled(config), SIZE)  # type: ignore[misc]
            for kind, config in formats.items()
        },
        "gemm, few rows": (lambda: gemm.build(Config(tile_m=128, stages=4)), plain, FEW),
        "small_m": (lambda: small_m.build(SmallMConfig(split_k=4)), plain, FEW),
    }


def row(name: str) -> dict[str, Any]:
    """The counters of one kernel."""
    build, operands, (m, n, k) = cases()[name]
    kernel = build()
    out = () if "gemm" not in name and name != "small_m" else (np.zeros((m, n), ml_dtypes.bfloat16),)
    counters = kernel.emulate(*operands(m, n, k), *out, check=False, machine=B200(sms=SMS)).counters
    program = kernel.program()
    return {
        "kernel": name, "m": m, "n": n, "k": k, "sms": SMS, "threads": program.block[0],
        "products": counters.matrix["tcgen05"], **{each: getattr(counters, each) for each in COUNTED},
    }  # fmt: skip


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    rows = [row(name) for name in cases()]
    found = {"suite": "blackwell-counters", "command": "python -m benchmarks.blackwell_counters",
             "note": "emulated, not run on hardware", "rows": rows}  # fmt: skip
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
