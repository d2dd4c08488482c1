"""What is known about a rung without building it: its number, its one idea, its source's figure, what it can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...isa.dtypes import DType
from ...lang import Kernel


@dataclass(frozen=True)
class Seed:
    """What the source the rung follows says about it.

    Attributes:
        tflops: its speed.
        size: M = N = K of that figure.
        gpu: on which it was read.
        source: the text that says so, with its address.
    """

    tflops: float
    size: int
    gpu: str
    source: str


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder.

    Attributes:
        number: its place, from 1.
        module: its file in this package.
        idea: what it adds to the one below, in a few words.
        arch: target of its text; a plain one ("sm_80") also runs on newer GPUs.
        dtype: of A and B.
        out: of C.
        multiples: what M, N and K must be divisible by.
        layout: "TN" where B is (N, K); "NN" where it is (K, N).
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
        """`build(config) -> Kernel`, or `build()` for the rung's own choice."""
        return self.load().build

    @property
    def description(self) -> str:
        """The module's docstring: idea, roles, barriers, buffers, timeline, where it was measured."""
        return (self.load().__doc__ or "").strip()
