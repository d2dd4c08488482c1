"""Split-K in Triton, for comparison at few rows: each program sums a share of K and adds it to D atomically.

D is cleared first, by a launch of its own, and the additions are in D's type: both belong to the method and are timed.
Importing this module imports Triton. `contenders.TritonSplitK` times the configurations and keeps the fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product as combinations
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .operands import Operands
from .work import GemmWork


@dataclass(frozen=True)
class Config:
    """A tile, its ring, and how many programs share K."""

    m: int
    n: int
    splits: int
    k_bytes: int = 256
    stages: int = 4
    warps: int = 4

    def name(self) -> str:
        return f"{self.m}x{self.n}_k{self.k_bytes}x{self.stages}_split{self.splits}"


SPLITS = (2, 4, 8, 16)
TILES = ((32, 256, 5), (64, 256, 4), (128, 128, 5))
"""Columns of a tile, and bytes of K and depth of its ring."""
LEAST_ROWS, MOST_ROWS, WARPGROUP_ROWS = 16, 128, 64
"""Rows of a tile: below `WARPGROUP_ROWS` Triton multiplies by mma.sync."""


def configs(problem: GemmWork) -> tuple[Config, ...]:
    """The configurations that are tried for a problem."""
    fewest = min(MOST_ROWS, max(LEAST_ROWS, triton.next_power_of_2(problem.m)))
    return tuple(
        Config(rows, n, splits, k_bytes, stages)
        for rows, (n, k_bytes, stages), splits in combinations(
            sorted({fewest, max(fewest, WARPGROUP_ROWS)}), TILES, SPLITS
        )
    )


@triton.jit(do_not_specialize=["m", "splits"])
def split_product(
    a_map, b_map, d, scale_a, scale_b, m, n, k, splits,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """D (M, N) += A (M, K) B (N, K)ᵀ over every `splits`-th tile of K, from the one of the program's index."""
    columns = tl.cdiv(n, TILE_N)
    row, column = (tl.program_id(0) // columns) * TILE_M, (tl.program_id(0) % columns) * TILE_N
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for step in range(tl.program_id(1), tl.cdiv(k, TILE_K), splits):
        a = a_map.load([row, step * TILE_K])
        b = b_map.load([column, step * TILE_K])
        total = tl.dot(a, b.T, total)
    if SCALED:
        total = total * (tl.load(scale_a) * tl.load(scale_b))
    rows, places = row + tl.arange(0, TILE_M), column + tl.arange(0, TILE_N)
    inside = (rows[:, None] < m) & (places[None, :] < n)
    at = d + rows[:, None].to(tl.int64) * n + places[None, :]
    tl.atomic_add(at, total.to(d.dtype.element_ty), mask=inside, sem="relaxed")


def caller(problem: GemmWork, operands: Operands, config: Config) -> Callable[[], Any]:
    """A call of one configuration, two launches; its first call compiles."""
    tile_k = config.k_bytes // operands.a.element_size()
    a_map = TensorDescriptor.from_tensor(operands.a, [config.m, tile_k])
    b_map = TensorDescriptor.from_tensor(operands.b, [config.n, tile_k])
    tiles = triton.cdiv(problem.m, config.m) * triton.cdiv(problem.n, config.n)
    scaled = bool(problem.scales)
    scale_a, scale_b = (operands.scale_a, operands.scale_b) if scaled else (operands.a, operands.b)
    out = operands.out

    def call() -> Any:
        out.zero_()
        return split_product[(tiles, config.splits)](
            a_map, b_map, out, scale_a, scale_b, problem.m, problem.n, problem.k, config.splits, TILE_M=config.m,
            TILE_N=config.n, TILE_K=tile_k, SCALED=scaled, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip

    return call
