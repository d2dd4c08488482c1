"""The speed limit under a power cap: a product that keeps an H200's tensor cores busy and moves each byte once."""

from __future__ import annotations

from dataclasses import dataclass

from ..timing import H200
from ..timing.power import Work, settle
from ..timing.tensor import NARROW
from .roofline import FLOP_PER_CLOCK, MEMORY_BANDWIDTH, SMS


@dataclass(frozen=True)
class Limit:
    """An upper bound: the clock that power allows, watts, and TFLOP/s at it. bound: "tensor cores" or "DRAM"."""

    clock_mhz: float
    watts: float
    tflops: float
    bound: str


def limit(
    m: int, n: int, k: int, dtype: str = "bf16", operand_bytes: int = 2, cap_watts: float = 700.0, zeros: bool = False
) -> Limit:
    """The limit of D = A B on an H200: m, n, k elements; `zeros`: all-zero operands, so that nothing toggles.

    The energies are those of `timing` (microbenchmarks.json). Instructions, and bytes fetched from L2 more than once,
    are not counted, so real kernels are below it.
    """
    flops = 2.0 * m * n * k
    moved = float((m * k + n * k) * operand_bytes + 2 * m * n)
    narrow = dtype in NARROW
    work = Work(
        warpgroup_flops=0.0 if narrow else flops, narrow_flops=flops if narrow else 0.0, read=moved,
        received=moved, dram=moved, f16=float(dtype == "f16"), zeros=zeros,
    )  # fmt: skip
    rate = SMS["H200"] * FLOP_PER_CLOCK["sm_90a"][dtype] * 1e9
    memory = moved / MEMORY_BANDWIDTH["H200"]
    ghz, watts = settle(work, H200, lambda clock: max(flops / (rate * clock), memory), 1.0, cap_watts)
    seconds = max(flops / (rate * ghz), memory)
    bound = "DRAM" if memory >= flops / (rate * ghz) else "tensor cores"
    return Limit(ghz * 1e3, watts, flops / seconds / 1e12, bound)
