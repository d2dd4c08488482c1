"""Rung 2: the same kernel with row and column swapped; what coalescing is worth.

Idea       A counterexample. The lanes of a warp now stand below each other in a column of C: in each step of k they
           read 32 rows of A, 32 sectors for 128 bytes that are wanted, and store 32 sectors as well. Same arithmetic,
           same number of instructions, the same bits in C.
Roles      1024 threads, 32 x 32 elements of C
Barriers   none
Buffers    none
Limits     any M, N, K; B is (K, N), as on rung 1
Seed       0.243 TFLOP/s at 4096³ on an H100 PCIe, 13 times slower than rung 1 (seeds/004)
"""

from __future__ import annotations

from ...lang import Kernel
from .r01_naive import Config, naive


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ B with A (M, K), B (K, N), C (M, N), all f32 and row-major."""
    return naive("naive_uncoalesced", config, coalesced=False)
