"""What the tests of the lab share: a kernel, a row of evidence about it, and a file's head."""

from __future__ import annotations

from typing import Any

from warploom.kernels.hopper import gemm
from warploom.kernels.hopper.description import Config, Product
from warploom.lab import evidence, recipe

HEAD = {"suite": "square-bf16", "gpu": "NVIDIA H200", "date": "2026-11-21"}
PING_PONG = Config("ping_pong", 64, 128, stages=4, epi_stages=1)


def row_of(**more: Any) -> dict[str, Any]:
    kernel = gemm.build(Product(), PING_PONG)
    return {
        "m": 64, "n": 64, "k": 64, "dtype": "bf16", "provider": "warploom", "kernel": "hopper_ping_pong",
        "config": PING_PONG.name(), "protocol": "alone", "tflops": {"median": 1.0}, "ratio_to": {"cublas": 1.0},
        "relative_error": 1e-3, "ptx_sha256": evidence.ptx_sha256(kernel.ptx()),
        "build": recipe.recipe(gemm.build, Product(), PING_PONG), **more,
    }  # fmt: skip
