"""What people bring to be predicted, by nvcc (`ptx/brought.cu`) and in the DSL, each predicted before it ran.

Sums in one pass that look back, tensors permuted by divisions of 64 bits, float atomics in shared memory, sparse rows
of any length, a queue of tiles, a barrier of the whole grid, local memory, spilled registers, f16 and tf32, f64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from warploom.types import f16, f32, f64, s32, u8, u32, u64

from .brought_rings import edges_by_boxes, gated_product, logarithms_of_sums
from .case import Array, Case
from .elementwise import MILLION
from .layers import floats, halves, zeros
from .texts import case

SMS = 132


STEERED = ("joint_histogram", "neighbour_forces", "orbits", "nearest")
"""Kernels whose floats decide where they go."""


def cases(million: int = MILLION) -> Iterator[Case]:
    for made in (memory, arithmetic, products, rings):
        for one in made(million):
            yield replace(one, steered=one.name.removeprefix("nvcc_") in STEERED)


def memory(million: int) -> Iterator[Case]:
    whole = million == MILLION
    count, ctas = 4 * million, 528 if whole else 4
    yield case("nvcc_joint_histogram", "atomics", "brought", "joint_histogram", (floats(count, 2), floats(count)),
               (zeros(f32, 1024),), (count,), (ctas, 1, 1), 256)  # fmt: skip
    count = 8 * million
    blocks = count // 2048
    yield case("nvcc_looked_back", "scan", "brought", "looked_back", (Array((count,), u32, 1000),),
               (zeros(u32, count), zeros(u64, blocks), zeros(u32, 2)), (), (blocks, 1, 1), 256)  # fmt: skip
    a, b, c, d = (64, 32, 64, 64) if whole else (4, 8, 4, 16)
    yield case("nvcc_permuted", "transpose", "brought", "permuted", (Array((a, d, c, b), f16),),
               (zeros(f16, a, b, c, d),), (a * b * c * d, b, c, d, b * c * d, 1, b, b * c),
               (1056 if whole else 2, 1, 1), 256)  # fmt: skip
    rows = 512 if whole else 4
    yield case("nvcc_norm_gradient", "layer norm", "brought", "norm_gradient",
               (halves(rows, 4096), halves(rows, 4096), halves(4096), floats(rows), floats(rows)),
               (halves_out := zeros(halves(1).dtype, rows, 4096),), (), (rows, 1, 1), 512)  # fmt: skip
    rows, columns = (264, 65536) if whole else (2, 8192)
    yield case("nvcc_long_softmax", "softmax", "brought", "long_softmax", (floats(rows, columns),),
               (zeros(f32, rows, columns),), (columns,), (rows, 1, 1), 512)  # fmt: skip
    count = 2 * million
    keys = Array((count,), u32, 1 << 30, rising=True)
    yield case("nvcc_merged", "sort", "brought", "merged", (keys, keys), (zeros(u32, 2 * count),), (count,),
               (2 * count // 1024, 1, 1), 128)  # fmt: skip
    tokens, words = (8192, 8192) if whole else (16, 64)
    yield case("nvcc_scattered_gradients", "atomics", "brought", "scattered_gradients",
               (Array((tokens,), s32, words), halves(tokens, 512)), (zeros(f32, words, 512),), (), (tokens, 1, 1),
               128)  # fmt: skip
    rows, columns, filled = (131072, 65536, 2 * million) if whole else (64, 256, 1024)
    yield case("nvcc_csr_times_vector", "gather", "brought", "csr_times_vector",
               (Array((rows + 1,), s32, filled, rising=True), Array((filled,), s32, columns), floats(filled),
                floats(columns)), (zeros(f32, rows),), (rows,), (rows // 8, 1, 1), 256)  # fmt: skip
    images, side = (32, 112) if whole else (1, 16)
    yield case("nvcc_pooled", "stencil", "brought", "pooled", (halves(images, side, side, 64),),
               (zeros(halves_out.dtype, images, side // 2, side // 2, 64),), (side,),
               (images * side * side // 4 * 8 // 256, 1, 1), 256)  # fmt: skip
    rows, blocks = (16384, 128) if whole else (8, 64)
    yield case("nvcc_blocks_times_vector", "matrix times vector", "brought", "blocks_times_vector",
               (Array((rows, blocks, 18), u8, 120), Array((blocks * 8,), s32, 1 << 31), floats(blocks)),
               (zeros(f32, rows),), (blocks,), (rows // 4, 1, 1), 128)  # fmt: skip
    atoms, each = (65536, 64) if whole else (128, 8)
    yield case("nvcc_neighbour_forces", "gather", "brought", "neighbour_forces",
               (floats(atoms, 4), Array((each, atoms), s32, atoms)), (zeros(f32, atoms, 4),), (atoms, each),
               (atoms // 128, 1, 1), 128)  # fmt: skip
    wide, steps, ctas = (1024, 16, SMS) if whole else (64, 3, 2)
    grid = 8 * ctas, wide
    made = case("nvcc_relaxed", "stencil", "brought", "relaxed", (floats(*grid),),
                (zeros(f32, *grid), zeros(f32, *grid), zeros(u32, 1)), (wide, steps), (ctas, 1, 1), 512)  # fmt: skip
    yield replace(made, clusters=ctas)
    columns = 131072 if whole else 1024
    yield case("nvcc_hadamard", "transform", "brought", "hadamard", (floats(128, columns),),
               (zeros(f32, 128, columns),), (columns,), (columns // 1024, 1, 1), 1024)  # fmt: skip


def arithmetic(million: int) -> Iterator[Case]:
    whole = million == MILLION
    side = 2048 if whole else 64
    yield case("nvcc_bilateral", "stencil", "brought", "bilateral", (floats(side, side),), (zeros(f32, side, side),),
               (side, side, 0.05, 0.5), (side // 32, side // 8, 1), (32, 8))  # fmt: skip
    matrices = 16384 if whole else 8
    yield case("nvcc_factored", "arithmetic", "brought", "factored", (floats(matrices, 16, 16),),
               (zeros(f32, matrices, 16, 16),), (), (matrices // 4, 1, 1), 128)  # fmt: skip
    ctas, steps = (1024, 256) if whole else (2, 8)
    yield case("nvcc_simulated", "arithmetic", "brought", "simulated", (), (zeros(f32, ctas),),
               (steps, -0.0002, 0.02, 12345), (ctas, 1, 1), 256)  # fmt: skip
    side, most, ctas = (2048, 255, 528) if whole else (64, 50, 2)
    yield case("nvcc_queued_picture", "persistent", "brought", "queued_picture", (),
               (zeros(u32, 2), zeros(u8, side, side)), (side, side * side // 256, most), (ctas, 1, 1),
               256)  # fmt: skip
    count = million
    doubles = Array((count,), f64)
    yield case("nvcc_orbits", "arithmetic", "brought", "orbits", (doubles, doubles), (zeros(f64, count),), (),
               (count // 256, 1, 1), 256)  # fmt: skip
    queries, points = (16384, 4096) if whole else (128, 256)
    yield case("nvcc_nearest", "sort", "brought", "nearest", (floats(queries, 2), floats(points, 2)),
               (zeros(f32, queries, 8), zeros(s32, queries, 8)), (points,), (queries // 128, 1, 1), 128)  # fmt: skip


def products(million: int) -> Iterator[Case]:
    size = 4096 if million == MILLION else 128
    square = Array((size, size), f16)
    yield case("nvcc_half_product", "product", "brought", "half_product", (square, square), (zeros(f16, size, size),),
               (size, size), (size // 128, size // 128, 1), 256, 4 * 2 * (128 * 40 + 32 * 136),
               flops=2.0 * size**3)  # fmt: skip
    size = 2048 if million == MILLION else 64
    yield case("nvcc_tf32_product", "product", "brought", "tf32_product", (floats(size, size),) * 2,
               (zeros(f32, size, size),), (size, size), (size // 64, size // 64, 1), 128,
               flops=2.0 * size**3)  # fmt: skip


def rings(million: int) -> Iterator[Case]:
    whole = million == MILLION
    ctas, rows = (SMS, 33 * SMS) if whole else (2, 8)
    yield Case("logarithms_of_sums", "reduction", lambda: logarithms_of_sums(4096, ctas), (floats(rows, 4096),),
               (zeros(f32, rows),))  # fmt: skip
    high, wide = (2112, 4096) if whole else (32, 128)
    yield Case("edges_by_boxes", "stencil", lambda: edges_by_boxes(ctas), (floats(high, wide),),
               (zeros(f32, high, wide),))  # fmt: skip
    m, n, k = (2048, 5632, 2048) if whole else (128, 128, 128)
    yield Case("gated_product", "product", lambda: gated_product(4), (halves(m, k), halves(n, k), halves(n, k)),
               (zeros(halves(1).dtype, m, n),), flops=math.prod((4.0, m, n, k)))  # fmt: skip
