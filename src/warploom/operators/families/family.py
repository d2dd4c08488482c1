"""The interface of a kernel family: one kind of kernel, its configurations, and their estimated times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .estimate import Estimate

if TYPE_CHECKING:
    from ...lang import Kernel


VECTOR_COLUMNS = 8
"""Columns of 16 bits that `vector_store` stores at a time."""


class KernelFamily(ABC):
    """A family of kernels for products.

    Attributes:
        name: for messages and tables.
        arch: target of its kernels; only GPUs that can run it get them.
        config: the class of its configurations.
        unproven: why its kernels warn and their first results are checked; "" for kernels that ran on hardware.
        grouped: True if its kernels multiply groups of rows, each by its own matrix; the others have one B.
    """

    name: str
    arch: str
    config: type[Any]
    unproven = ""
    grouped = False

    def computes(self, problem: Problem) -> bool:
        """True if it computes such products at all."""
        return self.grouped == (problem.groups > 0) and self.takes(problem)

    @abstractmethod
    def takes(self, problem: Problem) -> bool:
        """True if it computes such products, grouped or not as its kernels are."""

    @abstractmethod
    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> Sequence[Any]:
        """Configurations worth considering, in no particular order; each can be built. every: also those for timing."""

    def goes_first(self, config: Any, problem: Problem, gpu: Gpu) -> bool:
        """True if measurements put it before all others, whatever the model estimates."""
        return False

    def check(self, config: Any, problem: Problem) -> None:
        """Raise ArgumentError if a pinned configuration cannot be built for a problem."""
        config.check(problem.product, problem.fusion)
        if getattr(config, "vector_store", False) and problem.n % VECTOR_COLUMNS:
            raise ArgumentError(
                f"{config.name()} stores multiples of 16 bytes of rows", got=f"N = {problem.n}",
                expected=f"N a multiple of {VECTOR_COLUMNS}, or vector_store=False",
            )  # fmt: skip

    def fits(self, config: Any, problem: Problem) -> bool:
        """True if a kernel can be built for a problem without spills."""
        try:
            self.check(config, problem)
        except ArgumentError:
            return False
        return True

    @abstractmethod
    def estimate(self, config: Any, problem: Problem, gpu: Gpu) -> Estimate:
        """The estimate for one product."""

    def promised(self, config: Any) -> Any:
        """The configuration that uses the promise of constant weights, if that helps."""
        return config

    def tile(self, config: Any) -> tuple[Any, ...] | None:
        """What similar configurations have in common, so that `tune` times only few of them; None: it times each."""
        return None

    @abstractmethod
    def build(self, problem: Problem, config: Any, pads_to_16b: bool) -> Kernel:
        """The kernel. pads_to_16b: it may write past the end of D's rows, up to a multiple of 16 bytes."""

    def per_tile(self, config: Any, problem: Problem) -> dict[str, int]:
        """The cost of a whole tile, by names of the emulator's counters; {} if unknown."""
        return {}

    @abstractmethod
    def describe(self, config: Any) -> str:
        """A configuration in words."""
