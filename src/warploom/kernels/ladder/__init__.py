"""The ladder: one product of matrices, from the naive loop to the fastest kernel, one idea a rung.

All rungs are called alike: `rung.build()(a, b)` is C = A @ Bᵀ, row-major, with A (M, K), B (N, K) and C (M, N), sizes
at run time (the two naive ones take B as (K, N): what they show is how its rows are read). `RUNGS` is in the order of
climbing; it is data, and importing it builds nothing.
"""

from __future__ import annotations

from ...errors import ArgumentError
from ...isa.dtypes import bf16, f32
from .rung import Rung, Seed

_POST = "seed 004, Inside NVIDIA GPUs: anatomy of high performance matmul kernels"

RUNGS: tuple[Rung, ...] = (
    Rung(
        1, "r01_naive", "a thread for an element, a warp along a row", "sm_80", f32, f32, layout="NN",
        seed=Seed(3.171, 4096, "H100 PCIe", _POST),
    ),
    Rung(
        2, "r02_naive_uncoalesced", "row and column swapped: no coalescing", "sm_80", f32, f32, layout="NN",
        seed=Seed(0.243, 4096, "H100 PCIe", _POST), shows=1,
    ),
    Rung(3, "r03_shared_memory", "tiles in shared memory: 32 uses of each element fetched", "sm_80", f32, f32),
    Rung(
        4, "r04_warp_tiling", "128 elements of C in the registers of each thread", "sm_80", f32, f32, (1, 4, 4),
        seed=Seed(32.0, 8192, "H100", _POST),
    ),
    Rung(
        5, "r05_ampere_multistage", "tensor cores (mma.sync), fed by cp.async and ldmatrix", "sm_80", bf16, bf16,
        (1, 8, 8),
    ),
    Rung(
        6, "r06_register_staged", "without cp.async: tiles pass through registers", "sm_80", bf16, bf16, (1, 8, 8),
        shows=5,
    ),
    Rung(7, "r07_cp_async_wgmma", "wgmma, still fed by cp.async", "sm_90a", bf16, bf16, (1, 8, 8)),
)  # fmt: skip


def find(which: int | str) -> Rung:
    """The rung of a number or a name ("r04_warp_tiling" or "warp_tiling"). Raises ArgumentError for an unknown one."""
    for rung in RUNGS:
        if which in (rung.number, str(rung.number), rung.module, rung.name):
            return rung
    raise ArgumentError(
        f"the ladder has no rung {which!r}",
        expected=", ".join(f"{rung.number} {rung.name}" for rung in RUNGS),
        got=repr(which),
    )


__all__ = ["RUNGS", "Rung", "Seed", "find"]
