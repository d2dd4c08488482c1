"""What the library asks of a kernel family: one kind of kernel, its configurations, and how long they take."""

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


class KernelFamily(ABC):
    """A family of kernels for products.

    Attributes:
        name: for messages and tables.
        arch: target of its kernels; only GPUs that run it get them.
        config: the class of its configurations.
        unproven: why its kernels are announced and their first results checked; "" for kernels that ran on hardware.
    """

    name: str
    arch: str
    config: type[Any]
    unproven = ""

    @abstractmethod
    def takes(self, problem: Problem) -> bool:
        """Whether it computes such products at all."""

    @abstractmethod
    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> Sequence[Any]:
        """Configurations worth a thought, in no particular order; each can be built. every: those to be timed too."""

    def goes_first(self, config: Any, problem: Problem, gpu: Gpu) -> bool:
        """Whether readings put it before all others, whatever the model says."""
        return False

    def check(self, config: Any, problem: Problem) -> None:
        """Raise ArgumentError where a pinned configuration cannot be built for a problem."""
        config.check(problem.product, problem.fusion)

    def fits(self, config: Any, problem: Problem) -> bool:
        """Whether a kernel can be built for a problem, without spills."""
        try:
            self.check(config, problem)
        except ArgumentError:
            return False
        return True

    @abstractmethod
    def estimate(self, config: Any, problem: Problem, gpu: Gpu) -> Estimate:
        """How long one product takes."""

    def promised(self, config: Any) -> Any:
        """The configuration that uses the promise of constant weights, where that helps."""
        return config

    def tile(self, config: Any) -> tuple[Any, ...] | None:
        """What alike configurations have in common, of which `tune` times few; None: it times each."""
        return None

    @abstractmethod
    def build(self, problem: Problem, config: Any, overhang: bool) -> Kernel:
        """The kernel. overhang: it may write past the end of D's rows, up to whole 16 bytes."""

    def per_tile(self, config: Any, problem: Problem) -> dict[str, int]:
        """What a whole tile costs, by counters of the emulator's names; {} where nothing is said."""
        return {}

    @abstractmethod
    def describe(self, config: Any) -> str:
        """A configuration in words."""
