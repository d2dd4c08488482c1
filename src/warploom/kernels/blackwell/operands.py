"""Operands of the Blackwell kernels: any M; N a multiple of 8; rows of A and B multiples of 16 bytes long."""

from __future__ import annotations

from functools import partial

from ...collective.epilogue.spec import Product
from ...isa.dtypes import DType, bf16
from ...lang import Tile, kernel, smem
from ...lang.tile import Tiles
from .description import TARGET

blackwell_kernel = partial(kernel, arch=TARGET)
_STORE = 8
"""bf16 elements in the 16 bytes that a thread stores."""


def product_operands(product: Product, rows_a: int, rows_b: int) -> tuple[Tile, Tile]:
    """A and B of a product, K-major or MN-major, in boxes of rows_a and rows_b rows of one CTA."""
    k = product.tile_k
    a = ("M", "K") if product.a_major == "K" else ("K", "M")
    b = ("N", "K") if product.b_major == "K" else ("K", "N")
    return (
        Tile.umma_a(*a, product.a, major=product.a_major, tile_m=rows_a, tile_k=k, ragged=True),
        Tile.umma_b(*b, product.b, major=product.b_major, tile_n=rows_b, tile_k=k, ragged=True),
    )


def ring_tile(dtype: DType, major: str, rows: int, tile_k: int, stages: int, name: str) -> smem.OperandTile:
    """The stages of one operand."""
    shape = (rows, tile_k) if major == "K" else (tile_k, rows)
    return smem.umma_tile(dtype, shape, major=major, stages=stages, name=name)


def operands(dtype: DType, rows_a: int, rows_b: int, tile_k: int) -> tuple[Tile, Tile]:
    """A (M, K) and B (N, K), read by TMA in boxes of rows_a and rows_b rows, with ragged edges."""
    return (
        Tile.umma_a("M", "K", dtype, tile_m=rows_a, tile_k=tile_k, ragged=True),
        Tile.umma_b("N", "K", dtype, major="K", tile_n=rows_b, tile_k=tile_k, ragged=True),
    )


def result(dtype: DType = bf16) -> Tile:
    """C (M, N), stored by threads 16 bytes at a time."""
    return Tile("M", "N", dtype, multiple=(1, _STORE))


def tiles_of(tile_m: int, tile_n: int) -> tuple[Tiles, Tiles, int]:
    """The grid of one CTA per tile: tiles of M along x, of N along y."""
    return (Tiles("M", tile_m), Tiles("N", tile_n), 1)
