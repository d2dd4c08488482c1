"""The description of a rung, available without building it: number, idea, its source's figure, requirements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...isa.dtypes import DType
from ...lang import Kernel


@dataclass(frozen=True)
class Seed:
    """A figure from the source that the rung follows.

    Attributes:
        tflops: the reported speed.
        size: M = N = K of the measurement.
        gpu: the GPU of the measurement.
        source: the text that reports it, with its address.
    """

    tflops: float
    size: int
    gpu: str
    source: str


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder.

    Attributes:
    number: position in the ladder, from 1.
    module: its file in this package.
    idea: what it adds to the rung below, in a few words.
    arch: target of its PTX; a plain one ("sm_80") also runs on newer GPUs.
    dtype: type of A and B.
    out: type of C.
    multiples: required divisors of M, N and K.
    layout: "TN" if B is (N, K); "NN" if it is (K, N).
    seed: the figure it is compared with, if there is one.
    """

    number: int
    module: str
    idea: str
    arch: str
    dtype: DType
    out: DType
    multiples: tuple[int, int, int] = (1, 1, 1)
    layout: str = "TN"
    seed: Seed | None = None

    @property
    def name(self) -> str:
        """The module without its number, "warp_tiling"."""
        return self.module.partition("_")[2]

    def load(self) -> Any:
        """The rung's module, with its `Config` and `build`."""
        return import_module(f".{self.module}", __package__)

    @property
    def build(self) -> Callable[..., Kernel]:
        """`build(config) -> Kernel`; `build()` uses the rung's default configuration."""
        return self.load().build

    @property
    def description(self) -> str:
        """The module's docstring: idea, roles, barriers, buffers, timeline, where it was measured."""
        return (self.load().__doc__ or "").strip()
