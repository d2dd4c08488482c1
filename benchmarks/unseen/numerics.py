"""Numerical kernels (`ptx/numerics.cu`), predicted before they ran: a Fourier transform, bodies that attract each
other, least sums, the alignment of sequences, a sparse matrix times a vector."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.types import f32, s32

from .case import Array, Case
from .elementwise import MILLION
from .texts import case


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION

    def floats(*shape: int) -> Array:
        return Array(shape, f32)

    def zeros(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, f32, "zeros"),)

    rows = 16384 if whole else 4
    yield case("nvcc_fourier", "transform", "numerics", "fourier", (floats(rows, 2048),), zeros(rows, 2048), (),
               (rows, 1, 1), 256)  # fmt: skip
    count = 33792 if whole else 512
    yield case("nvcc_bodies", "arithmetic", "numerics", "bodies", (floats(count, 4),), zeros(count, 4), (count,),
               (count // 256, 1, 1), 256)  # fmt: skip
    size = 1024 if whole else 64
    yield case("nvcc_least_sums", "product", "numerics", "least_sums", (floats(size, size),) * 2, zeros(size, size),
               (size,), (size // 64, size // 64, 1), 256)  # fmt: skip
    ctas, stripes, length = (1056, 4, 512) if whole else (2, 1, 32)
    yield case("nvcc_aligned", "recurrence", "numerics", "aligned",
               (Array((8 * ctas * stripes * 32,), s32, 1 << 20), Array((length,), s32, 1 << 20)),
               (Array((8 * ctas,), s32, "zeros"),), (stripes, length), (ctas, 1, 1), 256, 8 * 4 * length)  # fmt: skip
    many, each, wide = (262144, 64, million) if whole else (64, 64, 1024)
    yield case("nvcc_sparse_rows", "gather", "numerics", "sparse_rows",
               (floats(many, each), Array((many, each), s32, wide), floats(wide)), zeros(many), (each,),
               (many // 8, 1, 1), 256)  # fmt: skip
