"""Groups of rows, each multiplied by its own matrix (mixture of experts): a family for Hopper, one for Blackwell.

The rows of each group are on the GPU, where the choice does not read them. The estimate is that of a large product with
as many tiles as groups have in the mean if their rows are spread evenly between none and twice the average, as routing
spreads tokens over experts: about half a tile of each group is not used.
"""

from __future__ import annotations

from typing import Any

from ...errors import ArgumentError
from ...kernels.blackwell import description as blackwell
from ...kernels.hopper.description import Config
from ...kernels.hopper.grouped_config import CHOICES, check
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .blackwell import Blackwell
from .estimate import Estimate
from .hopper_large import HopperLarge
from .hopper_large import estimate as large_estimate


def row_tiles(rows: int, tile_m: int) -> float:
    """Mean number of tiles of `tile_m` rows of a group that has `rows` rows on average."""
    most = 2 * rows
    whole, rest = divmod(most, tile_m)
    return (tile_m * whole * (whole + 1) / 2 + rest * (whole + 1)) / (most + 1)


def row_tiles_of(problem: Problem, tile_m: int) -> int:
    """The expected row tiles of all groups."""
    average = max(1, round(problem.m / problem.groups))
    return max(1, round(problem.groups * row_tiles(average, tile_m)))


def tiles_of(config: Any, problem: Problem) -> int:
    """The expected tiles of all groups."""
    tile_m, tile_n = config.output_tile
    return row_tiles_of(problem, tile_m) * -(-problem.n // tile_n)


class HopperGrouped(HopperLarge):
    """`kernels.hopper.grouped`."""

    name, grouped = "hopper_grouped", True

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[Config]:
        """Every tile that fits."""
        return [config for config in CHOICES if self.fits(config, problem)]

    def goes_first(self, config: Config, problem: Problem, gpu: Gpu) -> bool:
        """Never."""
        return False

    def check(self, config: Config, problem: Problem) -> None:
        check(problem.product, config, problem.fusion)

    def fits(self, config: Config, problem: Problem) -> bool:
        try:
            self.check(config, problem)
        except ArgumentError:
            return False
        return config.fits_registers(problem.product, problem.fusion)

    def estimate(self, config: Config, problem: Problem, gpu: Gpu) -> Estimate:
        return large_estimate(config, problem, gpu, tiles_of(config, problem))

    def build(self, problem: Problem, config: Config, pads_to_16b: bool) -> Any:
        """The kernel; rows of D are multiples of 16 bytes."""
        from ...kernels.hopper import grouped

        return grouped.build(problem.product, config, problem.fusion, problem.limits)

    def describe(self, config: Config) -> str:
        return f"grouped: tiles of {config.tile_m} x {config.tile_n}, {config.stages} stages"


class BlackwellGrouped(Blackwell):
    """`kernels.blackwell.grouped`."""

    name, grouped = "blackwell_grouped", True

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[blackwell.Config]:
        """Two tiles; nothing was timed."""
        both = (blackwell.GROUPED, blackwell.SMALL_GROUPS)
        return [config for config in both if self.fits(config, problem)]

    def check(self, config: blackwell.Config, problem: Problem) -> None:
        from ...kernels.blackwell import grouped

        grouped.check(problem.product, config, problem.fusion, problem.limits)

    def estimate(self, config: blackwell.Config, problem: Problem, gpu: Gpu) -> Estimate:
        """Like that of one product, with the groups' tiles."""
        steps = -(-problem.k // problem.product.tile_k)
        return self._estimate(config, problem, gpu, tiles_of(config, problem), gpu.sms, steps, config.tile_n)

    def build(self, problem: Problem, config: blackwell.Config, pads_to_16b: bool) -> Any:
        """The kernel; rows of D are multiples of 16 bytes."""
        from ...kernels.blackwell import grouped

        return grouped.build(problem.product, config, problem.fusion, problem.limits)
