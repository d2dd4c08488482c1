"""The plan by which copy engines send rows of A to the other GPUs: blocks, chunks and their order.

    to rank - 1    [block 0, chunk 0 of K, flag][block 0, chunk 1, flag] ... [block 1, chunk 0, flag] ...
    to rank - 2    [block 0 ...

Rank - 1 needs this GPU's rows first. Copies go in the order of the waves that multiply them; those of one wave chunk by
chunk, because its tiles all begin with the first chunk, whoever owns their rows.

A block has as many rows of tiles as run at one time: its tiles follow the chunks of K as they arrive, and after the
last chunk only that one is left to multiply. Small blocks are not divided: a copy takes microseconds to start. Copies
of all columns of K are contiguous, others are strided rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, sqrt

from .description import TILE_K_BYTES, Config

__all__ = ["Plan", "RowCopy", "choose", "form_of"]

LEAST_BYTES = 4 << 20
"""Least bytes of a copy, about ten microseconds on an NVLink."""
COPY_US = 4.0
"""Microseconds that one more copy costs all of them, the mean over the products of
benchmarks/results/nvidia-h100/sweep-all-gather.json with 4, 8 and 16 chunks."""
TILE_BYTES_PER_US = 6e6
"""Elements of a tile times bytes of a row of A, by the microseconds in which a CTA multiplies the tile."""
LONG_FLOP = 3e11
"""Operations of a GPU's product that outlast the host's time for the copies."""
SHORT, LONG = "push", "copy"
"""How the rows of a product of fewer and of more operations travel, one of `GATHERS`; "tma" was timed on two GPUs
only (sweep-all-gather-tma.json)."""
LEAST_K_TILES = 8
WHOLE_K_TILES = 8
"""K-tiles of which chunks have a multiple, so that the rows of a copy begin at whole KiB: two all-gathers with chunks
of 75 (tensor-parallel-4-words.json) became 1.05 and 1.06 times as fast (tensor-parallel-4-defaults.json)."""


@dataclass(frozen=True)
class RowCopy:
    """One copy of `rows` rows from row `first`, `bytes` of each from byte `start`, to GPU `to`, whose flag `flag`
    reports it; `begins`: True for the first copy of its rows, with which their scales travel."""

    to: int
    first: int
    rows: int
    start: int
    bytes: int
    flag: int
    begins: bool


@dataclass(frozen=True)
class Plan:
    """The division of a GPU's rows by the kernel's `tiles_of_block` and `k_tiles_of_chunk`.

    rows, row_bytes: of A on each GPU; tile_m: rows of a tile; waves: waves of the tiles of one GPU's rows, a fraction;
    0: the copies go to one GPU after the other.
    """

    ranks: int
    rows: int
    row_bytes: int
    tile_m: int
    tiles_of_block: int
    k_tiles_of_chunk: int
    waves: float = 0.0

    @property
    def blocks(self) -> int:
        """Number of blocks of one GPU's rows."""
        return -(-self.rows // (self.tile_m * self.tiles_of_block))

    @property
    def chunks(self) -> int:
        """Number of chunks of K."""
        return -(-self.row_bytes // (TILE_K_BYTES * self.k_tiles_of_chunk))

    @property
    def counters(self) -> int:
        """Counters and flags that each GPU needs."""
        return self.ranks * (1 + self.blocks * self.chunks)

    def raised_by(self, index: int) -> int:
        """The GPU that raises a counter or a flag."""
        return index if index < self.ranks else (index - self.ranks) // (self.blocks * self.chunks)

    def parts(self, rank: int) -> Iterator[RowCopy]:
        """The copies of a GPU, in order."""
        height, width = self.tile_m * self.tiles_of_block, TILE_K_BYTES * self.k_tiles_of_chunk
        for place, block, chunk in sorted(product(range(1, self.ranks), range(self.blocks), range(self.chunks)),
                                          key=lambda copy: (self._wave(*copy[:2]), copy[2], *copy)):  # fmt: skip
            first, start = block * height, chunk * width
            yield RowCopy(
                (rank - place) % self.ranks, first, min(height, self.rows - first), start,
                min(width, self.row_bytes - start), self.ranks + (rank * self.blocks + block) * self.chunks + chunk,
                chunk == 0,
            )  # fmt: skip

    def _wave(self, place: int, block: int) -> int:
        """The wave with the last tile of a block, where the receiver multiplies its part as the `place`-th from 0."""
        return ceil((place + (block + 1) / self.blocks) * self.waves) if self.waves else place * self.blocks + block


def form_of(ranks: int, rows: int, columns: int, depth: int) -> str:
    """Choose how rows travel: `SHORT` or `LONG`. Copies leave the multiprocessors to the product, but their calls cost
    the host up to 200 us: of the products in sweep-all-gather.json (four H100s, two H200s), those of `LONG_FLOP` and
    more are faster with copies, by up to a third, and shorter ones with warps."""
    return LONG if 2.0 * ranks * rows * columns * depth >= LONG_FLOP else SHORT


def choose(ranks: int, rows: int, row_bytes: int, columns: int, config: Config, sms: int) -> Plan:
    """The plan for a product with so many columns; `rows`, `row_bytes`: of A on each GPU."""
    down, across = -(-rows // config.tile_m), -(-columns // config.tile_n)
    tiles = max(1, min(down, sms // across))
    blocks = -(-down // tiles)
    tiles = -(-down // blocks)
    k_tiles = -(-row_bytes // TILE_K_BYTES)
    block_bytes = min(rows, tiles * config.tile_m) * row_bytes
    tile_us = config.tile_m * config.tile_n * row_bytes / TILE_BYTES_PER_US
    best = ceil(sqrt(tile_us / ((ranks - 1) * blocks * COPY_US)))  # copies' time, and the last chunk's of a tile
    chunks = max(1, min(best, block_bytes // LEAST_BYTES, k_tiles // LEAST_K_TILES))
    of_chunk = -(-k_tiles // chunks)
    if chunks > 1:
        of_chunk = -(-of_chunk // WHOLE_K_TILES) * WHOLE_K_TILES
    return Plan(ranks, rows, row_bytes, config.tile_m, tiles, of_chunk, down * across / sms)
