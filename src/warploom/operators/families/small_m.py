"""The small-M kernels of Hopper: a rule based on measurements chooses, and similar configurations are timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...collective.tile.sizes import WARPGROUP_ROWS
from ...kernels.hopper.description import TILE_K_BYTES
from ...kernels.hopper.free_tile_choice import SMALL_M_ROWS
from ...kernels.hopper.small_m_config import MOST_IN_CLUSTER, SmallMConfig, choose
from ...plural import counted
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from ..views import round_up
from .estimate import FILL_BYTES, MEMORY, MOST_MHZ, TENSOR_TILE, Estimate, narrowness, of_h200_clock
from .family import KernelFamily
from .free_tile import computes, like_a_tile
from .free_tile import estimate as free_tile_estimate

MOST_ROWS = 256
"""Rows of A up to which these kernels are candidates."""
FIRST_ROWS = 128
"""Rows of A up to which they go first."""
LONG = 2.5
"""Ratio K / N from which tiles of all of A whose CTAs process K as one stream are candidates: in the sweep they were
fastest from 2.7 on, and nowhere below."""
AHEAD = 3
"""Stages of weights that are prefetched to L2 before the preceding kernel has ended; more did not pay."""
RAMP_US = 2.2
SPLIT_US = 1.2
TURNOVER = ((32, 0.1), (64, 0.4), (256, 1.0))
"""Lost share of a half-empty last wave, by the tokens of a tile: the next kernel's first loads fill most of it if a CTA
leaves space for another. Measured at N of 10240 to 28672."""
SM_MEMORY = 0.052e6
"""Bytes per microsecond that one multiprocessor can load alone."""


class SmallM(KernelFamily):
    """`kernels.hopper.decode`."""

    name, arch, config = "small_m", "sm_90a", SmallMConfig

    def takes(self, problem: Problem) -> bool:
        """Everything but promoted sums."""
        return not problem.promoted

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[SmallMConfig]:
        """The configuration of the kernel's own rule; `every`: also similar ones, for timing."""
        fusion = problem.fusion
        if problem.m > MOST_ROWS or fusion.scale_out or fusion.amax or fusion.scales == "block128":
            return []
        found = self._variants(problem, gpu)
        waves = [each for each in self._waves(problem, gpu) if each not in found]
        if computes(problem):
            waves += [each for each in self._streamed(problem) if each not in found]
        return [*(found if every else found[:1]), *waves]

    def _waves(self, problem: Problem, gpu: Gpu) -> Iterator[SmallMConfig]:
        """Tiles of 64 rows of B and all of A, split in K so that one wave is as full as possible, by clusters of up to
        four: with one CTA per multiprocessor, and with two."""
        if problem.m > SMALL_M_ROWS or not problem.fusion.empty or problem.product.out.bits != 16:
            return
        tiles, tokens = -(-problem.n // WARPGROUP_ROWS), round_up(problem.m, 8)
        for per_sm in (1, 2):
            config = SmallMConfig(
                tokens=tokens, split_k=max(1, min(MOST_IN_CLUSTER, gpu.sms * per_sm // tiles)), ctas_per_sm=per_sm,
                prefetch=AHEAD, vector_store=tokens > 16 and problem.n % 8 == 0,
            ).filled()  # fmt: skip
            if config.split_k > 1 and self.fits(config, problem):
                yield config

    def _streamed(self, problem: Problem) -> Iterator[SmallMConfig]:
        """Tiles of all of A whose CTAs process K as one stream."""
        if problem.m <= SMALL_M_ROWS or problem.k < LONG * problem.n:
            return
        tokens = round_up(problem.m, 8)
        for rows in (WARPGROUP_ROWS, 2 * WARPGROUP_ROWS):
            wide = problem.m > 16 and problem.n % 8 == 0 and problem.product.out.bits == 16
            config = SmallMConfig(
                tokens=tokens, rows=rows, k_tiles=1, split_by="stream", prefetch=AHEAD, vector_store=wide
            )
            if self.fits(config.filled(), problem):
                yield config.filled()

    def _variants(self, problem: Problem, gpu: Gpu) -> list[SmallMConfig]:
        found: list[SmallMConfig] = []
        chosen = choose(
            problem.m, problem.n, problem.k, gpu.sms, problem.product, constant_weights=problem.constant_weights
        )
        for config in (
            chosen,
            replace(chosen, split_k=1, split_by="cluster").filled(),
            replace(chosen, split_k=2, split_by="cluster").filled(),
            replace(chosen, rows=128).filled(),
            replace(chosen, rows=64).filled(),
        ):
            if config.split_k == 1:
                config = replace(config, split_by="cluster")
            if config not in found and self.fits(config, problem):
                found.append(config)
        return found

    def goes_first(self, config: SmallMConfig, problem: Problem, gpu: Gpu) -> bool:
        """Kernels made for few rows, whatever the other estimates; if free tiles do the same work, only those that
        their model covers."""
        return like_a_tile(config, problem) if computes(problem) else problem.m <= FIRST_ROWS

    def fits(self, config: SmallMConfig, problem: Problem) -> bool:
        product, fusion = problem.product, problem.fusion
        return config.violated(product, fusion) is None and config.fits_registers(product, fusion)

    def estimate(self, config: SmallMConfig, problem: Problem, gpu: Gpu) -> Estimate:
        """The memory time, the load time of the multiprocessors that have a tile, and the reduction."""
        if computes(problem) and like_a_tile(config, problem):
            return free_tile_estimate(config, problem, gpu)
        sms, mhz = gpu.sms, MOST_MHZ * of_h200_clock(gpu)
        tiles = config.tiles(problem.m, problem.n) * config.split_k
        concurrent = sms * config.ctas_per_sm
        waves = -(-tiles // concurrent)
        bytes_ = problem.bytes / problem.count
        whole = config.tiles(problem.m, problem.n) * config.stage_bytes / config.k_tiles
        filled = whole * -(-problem.k // problem.product.tile_k)
        memory = bytes_ / min(MEMORY, min(tiles, sms) * SM_MEMORY)
        fill = filled / (min(tiles, sms) * FILL_BYTES * mhz)
        tensor = filled / (config.rows + config.tokens) / TILE_K_BYTES * config.rows * config.tokens / TENSOR_TILE
        tensor *= narrowness(config.tokens)
        tensor /= min(tiles, sms) * mhz
        busy = max(memory, fill, tensor)
        partial = waves * concurrent / tiles if waves > 1 else 1.0
        lost = next(share for tokens, share in TURNOVER if config.tokens <= tokens)
        time = busy * (1 + lost * (partial - 1)) + RAMP_US + (SPLIT_US if config.split_k > 1 else 0)
        bound = "memory" if busy == memory else "fill" if busy == fill else "tensor cores"
        return Estimate(
            time, float(waves), tiles / (waves * concurrent), tensor / time,
            filled / (time * mhz) / min(tiles, sms), 0.0, mhz, bound,
        )  # fmt: skip

    def promised(self, config: SmallMConfig) -> SmallMConfig:
        return replace(config, constant_weights=config.pdl)

    def build(self, problem: Problem, config: SmallMConfig, pads_to_16b: bool) -> Any:
        """The kernel; it stores element by element, so `pads_to_16b` does not matter."""
        from ...kernels.hopper import small_m

        return small_m.build(problem.product, config, problem.fusion)

    def describe(self, config: SmallMConfig) -> str:
        split = f", K in {config.split_k} splits" if config.split_k > 1 else ""
        return f"small M: {counted(config.tokens, 'row')} of A by {config.rows} of B, {config.stages} stages{split}"
