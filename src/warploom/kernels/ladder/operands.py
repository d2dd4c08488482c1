"""Operands of the tensor-core rungs: bf16 arrays, any M; N and K multiples of 8 elements, 16 bytes."""

from __future__ import annotations

from functools import partial

from ...collective.epilogue.arguments import result_tile
from ...isa.dtypes import DType, bf16
from ...lang import Tile, kernel
from ..fallback_hint import other_rungs

PIECE = 8
"""bf16 elements in 16 bytes: what a thread copies at a time, and the multiple that TMA requires of rows."""

hopper_kernel = partial(kernel, arch="sm_90a", fallback_hint=other_rungs)
"""`kernel` for a GPU of sm_90a; on any other GPU, the error lists the rungs that it can run."""


def operands_by_threads() -> tuple[Tile, Tile]:
    """A (M, K) and B (N, K), read by the threads."""
    return Tile("M", "K", bf16, multiple=(1, PIECE)), Tile("N", "K", bf16, multiple=(1, PIECE))


def operands(rows_a: int, rows_b: int, tile_k: int) -> tuple[Tile, Tile]:
    """A (M, K) and B (N, K), read by TMA in boxes of rows_a or rows_b rows and tile_k columns, with ragged edges."""
    return (
        Tile.wgmma_a("M", "K", bf16, tile_m=rows_a, tile_k=tile_k, ragged=True),
        Tile.wgmma_b("N", "K", bf16, major="K", tile_n=rows_b, tile_k=tile_k, ragged=True),
    )


def result(dtype: DType = bf16) -> Tile:
    """C (M, N), stored by threads in groups of 8 columns."""
    return Tile("M", "N", dtype, multiple=(1, PIECE))


def result_in_boxes() -> Tile:
    """C (M, N) bf16, stored by TMA in boxes of 64 x 64."""
    return result_tile("M", "N", bf16, order="rows")
