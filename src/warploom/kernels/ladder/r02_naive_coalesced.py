"""Rung 2: coalescing: row and column swapped; adjacent lanes of a warp are adjacent in a row.

Idea       The lanes of a warp now cover 32 columns of one row of C. In each step of k they read one element of A
           together (a broadcast) and 32 consecutive elements of B: four sectors instead of rung 1's 32. Their stores
           touch four as well. Same arithmetic, same number of instructions, same bits in C.
Reuses     Config and naive of rung 1, everything but `position`
Roles, Barriers, Buffers, Timeline as on rung 1
Measured   benchmarks/results/nvidia-h200/ladder.json; seed: 3.17 TFLOP/s (*Inside NVIDIA GPUs*)
"""

from __future__ import annotations

from ...lang import Kernel, ptx
from .r01_naive_uncoalesced import Config, naive


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ B with A (M, K), B (K, N), C (M, N), all f32 and row-major; any M, N, K."""
    return naive("naive_coalesced", config, position)


def position(side):
    """Row and column of a thread's element in the CTA's square: adjacent lanes are adjacent in a row."""
    row, column = ptx.special.tid.x() // side, ptx.special.tid.x() % side
    return row, column
