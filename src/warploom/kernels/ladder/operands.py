"""What the Hopper rungs say about their arrays: bf16 operands in TMA tiles, any M; N and K multiples of 8."""

from __future__ import annotations

from ...collective.epilogue.smem_tile import result_tile
from ...isa.dtypes import DType, bf16
from ...lang import Tile


def operands(tile_m: int, tile_n: int, tile_k: int, slices: int = 1, shared: str = "b") -> tuple[Tile, Tile]:
    """A (M, K) and B (N, K), both K-major, with ragged edges; the tile that is multicast comes in `slices` boxes."""
    if shared == "b":
        tile_n //= slices
    else:
        tile_m //= slices
    return (
        Tile.wgmma_a("M", "K", bf16, tile_m=tile_m, tile_k=tile_k, ragged=True),
        Tile.wgmma_b("N", "K", bf16, major="K", tile_n=tile_n, tile_k=tile_k, ragged=True),
    )


def result(out: DType) -> Tile:
    """C (M, N), stored by threads in whole groups of 8 columns."""
    return Tile("M", "N", out, multiple=(1, 8))


def result_in_boxes() -> Tile:
    """C (M, N) bf16, stored by TMA in boxes of 64 x 64; its rows are whole 16-byte pieces."""
    return result_tile("M", "N", bf16, order="rows")
