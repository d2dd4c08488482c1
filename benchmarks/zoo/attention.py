"""The attention kernels of the zoo: decode from pages, and both gradients.

Rings of two stages turn over, the last tiles are partly outside, and several CTAs of decode share a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from warploom.kernels.hopper import (
    attention_backward_keys,
    attention_backward_queries,
    attention_decode,
)
from warploom.kernels.hopper.attention_backward import BackwardConfig
from warploom.kernels.hopper.attention_config import Attention
from warploom.kernels.hopper.attention_decode_config import Decode, decode_config
from warploom.runtime import H200

NARROW = Attention(head_dim=64, value_dim=64)
SCALE = 64**-0.5


def kernels() -> Iterator[tuple[str, Any, tuple[Any, ...], Any]]:
    """Name, kernel, what makes its arguments, machine."""
    of = Decode(head_dim=64, value_dim=64, paged=True)
    config = replace(decode_config(of, 16, 16), stages=2)
    paged = partial(decode, config.block_elements(of))
    yield "attention_decode", attention_decode.build(of, config), (paged,), H200(sms=3)
    backward = BackwardConfig(tile=64, consumers=2, stages=2)
    yield "attention_queries", attention_backward_queries.build(NARROW, backward), (gradients,), H200(sms=1)
    yield "attention_keys", attention_backward_keys.build(NARROW, backward), (gradients,), H200(sms=1)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(ml_dtypes.bfloat16)


def decode(block: int) -> tuple[Any, ...]:
    """Sequences of 9, 3 and 1 tiles; three CTAs, so that the first one is shared by two."""
    pages = np.random.default_rng(0).permutation(48).reshape(3, 16)
    pages = np.concatenate([pages, pages], 1)[:, :36].astype(np.int32)
    keys = normal(48, 16, 1, 64)
    lengths = np.array([500, 150, 1], np.int32)
    memory = np.zeros((6, block), np.float32), np.zeros(8, np.uint32)
    return normal(3, 1, 16, 64), keys, keys.copy(), lengths, pages, *memory, SCALE, 1


def gradients() -> tuple[Any, ...]:
    """130 queries and 200 keys of one head: three tiles and more, the last one of a few rows."""
    rows = np.full((1, 1, 256), np.inf, np.float32)
    rows[..., :130] = 8.0
    delta = np.zeros((1, 1, 256), np.float32)
    return (
        normal(1, 130, 1, 64), normal(1, 200, 1, 64), normal(1, 200, 1, 64), normal(1, 130, 1, 64), rows, delta,
        SCALE, SCALE,
    )  # fmt: skip
