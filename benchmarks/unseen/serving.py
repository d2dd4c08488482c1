"""Parts of a model server by nvcc and Triton (`ptx/serving.cu`, `ptx/serving_triton.py`), predicted before they ran:
batched products, weights of four bits, a step of a radix sort, a depthwise convolution, rows of a table with a norm,
sums over clusters, decoding with pages, running sums, a product with an activation, a softmax's gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from warploom.types import bf16, f16, f32, s32, u8, u32

from .case import Array, Case
from .elementwise import MILLION
from .layers import floats, halves, zeros
from .texts import case


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    batch = 4096 if whole else 2
    yield case("nvcc_batched", "product", "serving", "batched", (halves(batch, 64, 64),) * 2,
               (zeros(bf16, batch, 64, 64),), (), (batch, 1, 1), 128, flops=2.0 * batch * 64**3)  # fmt: skip
    n, k = (14336, 4096) if whole else (64, 512)
    yield case("nvcc_four_bit_product", "product", "serving", "four_bit_product",
               (halves(16, k), Array((n, k // 2), u8, 256), floats(k // 128, n)), (zeros(bf16, 16, n),), (n, k),
               (n // 64, 1, 1), 128, flops=2.0 * 16 * n * k)  # fmt: skip
    count = 8 * million
    yield case("nvcc_partition", "sort", "serving", "partition", (Array((count,), u32, 1 << 31),),
               (zeros(u32, 16), zeros(u32, 16, count // 8)), (8, count // 8), (count // 1024, 1, 1), 256)  # fmt: skip
    planes, side = (1024, 128) if whole else (1, 64)
    yield case("nvcc_depthwise", "stencil", "serving", "depthwise", (floats(planes, side, side), floats(256, 49)),
               (zeros(f32, planes, side, side),), (side, 256), (side // 64, side // 16, planes), 256)  # fmt: skip
    tokens, table, length = (16384, 65536, 2048) if whole else (16, 64, 8)
    made = case("nvcc_embedded", "gather", "serving", "embedded",
                (halves(table, 1024), halves(length, 1024), Array((tokens,), s32, table), floats(1024)),
                (zeros(bf16, tokens, 1024),), (length,), (tokens // 8, 1, 1), 256)  # fmt: skip
    yield replace(made, moved=2 * 2 * tokens * 1024)  # the rows that are asked for, and the result
    ctas, rows = (528, 32) if whole else (4, 8)
    yield case("nvcc_cluster_columns", "cluster", "serving", "cluster_columns", (floats(ctas * rows, 1024),),
               (zeros(f32, ctas // 4, 1024),), (rows,), (ctas, 1, 1), 256)  # fmt: skip
    sequences, heads, length = (32, 8, 1024) if whole else (1, 1, 128)
    pages = sequences * length // 16
    cache = Array((pages, heads, 16, 128), f16)
    yield case("nvcc_paged", "attention", "serving", "paged",
               (Array((sequences, heads * 4, 128), f16), cache, cache, Array((pages,), s32, pages)),
               (zeros(f16, sequences, heads * 4, 128),), (length,), (heads, sequences, 1), 128)  # fmt: skip
    rows = 4096 if whole else 4
    yield case("nvcc_summed_rows", "scan", "serving", "summed_rows", (floats(rows, 4096),), (zeros(f32, rows, 4096),),
               (), (rows, 1, 1), 256)  # fmt: skip
    m, n, k = (2048, 4096, 1024) if whole else (128, 128, 256)
    yield case("triton_activated_product", "product", "triton_activated_product", "activated_product",
               (halves(m, k), halves(n, k), floats(n)), (zeros(bf16, m, n),), (n, k), (n // 128, m // 128, 1), 256,
               98304, flops=2.0 * m * n * k)  # fmt: skip
    rows, columns = (16384, 2000) if whole else (8, 504)
    yield case("triton_softmax_gradient", "softmax", "triton_softmax_gradient", "softmax_gradient",
               (halves(rows, columns),) * 2, (zeros(bf16, rows, columns),), (columns,), (rows, 1, 1), 128,
               16)  # fmt: skip
