"""The launches of the texts in `reference/`, as its README states them: products of row-major matrices.

`Large` kernels work through a list of output tiles, `Decode` kernels take one column block of W per CTA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from warploom.runtime.tensor_map import TensorMap

FOLDER = Path(__file__).parent / "reference"
BF16, E4M3 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
FIRST_TILES = 132
"""How many entries of the tile list travel in the parameter `p_first`."""


@dataclass(frozen=True)
class Problem:
    """One launch made ready: `arguments` in parameter order, `output` written in place, `expected` in float64."""

    arguments: list[Any]
    launch: dict[str, Any]
    output: np.ndarray
    expected: np.ndarray


@dataclass(frozen=True)
class Large:
    """A kernel over a list of tiles.

    Attributes:
        tile: rows and columns of one CTA's output tile, and k elements of one step.
        cluster: CTAs along m and n.
        boxes: rows of the boxes of A and B.
        scales: "none", "tensor" (one factor for A, one for B), "block" (1 x 128 by 128 x 128).
        least_steps: fewest k-tiles: the loops test at their end and are entered with this many less one, or two.
    """

    name: str
    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    boxes: tuple[int, int]
    shared: int
    dtype: np.dtype = BF16
    scales: str = "none"
    threads: int = 384
    least_steps: int = 2

    @property
    def text(self) -> str:
        return (FOLDER / f"{self.name}.ptx").read_text()

    @property
    def unit(self) -> tuple[int, int]:
        """Rows and columns of a cluster's output tile."""
        return self.tile[0] * self.cluster[0], self.tile[1] * self.cluster[1]

    def tiles(self, m: int, n: int) -> list[int]:
        """The tile list `m | n << 16` in units of a cluster's tile, column by column."""
        rows, columns = self.unit
        return [i | j << 16 for j in range(-(-n // columns)) for i in range(-(-m // rows))]

    def problem(self, m: int, n: int, k: int, clusters: int, seed: int = 0) -> Problem:
        """Random operands of a product and its launch by this many clusters."""
        random = np.random.default_rng(seed)
        a = random.standard_normal((m, k)).astype(self.dtype)
        b = random.standard_normal((n, k)).astype(self.dtype)
        c = np.full((m, n), np.nan, BF16)
        tiles, step = self.tiles(m, n), self.tile[2]
        steps = -(-k // step)
        table = np.array(tiles, np.int32)
        first = np.zeros(FIRST_TILES, np.int32)
        first[: len(tiles)] = table[:FIRST_TILES]
        arguments: list[Any] = [
            TensorMap.tiled(a, box=(step, self.boxes[0]), swizzle="128B"),
            TensorMap.tiled(b, box=(step, self.boxes[1]), swizzle="128B"),
            TensorMap.tiled(c, box=(64, 64), swizzle="128B"),
            table,
            np.uint32(len(tiles)),
            np.uint32(steps),
            np.zeros(16, np.uint64),
            first.view(np.uint8),
        ]
        expected = a.astype(np.float64) @ b.astype(np.float64).T
        if self.scales == "tensor":
            scale_a, scale_b = np.array([0.5], np.float32), np.array([1.75], np.float32)
            expected *= 0.5 * 1.75
            arguments += [scale_a, scale_b, np.uint32(m), np.uint32(steps)]
        elif self.scales == "block":
            # One factor per row of A and 128 k, k outermost and the rows padded to whole tiles: a CTA copies a tile's.
            padded = -(-m // self.tile[0]) * self.tile[0]
            scale_a = random.uniform(0.5, 2, (steps, padded)).astype(np.float32)
            scale_b = random.uniform(0.5, 2, (-(-n // 128), steps)).astype(np.float32)
            expected = block_scaled(a, b, scale_a, scale_b)
            arguments += [scale_a, scale_b, np.uint32(padded), np.uint32(steps)]
        ctas = clusters * self.cluster[0] * self.cluster[1]
        launch = {"grid": (ctas, 1, 1), "block": (self.threads, 1, 1), "dynamic_smem": self.shared}
        return Problem(arguments, launch, c, expected)


@dataclass(frozen=True)
class Decode:
    """A kernel for few rows: y[m, n] = x[m, k] . w[n, k], 64 columns of y per CTA, k shared by `split` CTAs."""

    name: str
    rows: int
    split: int
    shared: int

    @property
    def text(self) -> str:
        return (FOLDER / f"{self.name}.ptx").read_text()

    def problem(self, m: int, n: int, k: int, seed: int = 0) -> Problem:
        random = np.random.default_rng(seed)
        w = random.standard_normal((n, k)).astype(BF16)
        x = random.standard_normal((m, k)).astype(BF16)
        y = np.full((m, n), np.nan, BF16)
        no_scale = [np.uint64(0), np.uint64(0), np.uint32(0), np.uint32(0)]
        arguments: list[Any] = [
            TensorMap.tiled(w, box=(64, 64), swizzle="128B"),
            TensorMap.tiled(x, box=(64, self.rows), swizzle="128B"),
            y, np.uint32(m), np.uint32(n), np.uint32(-(-k // 128)), *no_scale,
        ]  # fmt: skip
        expected = x.astype(np.float64) @ w.astype(np.float64).T
        launch = {"grid": (n // 64 * self.split, 1, 1), "block": (160, 1, 1), "dynamic_smem": self.shared}
        return Problem(arguments, launch, y, expected)


def block_scaled(a: np.ndarray, b: np.ndarray, scale_a: np.ndarray, scale_b: np.ndarray) -> np.ndarray:
    """The sum over blocks of 128 k of the blocks' products, each times its two factors; float64 (m, n)."""
    m, n = a.shape[0], b.shape[0]
    total = np.zeros((m, n))
    for block in range(scale_a.shape[0]):
        part = slice(block * 128, (block + 1) * 128)
        product = a[:, part].astype(np.float64) @ b[:, part].astype(np.float64).T
        columns = np.repeat(scale_b[:, block].astype(np.float64), 128)[:n]
        total += product * scale_a[block, :m, None].astype(np.float64) * columns
    return total


LARGE: Sequence[Large] = (
    Large("bf16_cooperative_128x256", (128, 256, 64), (2, 1), (128, 128), 229440),
    Large("bf16_pingpong_128x192", (128, 192, 64), (2, 1), (128, 96), 221264),
    Large("bf16_staggered_256x128", (256, 128, 64), (1, 2), (128, 128), 229440, least_steps=3),
    Large("bf16_staggered_256x192", (256, 192, 64), (1, 2), (128, 192), 221232, least_steps=3),
    Large("fp8_staggered_256x128", (256, 128, 128), (1, 2), (128, 128), 229504, E4M3, "tensor", least_steps=3),
    Large("fp8_pingpong_128x192", (128, 192, 128), (2, 1), (128, 96), 221312, E4M3, "tensor"),
    Large("fp8_block128_192x128", (192, 128, 128), (1, 1), (192, 128), 191616, E4M3, "block", 512, least_steps=1),
)
DECODE: Sequence[Decode] = (
    Decode("bf16_decode_m16", 16, 1, 225456),
    Decode("bf16_decode_m8_splitk2", 8, 2, 110688),
)
