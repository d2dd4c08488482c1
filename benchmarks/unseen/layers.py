"""Layers of models by nvcc and Triton (`ptx/layers.cu`, `ptx/layers_triton.py`), predicted before they ran:
optimisers, norms, gates, decoding, top-k, a recurrence, a convolution, dropout, sums of columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warploom.types import bf16, e4m3, f16, f32, s32

from .case import Array, Case
from .elementwise import MILLION
from .texts import case


def halves(*shape: int) -> Array:
    return Array(shape, bf16)


def floats(*shape: int) -> Array:
    return Array(shape, f32)


def zeros(dtype: Any, *shape: int) -> Array:
    return Array(shape, dtype, "zeros")


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    many = 4 * million
    yield case("nvcc_adamw", "elementwise", "layers", "adamw", (floats(many),) * 4, (zeros(f32, many),) * 3,
               (1e-3, 1e-2, 10.0, 1000.0), (many // 1024, 1, 1), 256)  # fmt: skip
    groups, size = (512, 16384) if whole else (4, 4096)
    yield case("nvcc_group_norm", "layer norm", "layers", "group_norm", (halves(groups, size), floats(32)),
               (zeros(bf16, groups, size),), (size, 32), (groups, 1, 1), 512)  # fmt: skip
    tokens = 64 if whole else 1
    yield case("nvcc_gated", "elementwise", "layers", "gated", (halves(tokens, 14336),) * 2,
               (zeros(bf16, tokens, 14336),), (), (tokens * 7, 1, 1), 256)  # fmt: skip
    tokens = 256 if whole else 2
    yield case("nvcc_added_norm", "layer norm", "layers", "added_norm", (halves(tokens, 4096),) * 2 + (halves(4096),),
               (zeros(bf16, tokens, 4096),) * 2, (4096,), (tokens, 1, 1), 512)  # fmt: skip
    m, k = (8192, 4096) if whole else (32, 512)
    yield case("nvcc_bytes_times_vector", "matrix times vector", "layers", "bytes_times_vector",
               (Array((m, k), e4m3), Array((k,), f16)), (zeros(f32, m),), (k,), (m // 16, 1, 1), 256)  # fmt: skip
    heads, length, parts = (64, 4096, 8) if whole else (2, 64, 2)
    cache = Array((heads, length, 128), f16)
    yield case("nvcc_decoded", "attention", "layers", "decoded", (Array((heads, 128), f16), cache, cache),
               (zeros(f32, heads, parts, 128), zeros(f32, heads, parts)), (length,), (parts, heads, 1),
               128)  # fmt: skip
    rows = 16384 if whole else 8
    yield case("nvcc_top_eight", "sort", "layers", "top_eight", (floats(rows, 1024),),
               (zeros(f32, rows, 8), zeros(s32, rows, 8)), (), (rows // 4, 1, 1), 128)  # fmt: skip
    batch, length, channels = (8, 512, 2048) if whole else (1, 16, 256)
    yield case("nvcc_selective_scan", "recurrence", "layers", "selective_scan",
               (floats(batch, length, channels),) * 2 + (floats(channels),), (zeros(f32, batch, length, channels),),
               (length, channels), (batch * channels // 128, 1, 1), 128)  # fmt: skip
    images, side = (16, 64) if whole else (1, 16)
    yield case("nvcc_convolution", "stencil", "layers", "convolution",
               (floats(images, side, side, 32), floats(9, 32, 32)), (zeros(f32, images, side, side, 32),), (side,),
               (side // 8, side // 8, images), 256)  # fmt: skip
    bags, table = (16384, 262144) if whole else (16, 256)
    yield case("nvcc_bags", "gather", "layers", "bags", (floats(table, 128), Array((bags, 16), s32, table)),
               (zeros(f32, bags, 128),), (), (bags // 8, 1, 1), 256)  # fmt: skip
    length, heads = (2048, 32) if whole else (8, 4)
    yield case("nvcc_heads_first", "transpose", "layers", "heads_first", (halves(2, length, heads, 64),),
               (zeros(bf16, 2, heads, length, 64),), (length, heads), (length * heads // 16, 1, 1), 256)  # fmt: skip
    batch = 2048 if whole else 4
    yield case("nvcc_small_products", "product", "layers", "small_products", (floats(batch, 32, 32),) * 2,
               (zeros(f32, batch, 32, 32),), (), (batch, 1, 1), 256)  # fmt: skip
    rows, columns = (8192, 4096) if whole else (64, 256)
    yield case("triton_column_sums", "reduction", "triton_column_sums", "column_sums", (halves(rows, columns),),
               (zeros(f32, columns),), (rows, columns), (columns // 128, 16 if whole else 1, 1), 128, 1024)  # fmt: skip
    count = 16 * million
    yield case("triton_dropped", "elementwise", "triton_dropped", "dropped", (floats(count),), (zeros(f32, count),),
               (count, 7), (count // 1024, 1, 1), 128)  # fmt: skip
    n, k = (4096, 4096) if whole else (64, 1024)
    yield case("triton_sixteen_rows", "product", "triton_sixteen_rows", "sixteen_rows",
               (halves(16, k), halves(n, k)), (zeros(bf16, 16, n),), (n, k), (n // 32, 1, 1), 128, 73728,
               flops=2.0 * 16 * n * k)  # fmt: skip
    size = 4096 if whole else 256
    square = Array((size, size), e4m3)
    yield case("triton_eight_bit_product", "product", "triton_eight_bit_product", "eight_bit_product",
               (square, square), (zeros(bf16, size, size),), (size, size), (size // 256, size // 128, 1), 256, 196608,
               flops=2.0 * size**3)  # fmt: skip
    heads, length = (32, 4096) if whole else (1, 256)
    shape = halves(heads, length, 128)
    yield case("triton_causal_attention", "attention", "triton_causal_attention", "causal_attention", (shape,) * 3,
               (zeros(bf16, heads, length, 128),), (length,), (length // 128, heads, 1), 256, 98304,
               flops=2.0 * heads * length * length * 128)  # fmt: skip
