"""Attention in float64, and small kernels of it run in the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from warploom.kernels.hopper import attention
from warploom.kernels.hopper.attention_config import LOG2_E, Attention, Config, default, section
from warploom.lang import Kernel
from warploom.runtime.machine import H200
from warploom.types import bf16

NUMPY = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn}
SMALL = Config(tile_n=64, consumers=2, key_stages=2, value_stages=2)
"""Tiles of 64 keys, so that short sequences have several of them; rings that wrap around at once."""
VALUE = 1.25
"""Of keys with all the weight; it has few bits."""
EXACT = 1e-6
"""Largest error of O where it is such a value. If P alone were rounded, it would be 1e-3."""


def reference(
    q: Any, k: Any, v: Any, *, scale: float, last: int | None = None, first: int | None = None,
    cap: float | None = None, sinks: Any = None, hidden: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(O, LSE) of arrays (B, S, H, D) and (B, T, G, D); query i sees keys i + first to i + last, but none that is
    hidden from it, (B, H, S, T)."""
    q, k, v = (np.asarray(x, np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(0, 1, 3, 2) * scale
    if cap is not None:
        s = cap * np.tanh(s / cap)
    i, j = np.indices(s.shape[-2:])
    s[..., (j > i + last if last is not None else False) | (j < i + first if first is not None else False)] = -np.inf
    if hidden is not None:
        s[hidden] = -np.inf
    top = s.max(-1, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, np.asarray(sinks, np.float64)[:, None, None])
    base = np.where(np.isinf(top), 0, top)
    p = np.exp(s - base)
    total = p.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.asarray(sinks, np.float64)[:, None, None] - base)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = (np.log(total) + base)[..., 0]
        return (p / np.where(total > 0, total, 1) @ v).transpose(0, 2, 1, 3), lse


@lru_cache(maxsize=32)
def built(of: Attention, config: Config) -> Kernel:
    return attention.build(of, config)


@dataclass
class Run:
    """What came out of the emulator, and what should have."""

    report: Any
    out: np.ndarray
    lse: np.ndarray
    exact: np.ndarray
    exact_lse: np.ndarray

    @property
    def error(self) -> float:
        """Of O, relative to its norm."""
        return float(np.linalg.norm(self.out - self.exact) / max(np.linalg.norm(self.exact), 1e-30))

    @property
    def lse_error(self) -> float:
        """The largest of the logarithms' errors, relative to those above 1; inf where an infinite one is another."""
        finite = np.isfinite(self.exact_lse)
        if not np.array_equal(self.lse[~finite], self.exact_lse[~finite]):
            return float("inf")
        off = np.abs(self.lse[finite] - self.exact_lse[finite]) / np.maximum(1, np.abs(self.exact_lse[finite]))
        return float(off.max(initial=0))


def run(
    of: Attention, q: Any, k: Any, v: Any, config: Config | None = None, *, last: int | None = None,
    first: int | None = None, cap: float | None = None, sinks: Any = None, scales: Any = None, sms: int = 2,
    section_: int | None = None, **how: Any,
) -> Run:  # fmt: skip
    """Emulate a kernel on arrays (B, S, H, D). `scales`: of the heads of q, k and v, (B, H), (B, G) and (B, G).
    `section_`: heads that are computed next to each other, where they are to be fewer."""
    scale = of.head_dim**-0.5
    numbers: dict[str, Any] = {
        "scale": (cap or scale) * LOG2_E,
        "section": section_ or section(of, of.window_right, k.shape[1], q.shape[2], k.shape[2]),
        **({"inner": scale / cap} if cap is not None else {}),
        **({"v_factor": 1.0} if of.fp8 and not of.scaled else {}),
        **({"last": last} if last is not None else {}), **({"first": first} if first is not None else {}),
    }  # fmt: skip
    kernel = built(of, config or default(of))
    given = (q, k, v, *(scales or ()), sinks)
    report = kernel.emulate(*(x for x in given if x is not None), machine=H200(sms=sms), **numbers, **how)
    out, lse = (np.asarray(x, np.float64) for x in report.outputs[-2:])
    if scales is not None:
        q, k, v = (
            np.asarray(x, np.float64) * factor[:, None, :, None] for x, factor in zip((q, k, v), scales, strict=True)
        )
    return Run(report, out, lse, *reference(q, k, v, scale=scale, last=last, first=first, cap=cap, sinks=sinks))


def operands(
    queries: int, keys: int, of: Attention, heads: tuple[int, int] = (1, 1), batch: int = 1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v, standard normal."""
    draw = np.random.default_rng(seed)
    dtype = NUMPY[of.dtype.name]
    shapes = ((queries, heads[0], of.head_dim), (keys, heads[1], of.head_dim), (keys, heads[1], of.value_dim))
    q, k, v = (draw.standard_normal((batch, *shape)).astype(dtype) for shape in shapes)
    return q, k, v


def jumping(levels: tuple[int, ...], of: Attention, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores that are, as powers of 2, near one level in each tile; the first level in the tile that is read first."""
    draw = np.random.default_rng(1)
    keys, dtype = config.tile_n, NUMPY[of.dtype.name]
    q = np.zeros((1, config.tile_m, 1, of.head_dim))
    q[..., 0] = unit = 16 if of.fp8 else 1  # a level is beyond the largest e4m3
    k = draw.standard_normal((1, keys * len(levels), 1, of.head_dim)) * 0.1
    for tile, level in enumerate(reversed(levels)):
        k[0, keys * tile : keys * (tile + 1), 0, 0] = level / LOG2_E * of.head_dim**0.5 / unit
    means = np.repeat(np.arange(len(levels)), keys)[None, :, None, None]
    v = draw.standard_normal((1, keys * len(levels), 1, of.value_dim)) + means
    return q.astype(dtype), k.astype(dtype), v.astype(dtype)


def weighty(
    of: Attention, keys: int, levels: dict[int, float], values: dict[int, float] | None = None
) -> tuple[Any, Any, Any]:
    """q, k and v of 64 rows, whose scores of the keys in `levels` are 1 to 2 times as many powers of 2 as said there;
    those of the others are 0. Each row has another factor, so each P is rounded in another way."""
    q, k, v = (np.zeros_like(x) for x in operands(64, keys, of))
    q[0, :, 0, 0] = np.linspace(1, 2, 64)
    for key, level in levels.items():
        k[0, key, 0, 0] = level / LOG2_E * of.head_dim**0.5
        v[0, key] = VALUE if values is None else values[key]
    return q, k, v


__all__ = [
    "EXACT", "SMALL", "VALUE", "Attention", "Config", "bf16", "built", "jumping", "operands", "reference", "run",
    "weighty",
]  # fmt: skip
