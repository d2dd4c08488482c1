"""Further texts from nvcc and Triton, in the folder `ptx` here, predicted before they ran."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.types import f16, f32, u8, u32

from .case import Array, Case
from .elementwise import MILLION
from .texts import case


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION

    def floats(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, f32),)

    def made(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, f32, "zeros"),)

    count = 8 * million
    yield case("nvcc_options", "elementwise", "more", "options", floats(count) * 3, made(count), (count,),
               (count // 256, 1, 1), 256)  # fmt: skip
    bodies = 16384 if whole else 512
    yield case("nvcc_more_bodies", "arithmetic", "more", "bodies", floats(bodies, 4), made(bodies, 4), (bodies,),
               (bodies // 256, 1, 1), 256)  # fmt: skip
    size = 2048 if whole else 128
    yield case("nvcc_register_tiles", "product", "more", "register_tiles", floats(size, size) * 2, made(size, size),
               (size, size, size), (size // 128, size // 128, 1), 256)  # fmt: skip
    side, planes = (512, 128) if whole else (32, 8)
    volume = planes, side, side
    yield case("nvcc_seven_points", "stencil", "more", "seven_points", floats(*volume), made(*volume),
               (side, side, planes), (side // 32, side // 8, 1), (32, 8))  # fmt: skip
    pairs = Array((32 * million,), f16)
    yield case("nvcc_dot_product", "reduction", "more", "dot_product", (pairs, pairs), made(1), (16 * million,),
               (528 if whole else 4, 1, 1), 256)  # fmt: skip
    pixels = 16 * million
    yield case("nvcc_grey", "elementwise", "more", "grey", (Array((pixels, 4), u8, 256),),
               (Array((pixels,), u8, "zeros"),), (pixels,), (pixels // 1024, 1, 1), 256)  # fmt: skip
    yield case("triton_scaled_sum", "elementwise", "triton_scaled_sum", "scaled_sum", floats(count) * 2,
               made(count), (count,), (count // 1024, 1, 1), 128)  # fmt: skip
    rows, columns = (4096, 32000) if whole else (16, 2560)
    yield case("triton_cross_entropy", "softmax", "triton_cross_entropy", "cross_entropy",
               (Array((rows, columns), f16), Array((rows,), u32, columns)), made(rows), (columns,), (rows, 1, 1), 256,
               32)  # fmt: skip
    size = 4096 if whole else 256
    square = Array((size, size), f16)
    yield case("triton_grouped_product", "product", "triton_grouped_product", "grouped_product", (square, square),
               (Array((size, size), f16, "zeros"),), (size, size, size), ((size // 128) ** 2, 1, 1), 256, 98304,
               flops=2.0 * size**3)  # fmt: skip
