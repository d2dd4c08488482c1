"""Integer arithmetic and images (`ptx/integers.cu`), predicted before they ran."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.types import f32, u32

from .case import Array, Case
from .elementwise import MILLION
from .texts import case

ANY = 1 << 31


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    count = million

    def words(*shape: int) -> Array:
        return Array(shape, u32, ANY)

    def made(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, u32, "zeros"),)

    grid = (count // 256, 1, 1)
    for name, values in (
        ("sigma_rounds", (64 if whole else 4,)), ("chacha", (10 if whole else 1,)),
        ("congruential", (256 if whole else 4,)), ("xorshift", (200 if whole else 4,)),
        ("montgomery", (2147483629, 1234567891, 128 if whole else 4)),
    ):  # fmt: skip
        yield case(f"nvcc_{name}", "integers", "integers", name, (words(count),), made(count), values, grid, 256)
    many = 32 if whole else 4
    yield case("nvcc_murmur", "integers", "integers", "murmur", (words(many, count),), made(count), (many,), grid, 256)
    yield case("nvcc_crc_by_table", "lookup", "integers", "crc_by_table", (words(many, count), words(256)), made(count),
               (many,), grid, 256)  # fmt: skip
    pairs = 16 * million
    yield case("nvcc_morton", "integers", "integers", "morton", (words(pairs), words(pairs)), made(pairs), (),
               (pairs // 256, 1, 1), 256)  # fmt: skip
    keys = 1024 if whole else 256
    yield case("nvcc_hamming", "integers", "integers", "hamming", (words(count // 4, 4), words(keys, 4)),
               made(count // 4), (keys,), (count // 1024, 1, 1), 256)  # fmt: skip

    def floats(*shape: int) -> Array:
        return Array(shape, f32)

    yield case("nvcc_mandelbrot", "arithmetic", "integers", "mandelbrot", (floats(count),) * 2,
               (Array((count,), f32, "zeros"),), (256 if whole else 8,), grid, 256)  # fmt: skip
    side = 4096 if whole else 64
    image = Array((side, side), f32, "zeros")
    tiles = (side // 32, side // 8, 1)
    yield case("nvcc_median", "stencil", "integers", "median", (floats(side, side),), (image,), (side, side), tiles,
               (32, 8))  # fmt: skip
    small = side * 3 // 4
    yield case("nvcc_bilinear", "stencil", "integers", "bilinear", (floats(small, small),), (image,),
               (small, small, side, side), tiles, (32, 8))  # fmt: skip
