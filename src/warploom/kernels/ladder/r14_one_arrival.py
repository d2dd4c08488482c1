"""Rung 14: cheap barriers; one thread arrives where one suffices.

Idea       For each k-tile the rungs before let 256 threads arrive on full[s] and again on empty[s]. None of the first
           is needed: that the bytes are there is all a consumer waits for. And of the second one for each warpgroup
           is enough: wgmmas are the warpgroup's, so when one thread has waited for them, their reads are over.
           Same kernel, same waits, 512 arrivals less for each k-tile.
Roles      as on rung 13
Barriers   full[s]    1 arrival + bytes            producer -> both consumers
           empty[s]   2 arrivals, one a consumer   consumers -> producer
Buffers    as on rung 13
Limits     any M; N and K multiples of 8; B is (N, K); C is bf16 (or f32)
Seed       704 TFLOP/s, from 660 (*Inside NVIDIA GPUs*, H100)
"""

from __future__ import annotations

from ...lang import Kernel
from .r13_persistent import Config, persistent


def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = A @ Bᵀ with A (M, K) and B (N, K) bf16, C (M, N) bf16 or f32, all row-major."""
    return persistent("one_arrival", config, every_thread=False)
