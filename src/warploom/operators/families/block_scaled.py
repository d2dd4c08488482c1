"""Block-scaled eight-bit products of Hopper: sums that are promoted to f32 registers every 128 of k."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...kernels.hopper.description import Config
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .hopper_large import HopperLarge
from .hopper_large_tiles import band


class BlockScaled(HopperLarge):
    """`kernels.hopper.block_scaled`: three consumers of 64 rows, or two of 128. One CTA each, because draining at every
    block couples a cluster's CTAs. The model is that of the large kernels."""

    name = "block_scaled"

    def takes(self, problem: Problem) -> bool:
        """Promoted sums only."""
        return problem.promoted

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[Config]:
        """Both tiles."""
        from ...kernels.hopper import block_scaled

        both = (block_scaled.CONFIG, block_scaled.LARGE_ROWS)
        return [replace(each, group=band(each, gpu)) for each in both if self.fits(each, problem)]

    def goes_first(self, config: Config, problem: Problem, gpu: Gpu) -> bool:
        """Never."""
        return False

    def build(self, problem: Problem, config: Config, pads_to_16b: bool) -> Any:
        """The kernel."""
        from ...kernels.hopper import block_scaled

        extra = {"pads_to_16b": True} if pads_to_16b else {}
        return block_scaled.build(
            problem.product, config, **extra, scale_a_major=problem.scale_a_major, scale_b_major=problem.scale_b_major
        )
