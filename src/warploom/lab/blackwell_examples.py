"""A run of each kernel for Blackwell, for `warploom check warploom.kernels.blackwell.NAME`.

Sizes leave ragged edges, and elements are small integers, so that every sum is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from ..kernels.blackwell import attention, block_scaled, gemm, grouped, minimal, small_m, specialised
from ..kernels.blackwell.description import Config
from ..kernels.hopper.attention_config import Attention
from ..runtime import B200

Run = tuple[Any, tuple[Any, ...], Callable[..., None], dict[str, Any]]
SMALL = {"machine": B200(sms=8)}
"""Few multiprocessors, so that their CTAs have several tiles."""


def example(module: ModuleType) -> list[Run]:
    """(kernel, arguments, check, options of the emulator) of a kernel's module; nothing for another module."""
    made = MADE.get(module)
    return [made()] if made is not None else []


def _whole(*shape: int, dtype: Any = ml_dtypes.bfloat16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def _product(
    kernel: Any, m: int, n: int, k: int, *, dtype: Any = ml_dtypes.bfloat16, more: tuple[Any, ...] = ()
) -> Run:
    a, b = _whole(m, k, dtype=dtype), _whole(n, k, dtype=dtype, seed=1)
    return kernel, (a, b, *more), _equals(a.astype(np.float32) @ b.astype(np.float32).T), SMALL


def _equals(wanted: np.ndarray) -> Callable[..., None]:
    def check(*outputs: np.ndarray) -> None:
        np.testing.assert_array_equal(outputs[-1], wanted.astype(outputs[-1].dtype))

    return check


def _scaled() -> Run:
    """mxfp8 with scale factors of 1."""
    ones = tuple(np.full((2, 3, 512), 127, np.uint8) for _ in range(2))
    return _product(block_scaled.build(), 130, 136, 384, dtype=ml_dtypes.float8_e4m3fn, more=ones)


def _groups() -> Run:
    """70, no and 130 rows, each group with a matrix of 72 rows."""
    ends, a, b = np.array([70, 70, 200], np.int32), _whole(200, 136), _whole(3 * 72, 136, seed=1)
    pieces = [
        a[start:end].astype(np.float32) @ b[72 * group : 72 * group + 72].astype(np.float32).T
        for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]
    kernel = grouped.build(config=Config(128, 64, 4), limits="offsets")
    return kernel, (a, b, ends, np.zeros((200, 72), a.dtype)), _equals(np.concatenate(pieces)), SMALL


def _heads() -> Run:
    q, k, v = (_whole(1, rows, 2, 64, seed=rows) for rows in (130, 150, 151))
    v = v[:, :150].copy()
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(np.float32), k.astype(np.float32)) * 0.03
    weights = np.exp2(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v.astype(np.float32))

    def check(out: np.ndarray, *_: np.ndarray) -> None:
        np.testing.assert_allclose(out.astype(np.float32), wanted, atol=2e-2)

    kernel = attention.build(Attention(head_dim=64, value_dim=64))
    return kernel, (q, k, v, np.float32(0.03), np.uint32(1)), check, SMALL


MADE: dict[ModuleType, Callable[[], Run]] = {
    minimal: lambda: _product(minimal.build(), 200, 136, 136),
    specialised: lambda: _product(specialised.build(), 200, 136, 136),
    gemm: lambda: _product(gemm.build(), 260, 264, 200),
    small_m: lambda: _product(small_m.build(), 5, 136, 520),
    block_scaled: _scaled,
    grouped: _groups,
    attention: _heads,
}
