"""Small kernels as PTX text, for the emulator's tests: a body goes in, the arrays come back changed."""

from __future__ import annotations

import numpy as np

from warploom import asm
from warploom.emulator import api
from warploom.emulator.diagnosis.report import Report

REGISTERS = """
    .reg .pred %p<16>;
    .reg .b16 %h<32>;
    .reg .b32 %r<64>;
    .reg .f32 %f<32>;
    .reg .b64 %rd<64>;
    .reg .f64 %fd<32>;
    .reg .b128 %q<8>;
"""

PROLOGUE = """
    mov.u32 %r0, %tid.x;
"""


def kernel_text(body: str, parameters: int = 1, before: str = "", target: str = "sm_90a") -> str:
    """A text with one kernel `k`. As its body begins, %rd0, %rd1, … hold parameters `p0`, `p1`, … and %r0 %tid.x."""
    names = ", ".join(f".param .u64 p{number}" for number in range(parameters))
    loads = "\n".join(f"    ld.param.u64 %rd{number}, [p{number}];" for number in range(parameters))
    return (
        f".version 8.7\n.target {target}\n.address_size 64\n{before}\n"
        f".visible .entry k({names})\n{{\n{REGISTERS}{PROLOGUE}{loads}\n{body}\n    ret;\n}}\n"
    )


def emulate(
    body: str,
    *arrays: np.ndarray,
    threads: int = 32,
    grid: int = 1,
    before: str = "",
    target: str = "sm_90a",
    **options: object,
) -> Report:
    """Run a body with arrays as its parameters."""
    text = kernel_text(body, len(arrays), before, target)
    return api.run(asm.parse(text), "k", arrays, grid=(grid, 1, 1), block=(threads, 1, 1), **options)  # type: ignore[arg-type]
