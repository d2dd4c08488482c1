"""Groups of rows, each multiplied by its own matrix (mixture of experts): a family for Hopper, one for Blackwell.

The rows of each group are on the GPU, where the choice does not read them. The estimates are for the mean of two cases:
uneven groups, whose rows are spread evenly between none and twice the average, as routing spreads tokens over experts,
so that about half a tile of each is not used; and equal groups, which fill whole tiles and waves of some sizes.

    mma      wgmmas of a multiprocessor's tiles       tma   rows of its boxes       hbm   bytes of A, of each B, and D
    T = m + OVERLAP (mma + tma + hbm - m) + epilogues,    m = max(mma, tma, hbm)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...errors import ArgumentError
from ...kernels.blackwell import description as blackwell
from ...kernels.hopper.description import TILE_K_BYTES, Config
from ...kernels.hopper.grouped_config import CHOICES, CONFIG, MEDIUM_GROUPS, SMALL_GROUPS, WIDE_GROUPS, check
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .blackwell import Blackwell
from .estimate import TENSOR_TILE, Estimate, narrowness, of_h200_clock
from .hopper_large import HopperLarge
from .traffic import H200_GBPS

CONSIDERED = (SMALL_GROUPS, WIDE_GROUPS, MEDIUM_GROUPS, CONFIG)
"""The best of the first three takes 1.005 times as long as the best of nine tiles, on average over the 45 products of
sweep-grouped-e4m3.json, -e4m3-seed-9311 and sweep-grouped-seed-9312 in benchmarks/results/nvidia-h200; the last is for
equal groups, which these do not have. Choosing among more of them chooses worse."""
CLOCK, ROW, BANDWIDTH, OVERLAP = 1400.0, 2.1, 4.4e6, 0.2
"""Clocks in a microsecond under the power limit, clocks of a row of a TMA box, bytes in a microsecond, and the share of
the shorter times that the longest does not hide: round numbers with which the choice is good in those sweeps. Clocks
from 1300 to 1500, 2.0 or 2.1, and 4.4e6 or 4.8e6 choose as well, within 0.3 % on average."""
EPILOGUE_US = 0.8
"""Of a tile of 128 x 128; in ping-pong only the last one is not hidden."""
LAST_TILE = 0.5
"""Of the time in which memory delivers a tile to each multiprocessor, the share that is lost at the end, when only some
multiprocessors still have one."""
WHOLE_WAVES = 0.75
"""The last wave of uneven groups counts as whole by this share: multiprocessors do not end together anyway."""


def row_tiles(rows: int, tile_m: int) -> float:
    """Mean number of tiles of `tile_m` rows of a group that has `rows` rows on average."""
    most = 2 * rows
    whole, rest = divmod(most, tile_m)
    return (tile_m * whole * (whole + 1) / 2 + rest * (whole + 1)) / (most + 1)


def average_rows(problem: Problem) -> int:
    """Rows of an average group, at least one."""
    return max(1, round(problem.m / problem.groups))


def row_tiles_of(problem: Problem, tile_m: int) -> int:
    """The expected row tiles of all groups, if they are uneven."""
    return max(1, round(problem.groups * row_tiles(average_rows(problem), tile_m)))


def tiles_of(config: Any, problem: Problem) -> int:
    """The expected tiles of all groups, if they are uneven."""
    tile_m, tile_n = config.output_tile
    return row_tiles_of(problem, tile_m) * -(-problem.n // tile_n)


def equal_tiles_of(config: Any, problem: Problem) -> int:
    """The tiles of all groups, if they are equal."""
    tile_m, tile_n = config.output_tile
    return problem.groups * -(-average_rows(problem) // tile_m) * -(-problem.n // tile_n)


def waves_of(config: Any, problem: Problem, sms: int) -> float:
    """The mean of the waves of uneven and of equal groups."""
    tiles, equal = tiles_of(config, problem), -(-equal_tiles_of(config, problem) // sms)
    uneven = WHOLE_WAVES * -(-tiles // sms) + (1 - WHOLE_WAVES) * max(1.0, tiles / sms)
    return (uneven + equal) / 2


def estimate(config: Config, problem: Problem, gpu: Gpu) -> Estimate:
    """The estimate for one grouped product on Hopper."""
    product, waves = problem.product, waves_of(config, problem, gpu.sms)
    steps, clock = waves * -(-problem.k // product.tile_k), CLOCK * of_h200_clock(gpu)
    mma = steps * config.tile_m * config.tile_n / TENSOR_TILE * narrowness(config.tile_n) / clock
    tma = steps * (config.tile_m + config.tile_n) * ROW / clock
    empty = 1 / (2 * average_rows(problem) + 1) * problem.groups * problem.n * problem.k * product.b.bytes
    hbm = (problem.bytes - empty) / (BANDWIDTH * (gpu.memory_gbps or H200_GBPS) / H200_GBPS)
    hbm *= 1 + LAST_TILE / max(1.0, tiles_of(config, problem) / gpu.sms)
    longest = max(mma, tma, hbm)
    shown = 1.0 if config.kernel_schedule == "ping_pong" else waves
    end = EPILOGUE_US * shown * config.tile_m * config.tile_n / (128 * 128)
    time = longest + OVERLAP * (mma + tma + hbm - longest) + end
    useful = problem.m * problem.n * -(-problem.k // product.tile_k) / TENSOR_TILE / gpu.sms / clock
    bound = "memory" if longest == hbm else "tensor cores" if longest == mma else "fill"
    return Estimate(
        time, round(waves, 2), problem.m * problem.n / (waves * gpu.sms * config.tile_m * config.tile_n), useful / time,
        steps * (config.tile_m + config.tile_n) * TILE_K_BYTES / (time * clock), end / time, clock, bound,
        of_groups="the mean of uneven and of equal groups",
    )  # fmt: skip


class HopperGrouped(HopperLarge):
    """`kernels.hopper.grouped`."""

    name, grouped = "hopper_grouped", True

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[Config]:
        """Those of `CONSIDERED` that fit; every: all tiles."""
        return [config for config in (CHOICES if every else CONSIDERED) if self.fits(config, problem)]

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
        return estimate(config, problem, gpu)

    def build(self, problem: Problem, config: Config, pads_to_16b: bool) -> Any:
        """The kernel; rows of D are multiples of 16 bytes."""
        from ...kernels.hopper import grouped

        return grouped.build(problem.product, config, problem.fusion, problem.limits)

    def describe(self, config: Config) -> str:
        return f"grouped: {config.kernel_schedule}, tiles of {config.tile_m} x {config.tile_n}, {config.stages} stages"


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
        found = self._estimate(config, problem, gpu, tiles_of(config, problem), gpu.sms, steps, config.tile_n)
        return replace(found, of_groups="those of uneven groups")

    def build(self, problem: Problem, config: blackwell.Config, pads_to_16b: bool) -> Any:
        """The kernel; rows of D are multiples of 16 bytes."""
        from ...kernels.blackwell import grouped

        return grouped.build(problem.product, config, problem.fusion, problem.limits)
