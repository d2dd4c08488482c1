"""Clocks of the tensor core."""

from __future__ import annotations

from .constants import Hardware
from .recording import Operation


def mma_clocks(operation: Operation, hardware: Hardware) -> float:
    """Of one m64nNk(32 bytes): its columns, or the bytes that it reads from shared memory, whichever takes longer.

    A from shared memory adds its 64 rows to the N of B: (64 + N) x 32 bytes at the rate of shared memory.
    """
    rows = operation.n + (64 if operation.source == "shared" else 0)
    columns = operation.n * hardware["mma_clocks_per_column"]
    return max(columns, rows * 32 / hardware["mma_shared_bytes_per_clock"], hardware["mma_least_clocks"])
