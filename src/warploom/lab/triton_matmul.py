"""A matrix product in Triton for comparison: persistent, TMA loads and stores, software-pipelined.

Importing this module imports Triton. `contenders.Triton` times the configurations and keeps the fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .operands import Operands
from .work import GemmWork


@dataclass(frozen=True)
class Config:
    """A tile, its ring, and the height of a raster band in tiles.

    `flat`: the loops over tiles and over k are one pipeline. `halves`: D is stored in two halves, through half the
    shared memory, which leaves space for another stage.
    """

    m: int
    n: int
    k_bytes: int = 128
    stages: int = 4
    warps: int = 8
    group: int = 8
    flat: bool = True
    halves: bool = False

    def name(self) -> str:
        return f"{self.m}x{self.n}x{self.stages}_w{self.warps}_g{self.group}" + (
            ("_flat" if self.flat else "") + ("_halves" if self.halves else "")
        )


CONFIGS = (
    Config(128, 256, stages=4, halves=True), Config(128, 256, stages=4, halves=True, flat=False),
    Config(128, 256, stages=3), Config(256, 128, stages=4, halves=True), Config(256, 128, stages=3, flat=False),
    Config(128, 128, stages=4, warps=4), Config(128, 128, stages=5),
    Config(64, 256, stages=4, warps=4), Config(64, 128, stages=6, warps=4),
)  # fmt: skip
SMALL_CONFIGS = (
    Config(64, 64, stages=6, warps=4), Config(64, 128, stages=5, warps=4), Config(64, 32, stages=8, warps=4),
    Config(128, 64, stages=6, warps=4), Config(64, 64, k_bytes=256, stages=4, warps=4),
)  # fmt: skip


@triton.jit
def product(
    a_map, b_map, d_map, scale_a, scale_b, m, n, k,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
    FLAT: tl.constexpr, HALVES: tl.constexpr, SCALED: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """D (M, N) = A (M, K) B (N, K)ᵀ: each program takes every PROGRAMS-th tile, in bands of GROUP rows of tiles."""
    rows, columns = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    per_band = GROUP * columns
    for tile in tl.range(tl.program_id(0), rows * columns, PROGRAMS, flatten=FLAT):
        first = (tile // per_band) * GROUP
        height = min(rows - first, GROUP)
        inside = tile % per_band
        row = (first + inside % height) * TILE_M
        column = (inside // height) * TILE_N
        total = tl.zeros((TILE_M, TILE_N), tl.float32)
        for step in range(tl.cdiv(k, TILE_K)):
            a = a_map.load([row, step * TILE_K])
            b = b_map.load([column, step * TILE_K])
            total = tl.dot(a, b.T, total)
        if SCALED:
            total = total * (tl.load(scale_a) * tl.load(scale_b))
        if HALVES:
            pair = tl.permute(tl.reshape(total, (TILE_M, 2, TILE_N // 2)), (0, 2, 1))
            left, right = tl.split(pair)
            d_map.store([row, column], left.to(OUT))
            d_map.store([row, column + TILE_N // 2], right.to(OUT))
        else:
            d_map.store([row, column], total.to(OUT))


def configs(problem: GemmWork) -> tuple[Config, ...]:
    """The configurations that are tried for a problem."""
    return SMALL_CONFIGS if problem.m <= 64 else CONFIGS


def caller(problem: GemmWork, operands: Operands, config: Config, sms: int) -> Callable[[], Any]:
    """A call of one configuration; its first call compiles. sms: multiprocessors of the GPU."""
    tile_k = config.k_bytes // operands.a.element_size()
    maps = [
        TensorDescriptor.from_tensor(operands.a, [config.m, tile_k]),
        TensorDescriptor.from_tensor(operands.b, [config.n, tile_k]),
        TensorDescriptor.from_tensor(operands.out, [config.m, config.n // (2 if config.halves else 1)]),
    ]
    tiles = triton.cdiv(problem.m, config.m) * triton.cdiv(problem.n, config.n)
    resident = sms * (2 if config.warps == 4 and config.m * config.n <= 128 * 64 else 1)
    programs = min(resident, tiles)
    out = {"bf16": tl.bfloat16, "f16": tl.float16, "f32": tl.float32}[problem.out]
    scaled = bool(problem.scales)
    scale_a, scale_b = (operands.scale_a, operands.scale_b) if scaled else (operands.a, operands.b)

    def call() -> Any:
        return product[(programs,)](
            *maps, scale_a, scale_b, problem.m, problem.n, problem.k, TILE_M=config.m, TILE_N=config.n, TILE_K=tile_k,
            GROUP=config.group, PROGRAMS=programs, FLAT=config.flat, HALVES=config.halves, SCALED=scaled, OUT=out,
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip

    return call
