"""The attention kernels of the zoo: forward in 16 and 8 bits, with a window and with packed sequences, decode from
pages, and the gradients.

Rings of two stages wrap around, the last tiles are partly out of bounds, and several CTAs of decode share a head.

The forward kernel contains the code of a step several times: for tiles at the diagonal, for an odd number of full
tiles, and for pairs of them. Its problems have blocks that end in each of these, with enough tiles to start each step
at either stage and to refill the stage that it read within the block. They also have blocks of one tile, before which
few waits have happened. One CTA computes them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from warploom.kernels.hopper import (
    attention,
    attention_backward,
    attention_decode,
)
from warploom.kernels.hopper.attention_backward_config import BackwardConfig
from warploom.kernels.hopper.attention_config import Attention, Config
from warploom.kernels.hopper.attention_decode_config import Decode, decode_config
from warploom.runtime import H200
from warploom.types import e4m3

NARROW = Attention(head_dim=64, value_dim=64)
SCALE = 64**-0.5
STEEP = 16
"""Factor of the queries, so that maxima grow and O is rescaled."""
LOG2_E = math.log2(math.e)


def kernels() -> Iterator[tuple[str, Any, tuple[Any, ...], Any]]:
    """Name, kernel, function that makes its arguments, machine."""
    of = Decode(head_dim=64, value_dim=64, paged=True)
    config = replace(decode_config(of, 16, 16), stages=2, exchange_columns=64)
    paged = partial(decode, config.block_elements(of))
    yield "attention_decode", attention_decode.build(of, config), (paged,), H200(sms=3)
    backward = BackwardConfig(tile_m=64)
    yield "attention_backward", attention_backward.build(NARROW, backward), (gradients,), H200(sms=2)
    for name, given in (("attention_forward", NARROW), ("attention_e4m3", replace(NARROW, dtype=e4m3))):
        tiled = Config(tile_n=32, key_stages=2, value_stages=2, promoted_columns=given.columns if given.fp8 else 0)
        kernel, problems = attention.build(given, tiled), ((3, 140), (3, 120), (3, 50), (5, 20))
        yield name, kernel, tuple(partial(forward, given, *problem) for problem in problems), H200(sms=1)
        given = replace(given, window_right=True)
        kernel, ends = attention.build(given, tiled), ((3, 200, 165), (2, 80, 15), (3, 60, 35), (5, 20, 20))
        yield f"{name}_causal", kernel, tuple(partial(forward, given, *problem) for problem in ends), H200(sms=1)
    yield from edges()


def edges() -> Iterator[tuple[str, Any, tuple[Any, ...], Any]]:
    """Forward kernels with a masked edge on either side, and with packed sequences."""
    tiled = Config(tile_n=32, key_stages=2, value_stages=2)
    given = replace(NARROW, window_right=True, window_left=True)
    windows = (
        (3, 300, 265, 33), (3, 300, 265, 97), (3, 330, 265, 65), (2, 80, 15, -30), (5, 20, 20, -99), (3, 140, 80, -130),
    )  # fmt: skip
    problems = tuple(partial(forward, given, *problem) for problem in windows)
    yield "attention_window", attention.build(given, tiled), problems, H200(sms=1)
    given = replace(NARROW, window_right=True, varlen=True)
    lengths = (
        ((100, 200), (130, 130), (20, 20)),
        ((64, 100), (60, 140), (0, 30), (3, 1)),
        ((128, 90),) * 3,
        ((20, 60),),
    )
    problems = tuple(partial(sequences, some) for some in lengths)
    yield "attention_varlen", attention.build(given, tiled), problems, H200(sms=1)


def sequences(lengths: tuple[tuple[int, int], ...]) -> tuple[Any, ...]:
    """Queries and keys of each sequence, for two heads; the last query sees the last key."""
    q_ends, k_ends = (np.cumsum([each[at] for each in lengths]).astype(np.int32) for at in (0, 1))
    q, k, v = (normal(1, int(ends[-1]), 2, 64) for ends in (q_ends, k_ends, k_ends))
    return STEEP * q, k, v, q_ends, k_ends, SCALE * LOG2_E, 1, 0


def forward(of: Attention, heads: int, keys: int, *last: int) -> tuple[Any, ...]:
    """100 queries per head: one block, partly out of bounds. last: query i sees keys up to i + last, then those from
    i + first on."""
    dtype = ml_dtypes.float8_e4m3fn if of.fp8 else ml_dtypes.bfloat16
    q, k, v = (normal(1, rows, heads, 64, dtype=dtype) for rows in (100, keys, keys))
    return STEEP * q, k, v, SCALE * LOG2_E, 1, *([1.0] if of.fp8 else []), *last


def normal(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def decode(block: int) -> tuple[Any, ...]:
    """Sequences of 9, 3 and 1 tiles; three CTAs, so that two share the first sequence."""
    pages = np.random.default_rng(0).permutation(48).reshape(3, 16)
    pages = np.concatenate([pages, pages], 1)[:, :36].astype(np.int32)
    keys = normal(48, 16, 1, 64)
    lengths = np.array([500, 150, 1], np.int32)
    memory = np.zeros((6, block), np.float32), np.zeros(8, np.uint32)
    return normal(3, 1, 16, 64), keys, keys.copy(), lengths, pages, *memory, SCALE, 1


def gradients() -> tuple[Any, ...]:
    """130 queries and 200 keys of one head: three tiles, the last with few rows, and two blocks of keys, which add to
    the same sums."""
    rows = np.full((1, 1, 256), np.inf, np.float32)
    rows[..., :130] = 8.0
    delta = np.zeros((1, 1, 256), np.float32)
    return (
        normal(1, 130, 1, 64), normal(1, 200, 1, 64), normal(1, 200, 1, 64), normal(1, 130, 1, 64), rows, delta,
        np.full((1, 1, 3 * 64 * 64), np.nan, np.float32), np.zeros(12, np.uint32), SCALE, SCALE, 1,
    )  # fmt: skip
