"""What random calls of attention are made of: choices, arrays and where they lie in memory, masks and functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Tensor = torch.Tensor
LENGTHS = {
    "small": (1, 2, 9, 63, 64, 65, 129),
    "large": (1, 2, 17, 63, 64, 65, 127, 128, 129, 191, 193, 257, 300, 511, 513, 700, 1025),
}
MASKS = "full", "causal", "top-left", "left", "right", "window", "causal window"
DATA = "normal", "wide", "growing", "sink", "outliers", "hidden keys", "large", "tiny", "equal", "zeros"
MEMORY = "plain", "heads", "columns", "rows", "odd"
"""Contiguous; some heads of an array with more; some columns; every other row; at an address that TMA does not take."""
MOST = {torch.bfloat16: 3e38, torch.float16: 65504.0, torch.float8_e4m3fn: 448.0}


@dataclass
class Draw:
    """Random choices and numbers, the same on every device."""

    seed: int
    device: str
    size: str = "large"

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.numbers = torch.Generator().manual_seed(self.seed)

    def one_of(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def happens(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def length(self) -> int:
        return int(self.one_of(LENGTHS[self.size]))

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.numbers, dtype=torch.float64).to(self.device)


def values(draw: Draw, data: str, dtype: torch.dtype, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """q, k and v as (B, H or G, rows, columns), in the type, with float64's numbers."""
    q, k, v = (draw.normal(*shape) for shape in shapes)
    along = torch.linspace(0, 1, max(1, k.shape[2]), dtype=torch.float64, device=draw.device)[
        None, None, : k.shape[2], None
    ]
    toward = torch.sign(draw.normal(q.shape[3]))
    if data == "wide":
        q = q * 64
    elif data == "growing":
        q, k = q * 0.5 + toward, k * 0.5 + toward * along * draw.one_of((1.0, 4.0, 12.0))
    elif data == "sink":
        q, k[:, :, :1] = q + toward, k[:, :, :1] + 6 * toward
    elif data == "outliers":
        for x in (q, k):
            x[..., :: max(1, x.shape[3] // 3)] *= 20
    elif data == "hidden keys" and k.shape[2] > 1 and dtype is not torch.float8_e4m3fn:
        q[..., 0] = q[..., 0].abs() + 0.5
        k[:, :, draw.one_of((1, 2)) :: draw.one_of((2, 3, 70)), 0] = -torch.inf
    elif data == "large":
        v = v.clamp(-4, 4) * (MOST[dtype] / 5 if dtype is torch.float16 else 1e30 if dtype is torch.bfloat16 else 100)
    elif data == "tiny":
        v = v * {torch.bfloat16: 1e-15, torch.float16: 1e-5, torch.float8_e4m3fn: 0.02}[dtype]
    elif data == "equal":
        k = k[:, :, :1].expand_as(k).clone()
    elif data == "zeros":
        q = q * 0
    if dtype is torch.float8_e4m3fn:
        q, k, v = (x.clamp(-448, 448) for x in (q, k, v))
    return [x.to(dtype) for x in (q, k, v)]


def placed(x: Tensor, memory: str, layout: str) -> Tensor:
    """The same numbers elsewhere in memory; the result has the layout, `x` is "bhsd"."""
    seen = x.transpose(1, 2) if layout == "bshd" else x
    shape = list(seen.shape)
    heads = 2 if layout == "bshd" else 1
    where: list[Any] = [slice(None)] * 4
    if memory == "heads":
        shape[heads], where[heads] = shape[heads] + 3, slice(1, 1 + shape[heads])
    elif memory == "columns":
        shape[3], where[3] = shape[3] + 16, slice(0, shape[3])
    elif memory == "rows":
        shape[3 - heads], where[3 - heads] = 2 * shape[3 - heads], slice(0, None, 2)
    elif memory == "odd":
        shape[3], where[3] = shape[3] + 1, slice(1, None)
    raw = torch.uint8 if x.element_size() == 1 else torch.int16
    base = torch.zeros(shape, dtype=raw, device=x.device).view(x.dtype)
    base[tuple(where)].view(raw).copy_(seen.view(raw))
    return base[tuple(where)]


def hidden(mask: str, edges: tuple[int, int], queries: int, keys: int, device: str) -> tuple[Tensor, dict[str, Any]]:
    """The pairs that do not see each other, and the options that say so."""
    offset = 0 if mask == "top-left" else keys - queries
    left, right = edges
    causal = mask in ("causal", "top-left", "causal window")
    left_, right_ = (left if mask in ("left", "window", "causal window") else None,
                     0 if causal else right if mask in ("right", "window") else None)  # fmt: skip
    i = torch.arange(queries, device=device)[:, None] + offset
    j = torch.arange(keys, device=device)[None]
    found = torch.zeros(queries, keys, dtype=torch.bool, device=device)
    found |= j < i - left_ if left_ is not None else False
    found |= j > i + right_ if right_ is not None else False
    options: dict[str, Any] = {"causal": mask if mask == "top-left" else True} if causal else {}
    if mask in ("left", "right", "window"):
        options["window"] = (left_, right_)
    return found, options | ({"window": left_} if mask == "causal window" else {})


# -- functions ---------------------------------------------------------------------------------------------------------


def score_function(draw: Draw, name: str, heads: int) -> tuple[Callable[..., Any], float]:
    """A function of scores, and the error of what it computes approximately."""
    if name == "slope":
        slope = torch.rand(heads, generator=draw.numbers).to(draw.device)
        return lambda s, b, h, i, j: s + slope[h] * (j - i), 0.0
    if name == "table":
        table = torch.randn(heads, 31, generator=draw.numbers).to(draw.device)
        return lambda s, b, h, i, j: s + table[h, torch.clamp(i - j, -15, 15) + 15], 0.0
    if name == "tanh":
        return lambda s, b, h, i, j: 8 * torch.tanh(s / 8), 8 * 2.0**-10
    if name == "some":
        return lambda s, b, h, i, j: torch.where(j % 7 == 3, -float("inf"), s), 0.0
    return lambda s, b, h, i, j: torch.where(i - j > 20, s * 0.5, s), 0.0


def mask_function(draw: Draw, queries: int, keys: int) -> Callable[..., Any]:
    """A function of masks."""
    name = draw.one_of(("documents", "offset", "some", "rows", "heads"))
    if name == "documents":
        longest = max(queries, keys)
        document = torch.arange(longest, dtype=torch.int32, device=draw.device) // draw.one_of((30, 64, 200))
        return lambda b, h, i, j: document[i] == document[j]
    if name == "offset":
        ahead = int(draw.one_of((-70, 0, 20)))
        return lambda b, h, i, j: i + ahead >= j
    if name == "some":
        return lambda b, h, i, j: (i + j) % 3 != 0
    if name == "rows":
        return lambda b, h, i, j: i % 5 != 2
    return lambda b, h, i, j: (h % 2 == 0) | (j <= i)
