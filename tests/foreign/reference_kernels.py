"""The launches of the texts in `reference/`, as its README states them: products of row-major matrices.

`Large` kernels work through a list of output tiles, `Decode` kernels take one column block of W per CTA. `arguments`
takes the matrices of a launch as NumPy arrays or torch tensors, on any machine; `problem` makes some at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from warploom.runtime.program import Program
from warploom.runtime.tensor_map import TensorMap

FOLDER = Path(__file__).parent / "reference"
BF16, E4M3 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
FIRST_TILES = 132
"""How many entries of the tile list travel in the parameter `p_first`."""
Order = Callable[[int, int], Iterable[tuple[int, int]]]
"""(rows, columns of the grid of tiles) -> row and column of each, in the order of the launch."""


def by_columns(rows: int, columns: int) -> Iterable[tuple[int, int]]:
    """Column by column."""
    return ((i, j) for j in range(columns) for i in range(rows))


def beside(array: Any, values: np.ndarray) -> Any:
    """The values in the memory that an array lies in: NumPy's own, or that of a torch tensor's device."""
    if isinstance(array, np.ndarray):
        return values
    import torch

    return torch.from_numpy(values).to(array.device)


def mapped(array: Any, box: tuple[int, int]) -> TensorMap:
    """The tensor map of a matrix, as the prototypes made it."""
    return TensorMap.tiled(array, box=box, swizzle="128B", l2_promotion="128B")


class Text:
    """A text in the folder. `name`: its file's stem."""

    name: str

    @property
    def text(self) -> str:
        return (FOLDER / f"{self.name}.ptx").read_text()

    @property
    def pdl(self) -> bool:
        """True if it is to be launched while the kernel before it ends."""
        return "griddepcontrol.wait" in self.text

    def program(self, **launch: Any) -> Program:
        """The text with a launch's grid, block and shared memory; its arguments are its parameters."""
        return Program.from_text(self.text, name=self.name, pdl=self.pdl, **launch)


@dataclass(frozen=True)
class Problem:
    """One launch made ready: `arguments` in parameter order, `output` written in place, `expected` in float64."""

    arguments: list[Any]
    launch: dict[str, Any]
    output: np.ndarray
    expected: np.ndarray


@dataclass(frozen=True)
class Large(Text):
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
    def unit(self) -> tuple[int, int]:
        """Rows and columns of a cluster's output tile."""
        return self.tile[0] * self.cluster[0], self.tile[1] * self.cluster[1]

    def tiles(self, m: int, n: int, order: Order = by_columns) -> list[int]:
        """The tile list `m | n << 16` in units of a cluster's tile."""
        rows, columns = self.unit
        return [i | j << 16 for i, j in order(-(-m // rows), -(-n // columns))]

    def padded(self, m: int) -> int:
        """Rows of A's factors by blocks: whole tiles, for a CTA copies a tile's."""
        return -(-m // self.tile[0]) * self.tile[0]

    def launch(self, clusters: int) -> dict[str, Any]:
        """Grid, block and shared memory. clusters: as many as there are tiles at most, for each begins with one."""
        ctas = clusters * self.cluster[0] * self.cluster[1]
        return {"grid": (ctas, 1, 1), "block": (self.threads, 1, 1), "dynamic_smem": self.shared}

    def arguments(
        self, a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None, *, order: Order = by_columns
    ) -> list[Any]:
        """The parameters, in order, of c (m, n) = a (m, k) b (n, k)ᵀ.

        scale_a, scale_b: f32; of tensors one element each, of blocks (k / 128, `padded(m)`) and (n / 128, k / 128).
        """
        (m, k), n, step = a.shape, b.shape[0], self.tile[2]
        steps = -(-k // step)
        tiles = np.array(self.tiles(m, n, order), np.int32)
        first = np.zeros(FIRST_TILES, np.int32)
        first[: len(tiles)] = tiles[:FIRST_TILES]
        values: list[Any] = [
            mapped(a, (step, self.boxes[0])),
            mapped(b, (step, self.boxes[1])),
            mapped(c, (64, 64)),
            beside(a, tiles),
            np.uint32(len(tiles)),
            np.uint32(steps),
            beside(a, np.zeros(16, np.int64)),
            first.view(np.uint8),
        ]
        if self.scales != "none":
            rows = self.padded(m) if self.scales == "block" else m
            values += [scale_a, scale_b, np.uint32(rows), np.uint32(steps)]
        return values

    def problem(self, m: int, n: int, k: int, clusters: int, seed: int = 0) -> Problem:
        """Random operands of a product and its launch by this many clusters."""
        random = np.random.default_rng(seed)
        a = random.standard_normal((m, k)).astype(self.dtype)
        b = random.standard_normal((n, k)).astype(self.dtype)
        c = np.full((m, n), np.nan, BF16)
        scales: list[np.ndarray] = []
        if self.scales == "block":
            steps = -(-k // 128)
            shapes = (steps, self.padded(m)), (-(-n // 128), steps)
            scales = [random.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes]
            expected = block_scaled(a, b, *scales)
        else:
            expected = a.astype(np.float64) @ b.astype(np.float64).T
        if self.scales == "tensor":
            scales = [np.array([0.5], np.float32), np.array([1.75], np.float32)]
            expected *= 0.5 * 1.75
        return Problem(self.arguments(a, b, c, *scales), self.launch(clusters), c, expected)


@dataclass(frozen=True)
class Decode(Text):
    """A kernel for few rows: y[m, n] = x[m, k] . w[n, k], 64 columns of y per CTA, k shared by `split` CTAs."""

    name: str
    rows: int
    split: int
    shared: int

    def launch(self, n: int) -> dict[str, Any]:
        """Grid, block and shared memory of a launch."""
        return {"grid": (n // 64 * self.split, 1, 1), "block": (160, 1, 1), "dynamic_smem": self.shared}

    def arguments(self, x: Any, w: Any, y: Any) -> list[Any]:
        """The parameters, in order, of y (m, n) = x (m, k) w (n, k)ᵀ, without factors."""
        (m, k), n = x.shape, w.shape[0]
        no_scale = [np.uint64(0), np.uint64(0), np.uint32(0), np.uint32(0)]
        sizes = [np.uint32(m), np.uint32(n), np.uint32(-(-k // 128))]
        return [mapped(w, (64, 64)), mapped(x, (64, self.rows)), y, *sizes, *no_scale]

    def problem(self, m: int, n: int, k: int, seed: int = 0) -> Problem:
        """Random operands of a product and its launch."""
        random = np.random.default_rng(seed)
        w = random.standard_normal((n, k)).astype(BF16)
        x = random.standard_normal((m, k)).astype(BF16)
        y = np.full((m, n), np.nan, BF16)
        expected = x.astype(np.float64) @ w.astype(np.float64).T
        return Problem(self.arguments(x, w, y), self.launch(n), y, expected)


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
