"""What the kernels of this folder declare: any M; N a multiple of 8, rows of A and B of whole 16 bytes."""

from __future__ import annotations

from functools import partial

from ...isa.dtypes import DType, bf16
from ...lang import Tile, kernel
from ...lang.tile import Tiles

blackwell_kernel = partial(kernel, arch="sm_100a")
_STORE = 8
"""Elements of bf16 in the 16 bytes that a thread stores."""


def operands(dtype: DType, rows_a: int, rows_b: int, tile_k: int) -> tuple[Tile, Tile]:
    """A (M, K) and B (N, K), read by TMA in boxes of that many rows, with ragged edges."""
    return (
        Tile.umma_a("M", "K", dtype, tile_m=rows_a, tile_k=tile_k, ragged=True),
        Tile.umma_b("N", "K", dtype, major="K", tile_n=rows_b, tile_k=tile_k, ragged=True),
    )


def result(dtype: DType = bf16) -> Tile:
    """C (M, N), stored by threads in 16 bytes."""
    return Tile("M", "N", dtype, multiple=(1, _STORE))


def tiles_of(tile_m: int, tile_n: int) -> tuple[Tiles, Tiles, int]:
    """A CTA for each tile: rows of tiles along x, columns along y."""
    return (Tiles("M", tile_m), Tiles("N", tile_n), 1)
