"""Decode attention in float64, and caches whose free places hold NaN."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import warploom


@dataclass(frozen=True)
class Cache:
    """Queries (B, R, H, D) of sequences of these lengths, and what they attend to.

    Attributes:
        queries, heads, dim: R; H and G; D and E.
        page: keys of a page; 0 for one place for each sequence.
        fp8_kv: k and v are e4m3.
        options: `attention_decode`'s.
    """

    lengths: tuple[int, ...] = (130, 33)
    queries: int = 1
    heads: tuple[int, int] = (4, 2)
    dim: tuple[int, int] = (64, 64)
    dtype: Any = ml_dtypes.bfloat16
    page: int = 0
    fp8_kv: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def arrays(self, seed: int = 0) -> dict[str, np.ndarray]:
        """q, and k and v of all sequences as they are read, (B, T, G, D), NaN behind their ends."""
        draw = np.random.default_rng(seed)
        most, (heads, kv_heads), (dim, value_dim) = max(self.lengths) + 3, self.heads, self.dim
        shapes = {"q": (self.queries, heads, dim), "k": (most, kv_heads, dim), "v": (most, kv_heads, value_dim)}
        made = {name: draw.standard_normal((len(self.lengths), *shape)) for name, shape in shapes.items()}
        for row, length in enumerate(self.lengths):
            made["k"][row, length:] = made["v"][row, length:] = np.nan
        cached = ml_dtypes.float8_e4m3fn if self.fp8_kv else self.dtype
        return {name: array.astype(self.dtype if name == "q" else cached) for name, array in made.items()}

    def paged(self, k: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
        """The same keys and values in pages that are scattered among others, and their table."""
        count, most, page = len(self.lengths), k.shape[1], self.page
        width = -(-most // page)
        table = np.random.default_rng(7).permutation(count * width + 3)[: count * width].reshape(count, width)
        pools = [np.full((count * width + 3, page, *array.shape[2:]), np.nan, array.dtype) for array in (k, v)]
        for pool, array in zip(pools, (k, v), strict=True):
            padded = np.full((count, width * page, *array.shape[2:]), np.nan, array.dtype)
            padded[:, :most] = array
            pool[table] = padded.reshape(count, width, page, *array.shape[2:])
        used = np.arange(width) * page < np.array(self.lengths)[:, None]
        return {"k": pools[0], "v": pools[1], "table": np.where(used, table, -9).astype(np.int32)}

    def call(self, **how: Any) -> tuple[np.ndarray, np.ndarray]:
        """What `attention_decode` gives in the emulator, checked; `how`: settings of the emulator."""
        given = self.arrays()
        if self.page:
            given |= self.paged(given["k"], given["v"])
        with warploom.config.override(emulator={"check": True, **how}):
            out, lse = warploom.attention_decode(
                lengths=np.array(self.lengths, np.int32), layout="bshd", return_lse=True, **given, **self.options
            )
        return np.asarray(out, np.float64), lse

    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """(O, LSE) in float64."""
        q, k, v = (array.astype(np.float64) for array in self.arrays().values())
        for array, name in ((k, "k_scale"), (v, "v_scale")):
            if name in self.options:
                array *= np.broadcast_to(self.options[name], (k.shape[0], k.shape[2]))[:, None, :, None]
        group, causal = self.heads[0] // self.heads[1], self.options.get("causal", True)
        left, sinks, cap = (self.options.get(name) for name in ("window", "sinks", "softcap"))
        out = np.zeros((*q.shape[:3], self.dim[1]))
        lse = np.full((q.shape[0], q.shape[2], q.shape[1]), -np.inf)
        for row, query, head in np.ndindex(*q.shape[:3]):
            stop = self.lengths[row] - (self.queries - 1 - query if causal else 0)
            seen = slice(0 if left is None else max(0, stop - 1 - left), max(0, stop))
            scores = k[row, seen, head // group] @ q[row, query, head] * self.options.get("scale", self.dim[0] ** -0.5)
            scores = scores if cap is None else cap * np.tanh(scores / cap)
            every = scores if sinks is None else np.append(scores, np.float64(sinks[head]))
            if every.size and np.isfinite(every.max()):
                lse[row, head, query] = np.logaddexp.reduce(every)
                out[row, query, head] = np.exp(scores - lse[row, head, query]) @ v[row, seen, head // group]
        return out, lse
