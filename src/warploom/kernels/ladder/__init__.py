"""The ladder: one matrix product, from the naive loop to the fastest kernel, one idea per rung.

All rungs are called alike: `rung.build()(a, b)` is C = A @ Bᵀ, row-major, with A (M, K), B (N, K) and C (M, N). Sizes
are run-time arguments. The two naive rungs take B as (K, N), because they show how its rows are read. `RUNGS` is in
order from slow to fast; it is data, and importing it builds nothing.

A rung's file has its design in the docstring, its kernel in `build`, and one function per warp role. What it imports
unchanged from earlier rungs is listed under "Reuses"; without that line, the file is self-contained. "seed" is the
article or lecture that the rung follows, with its figure; docs/ladder/README.md lists them. All seeds are at 4096 cubed
on an H100 (its PCIe version below rung 4).
"""

from __future__ import annotations

from ...errors import ArgumentError
from ...isa.dtypes import bf16, f32
from .rung import Rung, Seed

_POST = "Inside NVIDIA GPUs: anatomy of high performance matmul kernels, https://www.aleksagordic.com/blog/matmul"


def _hopper(number: int, module: str, idea: str, tflops: float | None = None) -> Rung:
    """A rung on TMA and wgmma. Its source quotes figures from a work log (fast.cu), measured at 4096³."""
    seed = Seed(tflops, 4096, "H100", _POST) if tflops is not None else None
    return Rung(number, module, idea, "sm_90a", bf16, bf16, (1, 8, 8), seed=seed)


RUNGS: tuple[Rung, ...] = (
    Rung(
        1, "r01_naive_uncoalesced", "one thread per element of C; a warp covers a column", "sm_80", f32, f32,
        layout="NN", seed=Seed(0.243, 4096, "H100 PCIe", _POST),
    ),
    Rung(
        2, "r02_naive_coalesced", "coalescing: a warp covers a row", "sm_80", f32, f32, layout="NN",
        seed=Seed(3.171, 4096, "H100 PCIe", _POST),
    ),
    Rung(3, "r03_shared_memory", "tiles in shared memory: each loaded element is used 32 times", "sm_80", f32, f32),
    Rung(
        4, "r04_warp_tiling", "128 elements of C in the registers of each thread", "sm_80", f32, f32, (1, 4, 4),
        seed=Seed(32.0, 4096, "H100", _POST),
    ),
    Rung(
        5, "r05_register_staged", "tensor cores (mma.sync), fed through registers and ldmatrix", "sm_80", bf16, bf16,
        (1, 8, 8),
    ),
    Rung(
        6, "r06_ampere_multistage", "cp.async: copies run ahead and touch no register", "sm_80", bf16, bf16, (1, 8, 8),
    ),
    Rung(7, "r07_cp_async_wgmma", "wgmma, still fed by cp.async", "sm_90a", bf16, bf16, (1, 8, 8)),
    _hopper(8, "r08_tma_wgmma", "TMA loads the tiles; loads and MMAs alternate", 317),
    _hopper(9, "r09_larger_tile", "128 x 128 instead of 64 x 64: each byte is used twice as often", 423),
    _hopper(10, "r10_multistage", "a ring of stages: later tiles are in flight during the MMAs"),
    _hopper(11, "r11_warp_specialised", "a producer warp and a consumer warpgroup", 498),
    _hopper(12, "r12_two_consumers", "two consumers share a tile of 128 x 256", 610),
    _hopper(13, "r13_persistent", "persistent CTAs: the next tile is loaded while this one is stored", 660),
    _hopper(14, "r14_one_arrival", "one arrival per barrier instead of one per thread", 704),
    _hopper(15, "r15_multicast", "clusters of two: B is fetched once and multicast", 734),
    _hopper(16, "r16_registers", "registers reallocated, scale-d instead of zeros, streaming stores", 747),
    _hopper(17, "r17_tma_store", "C is stored through shared memory, by TMA", 758),
    _hopper(18, "r18_hilbert", "tiles along a Hilbert curve", 764),
    _hopper(19, "r19_stmatrix", "stmatrix writes 16 x 16 of C at a time"),
    _hopper(20, "r20_ping_pong", "ping-pong: one consumer multiplies while the other stores"),
    _hopper(21, "r21_large_tiles", "tiles of 256 x 192: a fifth fewer bytes per multiply-add"),
    _hopper(22, "r22_split_tail", "split K in the last, partly filled wave: it takes half as long"),
    _hopper(23, "r23_staggered", "half of a tile is stored while the other half is multiplied"),
)  # fmt: skip


def find(which: int | str) -> Rung:
    """The rung with a number or a name ("r04_warp_tiling" or "warp_tiling"). Raises ArgumentError for an unknown
    one."""
    for rung in RUNGS:
        if which in (rung.number, str(rung.number), rung.module, rung.name):
            return rung
    raise ArgumentError(
        f"the ladder has no rung {which!r}",
        expected=", ".join(f"{rung.number} {rung.name}" for rung in RUNGS),
        got=repr(which),
    )


__all__ = ["RUNGS", "Rung", "Seed", "find"]
