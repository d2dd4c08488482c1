"""Texts from nvcc and Triton, of `tests/foreign`, on problems of a realistic size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from warploom.runtime.program import ArraySpec, Program
from warploom.types import bf16, f16, f32, u64

from .case import Array, Case
from .elementwise import MILLION
from .rows import ROOT

FOLDER = ROOT / "tests/foreign"
OWN = ROOT / "benchmarks/unseen/ptx"
INLINED = re.compile(r", function_name .*")
"""Part of a `.loc` that names a debug section; the texts lack the section, so ptxas would reject them."""


def program(
    file: str, entry: str, arrays: tuple[tuple[Array, str], ...], grid: tuple[int, int, int], block: tuple[int, int],
    dynamic_smem: int = 0,
) -> Program:  # fmt: skip
    """A text whose first parameters are arrays, each with its role, and the others scalars."""
    text = INLINED.sub("", ((FOLDER if "/" in file else OWN) / f"{file}.ptx").read_text())
    made = Program.from_text(text, entry=entry, grid=grid, block=(*block, 1), dynamic_smem=dynamic_smem)
    names = [parameter.name for parameter in made.parameters]
    specs = tuple(
        ArraySpec(name, array.shape, array.dtype, role) for name, (array, role) in zip(names, arrays, strict=False)
    )
    pointers = tuple(
        replace(one, kind="pointer", dtype=array.dtype, argument=one.name)
        for one, (array, _) in zip(made.parameters, arrays, strict=False)
    )
    others = made.parameters[len(arrays) :]
    parameters = pointers + tuple(replace(one, kind="scalar", dtype=one.dtype or u64) for one in others)
    return replace(made, arrays=specs, parameters=parameters, name=entry)


def case(
    name: str, kind: str, file: str, entry: str, inputs: tuple[Array, ...], outputs: tuple[Array, ...],
    values: tuple[Any, ...], grid: tuple[int, int, int], block: int | tuple[int, int], dynamic_smem: int = 0,
    flops: float = 0.0,
) -> Case:  # fmt: skip
    """file: a name with a slash is relative to tests/foreign. values: the scalars, in the text's order; the remaining
    parameters are addresses of memory that Triton may request."""
    roles = tuple((one, "in") for one in inputs) + tuple((one, "out") for one in outputs)

    def build() -> Program:
        return program(file, entry, roles, grid, (block, 1) if isinstance(block, int) else block, dynamic_smem)

    def scalars() -> Mapping[str, Any]:
        names = [parameter.name for parameter in build().parameters][len(roles) :]
        return dict(zip(names, (*values, *(0 for _ in names[len(values) :])), strict=True))

    return Case(name, kind, build, inputs, outputs, scalars, flops=flops)


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    rows, columns = (8192, 4096) if whole else (16, 512)
    table, made = Array((rows, columns), f32), Array((rows, columns), f32, "zeros")
    yield case(
        "nvcc_softmax", "softmax", "nvcc/rows_sm90a", "softmax", (table,), (made,), (columns,), (rows, 1, 1), 256
    )
    halves = Array((rows, columns), f16), Array((rows, columns), f16, "zeros")
    factors = Array((columns,), f32), Array((columns,), f32)
    yield case("nvcc_layer_norm", "layer norm", "nvcc/rows_sm90a", "layer_norm", (halves[0], *factors), (halves[1],),
               (rows, columns, 1e-5), (rows // 8, 1, 1), 256)  # fmt: skip
    size = 1024 if whole else 64
    square = Array((size, size), f32), Array((size, size), f32), Array((size, size), f32, "zeros")
    yield case("nvcc_simt_gemm", "product", "nvcc/simt_gemm_sm80", "single", square[:2], square[2:],
               (size, size, size, 1.0, 0.0), (size // 64, size // 64, 1), 256)  # fmt: skip
    size = 2048 if whole else 64
    pair = Array((size, size), bf16), Array((size, size), bf16)
    yield case("nvcc_ampere_gemm", "product", "nvcc/ampere_gemm_sm80", "gemm_bf16", pair,
               (Array((size, size), f32, "zeros"),), (size, size, size), (size // 64, size // 64, 1), 128,
               flops=2.0 * size**3)  # fmt: skip
    short = Array((rows, 777), f32), Array((rows, 777), f32, "zeros")
    yield case("triton_softmax", "softmax", "triton/row_softmax_sm90", "row_softmax", short[:1], short[1:], (777, 777),
               (rows, 1, 1), 128, 16)  # fmt: skip
    statistics = Array((rows,), f32, "zeros"), Array((rows,), f32, "zeros")
    yield case("triton_layer_norm", "layer norm", "triton/layer_norm_sm90", "layer_norm", (halves[0], *factors),
               (halves[1], *statistics), (columns, columns, 1e-5), (rows, 1, 1), 128, 512)  # fmt: skip
    tiles, k = (132, 2048) if whole else (2, 64)
    tall = Array((128 * tiles, k), bf16), Array((k, 128), bf16)
    yield case("triton_product", "product", "triton/product_sm90", "product", tall,
               (Array((128 * tiles, 128), bf16, "zeros"),), (k, k, 128, 128), (tiles, 1, 1), 128, 98304,
               flops=2.0 * 128 * tiles * 128 * k)  # fmt: skip
    heads, length = (64, 2048) if whole else (2, 128)
    shape = Array((heads, length, 64), f16)
    yield case("triton_attention", "attention", "triton/attention_sm90", "attention", (shape,) * 3,
               (Array((heads, length, 64), f16, "zeros"),), (length * 64, length, 0.125), (length // 64, heads, 1), 128,
               32768, flops=4.0 * heads * length * length * 64)  # fmt: skip
