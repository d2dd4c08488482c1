"""A case of the unseen set: how its kernel is built, its arrays, and the bytes that it must move."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warploom.isa.dtypes import DType
from warploom.lang import Kernel
from warploom.runtime.program import Program

GOLDEN = (5**0.5 - 1) / 2
RANDOM = 1 << 20
"""Random values for an array; a larger array repeats them."""


@dataclass(frozen=True)
class Array:
    """An argument.

    Attributes:
        shape, dtype: shape and type of the array.
        fill: "normal", "zeros", "chain" or "leaps" (each element is the index of the next, a cycle through the whole
            array; with "leaps" a line is revisited late), or a number n: integers below n.
        rising: the values are sorted.
    """

    shape: tuple[int, ...]
    dtype: DType
    fill: str | int = "normal"
    rising: bool = False

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bits // 8

    def made(self, zeros: bool = False) -> np.ndarray:
        """The values; integers always, since they may be indices; zeros: floats are zeros, which cost no time."""
        if self.fill in ("chain", "leaps"):
            count = math.prod(self.shape)
            step = 1 + int(count * (1 / 3 if self.fill == "chain" else GOLDEN)) // 2 * 2
            return ((np.arange(count) + step) % count).astype(self.dtype.numpy).reshape(self.shape)
        if self.fill == "zeros" or (zeros and self.fill == "normal"):
            return np.zeros(self.shape, self.dtype.numpy)
        rng, count = np.random.default_rng(0), math.prod(self.shape)
        few = min(count, RANDOM)
        drawn = rng.standard_normal(few, np.float32) if self.fill == "normal" else rng.integers(0, self.fill, few)
        values = np.resize(drawn.astype(self.dtype.numpy), count).reshape(self.shape)
        return np.sort(values, axis=None).reshape(self.shape) if self.rising else values


@dataclass(frozen=True)
class Case:
    """One kernel on one problem.

    Attributes:
        name, kind: labels.
        build: makes the kernel, or a program of a text with its arrays declared.
        inputs, outputs: arrays of the call.
        make_scalars: makes the scalars of the call, by name; those of a text are named in the text.
        moved: bytes that must pass through DRAM; 0: all of the arrays once.
        flops: FLOP of products on tensor cores.
        clusters: clusters to record.
        steered: its control flow, or where it accesses memory, depends on floats.
    """

    name: str
    kind: str
    build: Callable[[], Kernel | Program] = field(repr=False)
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    make_scalars: Callable[[], Mapping[str, Any]] = field(default=dict, repr=False)
    moved: int = 0
    flops: float = 0.0
    clusters: int = 1
    steered: bool = False

    @property
    def scalars(self) -> Mapping[str, Any]:
        return self.make_scalars()

    @property
    def bytes(self) -> int:
        return self.moved or sum(array.bytes for array in (*self.inputs, *self.outputs))
