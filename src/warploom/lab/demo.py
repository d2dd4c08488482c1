"""The demo: the walkthrough GEMM in the emulator and, if there is one, on the GPU.

This module computes; `warploom demo` prints.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..driver import library, toolchain
from ..isa import dtypes
from ..kernels.walkthrough import build_gemm_m64n64
from ..runtime import build, emulate

EMULATED_SIZE = 128
GPU_SIZE = 4096
_CHECKED_ROWS = 256
_TIMED_LAUNCHES = 10


@dataclass(frozen=True)
class Built:
    """The result of compiling the text.

    Attributes:
        compiler: "ptxas 13.0.88", or why there is none.
        registers, spills: per thread, spills in bytes; None if nothing was built.
    """

    compiler: str
    registers: int | None = None
    spills: int | None = None


@dataclass(frozen=True)
class Run:
    """One run of the kernel.

    Attributes:
        machine: "emulator", or the GPU's name.
        shape: M, N, K.
        error: ‖C − reference‖ / ‖reference‖ against float64, over `rows` rows of C.
        seconds: of the emulation, or of one launch on the GPU.
        counters: of the emulator.
        against_emulator: largest difference to the emulator's result for the same text and data, if both ran.
    """

    machine: str
    shape: tuple[int, int, int]
    error: float
    seconds: float
    rows: int
    counters: dict[str, Any] = field(default_factory=dict)
    against_emulator: float | None = None

    @property
    def tflops(self) -> float:
        m, n, k = self.shape
        return 2 * m * n * k / self.seconds / 1e12


def inputs(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A (size, size) and B (size, size), bf16, random normal."""
    random = np.random.default_rng(seed)
    bf16 = dtypes.bf16.numpy
    a = random.standard_normal((size, size), np.float32).astype(bf16)
    return a, random.standard_normal((size, size), np.float32).astype(bf16)


def relative_error(c: np.ndarray, a: np.ndarray, b: np.ndarray, rows: int) -> float:
    """‖C − A B‖ / ‖A B‖ in float64, over `rows` rows evenly spread."""
    chosen = np.linspace(0, len(a) - 1, min(rows, len(a))).astype(int)
    reference = a[chosen].astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(c[chosen] - reference) / np.linalg.norm(reference))


def emulated(size: int = EMULATED_SIZE) -> tuple[Run, np.ndarray]:
    """Emulate the kernel. Returns the run and its C."""
    a, b = inputs(size)
    kernel = build_gemm_m64n64(size, size, size)
    started = time.perf_counter()
    report = emulate(kernel, a, b, check=True).raise_on_findings()
    seconds = time.perf_counter() - started
    (c,) = report.outputs
    return Run(
        "emulator", (size, size, size), relative_error(c, a, b, size), seconds, size, report.counters.as_dict()
    ), c


def built(size: int = EMULATED_SIZE) -> Built:
    """Assemble the kernel and return its resources."""
    if toolchain.ptxas() is None and not library.available():
        return Built("no ptxas here: cubins and register counts need it, the emulator does not")
    made = build(build_gemm_m64n64(size, size, size))
    used = next(iter(made.resources.values()), None)
    return Built(made.compiler, used.registers if used else None, used.spills if used else None)


def on_gpu(emulated_c: np.ndarray) -> list[Run]:
    """Run the emulated text on the GPU and compare, then the same kernel at a size that fills it."""
    name = library.load().device(0).name
    small = len(emulated_c)
    a, b, c, seconds = _launched(small)
    same = Run(name, (small,) * 3, relative_error(c, a, b, small), seconds, small,
               against_emulator=float(np.abs(c - emulated_c).max()))  # fmt: skip
    a, b, c, seconds = _launched(GPU_SIZE)
    return [same, Run(name, (GPU_SIZE,) * 3, relative_error(c, a, b, _CHECKED_ROWS), seconds, _CHECKED_ROWS)]


def _launched(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """A, B, C and the seconds of one launch (mean of ten in a row)."""
    from ..runtime.benchmark.device_array import DeviceArray
    from ..runtime.benchmark.gpu import CudaTimer

    a, b = inputs(size)
    kernel = build_gemm_m64n64(size, size, size)
    with DeviceArray.of(a) as at, DeviceArray.of(b) as bt, DeviceArray((size, size), np.float32) as ct:
        kernel(at, bt, out=ct)
        seconds = CudaTimer().timed(lambda: kernel(at, bt, out=ct), _TIMED_LAUNCHES)
        return a, b, ct.numpy(), seconds
