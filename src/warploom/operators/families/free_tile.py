"""Free tiles of Hopper: up to 512 rows of A, ranked by a model that was fitted to a sweep of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...kernels.hopper.free_tile_choice import (
    H200_RATES,
    MOST_ROWS,
    SMALL_M_ROWS,
    Rates,
    banded,
    from_small_m,
    ranked,
    terms,
    waves_of,
)
from ...kernels.hopper.free_tile_config import FreeTileConfig
from ...kernels.hopper.free_tile_forms import regrouped
from ...kernels.hopper.small_m_config import SmallMConfig
from ...plural import counted
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .estimate import MOST_MHZ, Estimate, of_h200_clock
from .family import KernelFamily

FIRST_CANDIDATES, MOST_CANDIDATES, SLOWEST = 6, 32, 1.6
"""Limits of the candidates: how many of the model's fastest; how many in all, with the first of each form; and how much
slower than the first one another may be expected to be."""
EVICT_FIRST_OR_NOT = (65, 512)
"""Range of rows in which the first candidates include variants that mark the weights as read once."""
MOST_ROWS_FUSED = 512
"""Rows above which only large tiles, whose epilogues are hidden, are used with an activation, a gate or an addend, and
with an odd number of columns: free tiles store these element by element."""


def short_epilogue(problem: Problem) -> bool:
    """True if sums are stored unchanged or scaled, in multiples of 16 bytes."""
    fusion = problem.fusion
    plain = fusion.bias is None and fusion.activation is None and not fusion.gate and not fusion.addend
    return plain and problem.n % 8 == 0


def computes(problem: Problem) -> bool:
    """True if free tiles can compute the whole problem."""
    plain = FreeTileConfig(tile_n=64, vector_store=problem.n % 8 == 0)
    rows = MOST_ROWS if short_epilogue(problem) else MOST_ROWS_FUSED
    whole = not problem.promoted and not problem.groups
    return whole and problem.m <= rows and plain.violated(problem.product, problem.fusion) is None


def like_a_tile(config: SmallMConfig, problem: Problem) -> bool:
    """True if a small-M configuration is covered by the free tiles' model: the sweep timed such ones."""
    return problem.m <= SMALL_M_ROWS and problem.fusion.empty and not config.shared_workspace


def rates_of(gpu: Gpu) -> Rates:
    """The rates of a GPU: what is counted in clocks follows its highest one."""
    return replace(H200_RATES, clock=H200_RATES.clock * of_h200_clock(gpu))


def estimate(config: FreeTileConfig | SmallMConfig, problem: Problem, gpu: Gpu) -> Estimate:
    """The estimate for one product; for a small-M configuration that of the corresponding tile."""
    tile = from_small_m(config) if isinstance(config, SmallMConfig) else config
    sizes, mhz = (problem.m, problem.n, problem.k, problem.product), MOST_MHZ * of_h200_clock(gpu)
    found = terms(tile, *sizes, sms=gpu.sms, rates=rates_of(gpu))
    waves = waves_of(tile, problem.m, problem.n, gpu.sms)
    covered = waves * gpu.sms * tile.ctas_per_sm / tile.split_k * tile.tile_m * tile.tile_n
    longest = max(found.mma, found.tma, found.hbm, found.l2)
    filled = tile.stage_bytes / tile.k_tiles * -(-problem.k // problem.product.tile_k) * waves / tile.split_k
    bound = "tensor cores" if longest == found.mma else "memory" if longest == found.hbm else "fill"
    return Estimate(
        found.total, float(waves), problem.m * problem.n / covered, found.mma / found.total,
        filled / (found.total * mhz), found.end / found.total, mhz, bound,
    )  # fmt: skip


def _fits(config: FreeTileConfig, problem: Problem) -> bool:
    return config.violated(problem.product, problem.fusion) is None and config.fits_registers(
        problem.product, problem.fusion
    )


def _with_registers(config: FreeTileConfig, problem: Problem) -> FreeTileConfig:
    """The tile, with other warpgroups if its own have no registers for the epilogue but others have."""
    if config.fits_registers(problem.product, problem.fusion):
        return config
    return next((each for each in regrouped(config) if each.fits_registers(problem.product, problem.fusion)), config)


class FreeTile(KernelFamily):
    """`kernels.hopper.free_tile`."""

    name, arch, config = "free_tile", "sm_90a", FreeTileConfig

    def takes(self, problem: Problem) -> bool:
        """Everything but promoted sums."""
        return not problem.promoted

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[FreeTileConfig]:
        """Those that the model expects to be fastest."""
        if not computes(problem):
            return []
        order = ranked(problem.m, problem.n, problem.k, problem.product, sms=gpu.sms, rates=rates_of(gpu))
        if not order:
            return []
        chosen: dict[FreeTileConfig, None] = {}
        forms: set[tuple[object, ...]] = set()
        for config, time in order:
            if len(chosen) == MOST_CANDIDATES or time > SLOWEST * order[0][1]:
                break
            tile = _with_registers(config, problem)
            form = (
                tile.swap_ab, tile.tile_m, tile.split_k, tile.split_by, tile.persistent, tile.cluster,
                tile.setmaxnreg, tile.multicast,
            )  # fmt: skip
            if (len(chosen) < FIRST_CANDIDATES or form not in forms) and _fits(tile, problem):
                forms.add(form)
                chosen[banded(tile, problem.m, problem.n, gpu.sms)] = None
        if EVICT_FIRST_OR_NOT[0] <= problem.m <= EVICT_FIRST_OR_NOT[1]:
            chosen |= {
                replace(config, evict_first=not config.evict_first): None for config in list(chosen)[:FIRST_CANDIDATES]
            }
        return list(chosen)

    def goes_first(self, config: FreeTileConfig, problem: Problem, gpu: Gpu) -> bool:
        """Always: at up to 512 rows they were faster than large tiles in nearly every product of the sweep, also in
        several waves."""
        return True

    def fits(self, config: FreeTileConfig, problem: Problem) -> bool:
        return _fits(config, problem) and (problem.n % 8 == 0 or not config.vector_store)

    def estimate(self, config: FreeTileConfig, problem: Problem, gpu: Gpu) -> Estimate:
        return estimate(config, problem, gpu)

    def promised(self, config: FreeTileConfig) -> FreeTileConfig:
        return replace(config, constant_weights=config.pdl)

    def tile(self, config: FreeTileConfig) -> tuple[Any, ...] | None:
        """Each configuration is timed separately."""
        return (config,)

    def build(self, problem: Problem, config: FreeTileConfig, pads_to_16b: bool) -> Any:
        """The kernel; it stores nothing past the end of a row, so `pads_to_16b` does not matter."""
        from ...kernels.hopper import free_tile

        return free_tile.build(problem.product, config, problem.fusion)

    def describe(self, config: FreeTileConfig) -> str:
        split = f", K in {config.split_k} splits" if config.split_k > 1 else ""
        split += " that the last adds up" * config.shared_workspace
        waves = ", several waves" if config.persistent else ""
        waves += f" in bands of {config.group}" if config.group else ""
        split += f", {config.cluster} CTAs share {config.multicast}" if config.multicast else ""
        axis = "B" if config.swap_ab else "A"
        return (f"free tile: {counted(config.tokens, 'row')} of A by {config.weights} of B, "
                f"{axis} on the MMA's M axis, {config.stages} stages{split}{waves}")  # fmt: skip
