"""Sizes known before tracing, by arithmetic alone: grids, cluster tiles, bytes.

This file imports nothing of `lang`, so that kernels traced earlier can be chosen and launched without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...isa.dtypes import DType

ACC_ATOM_N = 8
"""Columns of an atom of accumulators, which the tensor core distributes over four lanes."""
WARPGROUP_ROWS = 64
"""Rows of one warpgroup instruction."""
STORE_BYTES = 16
"""TMA stores in units of this many bytes."""
EPILOGUE_WARPS = 4
"""Warps that read an accumulator in tensor memory: each can access a quarter of the lanes."""
ROLE_THREADS = 256
"""Threads of a CTA with single-warp roles next to its epilogue warpgroup (`warp_roles`)."""
MOST_GROUPS = 1024
"""Groups of one launch of a grouped product: their row tiles are added up in shared memory."""
MOST_EXPERTS = 512
"""Experts of all GPUs of a group together: their rows are counted in shared memory (`routing`)."""
TRANSPOSED_ROWS, TRANSPOSED_PITCH, TRANSPOSED_PLACES = 16, 24, 2
"""The buffers in which a warp transposes a result (`transposed_store`): rows; elements from row to row, 48 bytes, so
that eight rows of 16 bytes are in different banks; buffers per warp."""
TRANSPOSED_BYTES = 4 * TRANSPOSED_PLACES * TRANSPOSED_ROWS * TRANSPOSED_PITCH * 2
"""Shared memory of the buffers of a consumer warpgroup."""


def fits(columns: int, dtype: DType) -> bool:
    """True if a tile of that many columns can be stored in boxes: whole atoms, and a last box of 16-byte units."""
    return columns % ACC_ATOM_N == 0 and columns * dtype.bytes % STORE_BYTES == 0


def exchange_width(accumulators: int, parts: int) -> int:
    """Accumulators of a thread that are sent together: as many as a 16-byte store takes, if every split gets some."""
    return next((width for width in (4, 2) if accumulators // width >= parts), 1)


def owned(pieces: int, parts: int, rank: int) -> range:
    """The pieces of a tile that split `rank` of K adds up."""
    return range(pieces * rank // parts, pieces * (rank + 1) // parts)


def exchange_bytes(accumulators: int, parts: int, consumers: int) -> int:
    """Bytes of shared memory into which the other splits of K push their partial sums."""
    width = exchange_width(accumulators, parts)
    most = max(len(owned(accumulators // width, parts, rank)) for rank in range(parts))
    return (parts - 1) * most * width * 4 * 128 * consumers


def cluster_tile(tile: tuple[int, int], ctas: int, multicast: str) -> tuple[int, int]:
    """Rows and columns that the CTAs of a cluster compute together."""
    return (tile[0] * ctas, tile[1]) if multicast == "b" else (tile[0], tile[1] * ctas)


@dataclass(frozen=True)
class PersistentGrid:
    """The grid rule of `schedule.Persistent` with one CTA per SM, for a C with sizes named "M" and "N".

    Attributes:
        tile: (m, n) of a CTA.
        ctas, multicast: of the cluster, as in `schedule.Persistent`.
    """

    tile: tuple[int, int]
    ctas: int = 1
    multicast: str = "b"

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        height, width = cluster_tile(self.tile, self.ctas, self.multicast)
        clusters = -(-dims["M"] // height) * -(-dims["N"] // width)
        return (max(1, min(clusters, machine.clusters(self.ctas))) * self.ctas, 1, 1)


persistent_grid = PersistentGrid


@dataclass(frozen=True)
class OneCtaPerSm:
    """The grid rule of one CTA per SM, for any sizes; of as many clusters of `ctas` CTAs as run at once."""

    ctas: int = 1

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        return (machine.clusters(self.ctas) * self.ctas, 1, 1)
