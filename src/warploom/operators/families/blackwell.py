"""GPUs of sm_100: `kernels.blackwell.gemm`, with one CTA or CTA pairs, and the same epilogues as Hopper's kernels."""

from __future__ import annotations

from typing import Any

from ...collective.epilogue.spec import TILE_K_BYTES
from ...isa import arch as arches
from ...isa.dtypes import s8
from ...kernels.blackwell.description import BESIDE, COLUMNS, MOST_TOKENS, ROWS, TARGET, Config, SmallMConfig
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .estimate import Estimate
from .family import KernelFamily

TILES = ((256, 256), (256, 192), (256, 128), (256, 64), (128, 256), (128, 128), (128, 64), (128, 32))
MOST_STAGES = 8
MACS, MHZ, FILL_BYTES, MEMORY = 4096, 1850.0, 58.0, 7.2e6
"""16-bit multiply-adds per cycle of a multiprocessor and the clock of a B200 by its data sheet, bytes per cycle from L2
to one multiprocessor (an H200's, for lack of another), bytes per microsecond from memory (nine tenths of the data
sheet's)."""
END_CYCLES, START_US = 1500.0, 3.0
"""The time of the last tile's store, and of a launch: guesses."""
SPLIT_US = 1.0
"""The time to exchange partial sums: a guess."""
SPLITS = (1, 2, 4, 8)
STEP_BYTES, CELL_BYTES = 32, 4
"""Bytes of a row of A or B that one MMA multiplies, and of an element of D in tensor memory."""
ASSUMED = "a B200's data sheet; no kernel was timed on such a GPU, nor run on one by the authors"


class BlackwellFamily(KernelFamily):
    """What both families have in common."""

    arch = TARGET
    unproven = "assembled and emulated, not run on hardware by the authors"

    def takes(self, problem: Problem) -> bool:
        """Everything but promoted sums: the tensor core does not apply scales of blocks of 128."""
        return not problem.promoted

    @staticmethod
    def _estimate(
        config: Config | SmallMConfig, problem: Problem, gpu: Gpu, tiles: int, concurrent: int, steps: int,
        columns: int, exchange_us: float = 0.0,
    ) -> Estimate:  # fmt: skip
        """The estimate for so many tiles of ROWS x `columns` and `steps` k-tiles, of which `concurrent` run at a
        time."""
        rounds = -(-tiles // concurrent)
        tensor = steps * ROWS * columns * TILE_K_BYTES / 2 / MACS
        fill = steps * config.stage_bytes / FILL_BYTES
        mhz = float(gpu.clock_mhz or MHZ)
        busy = (rounds * max(tensor, fill) + END_CYCLES) / mhz
        memory = problem.bytes / problem.count / MEMORY
        time = max(busy, memory) + START_US + exchange_us
        useful = problem.m * problem.n * problem.k * problem.product.a.bytes / 2 / MACS / gpu.sms / mhz
        bound = "memory" if memory > busy else "fill" if fill > tensor else "tensor cores"
        return Estimate(
            time, float(rounds), tiles / (rounds * concurrent), useful / time,
            rounds * steps * config.stage_bytes / (time * mhz), END_CYCLES / mhz / time, mhz, bound, ASSUMED,
        )  # fmt: skip


class Blackwell(BlackwellFamily):
    """Any product whose sums are not promoted."""

    name, config = Config.family, Config

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[Config]:
        """Each tile with as many stages and accumulators as fit, except tiles twice as large as the product."""
        found = []
        for tile_m, tile_n in TILES:
            plain = Config(tile_m, tile_n, 1, max(1, min(4, COLUMNS // tile_n)))
            room = arches.get(TARGET).shared_per_cta - BESIDE
            config = Config(tile_m, tile_n, min(MOST_STAGES, room // plain.stage_bytes), plain.buffers)
            small = (tile_m > ROWS and problem.m <= ROWS) or (tile_n > 32 and tile_n >= 2 * max(problem.n, 16))
            if not small and self.fits(config, problem):
                found.append(config)
        return found

    def estimate(self, config: Config, problem: Problem, gpu: Gpu) -> Estimate:
        """The time of one product: the longest of multiplying, reading shared memory and filling it, on the busiest
        multiprocessor, or the memory time."""
        tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
        steps = -(-problem.k // problem.product.tile_k)
        return self._estimate(config, problem, gpu, tiles, max(1, gpu.sms // config.group), steps, config.tile_n)

    def tile(self, config: Config) -> tuple[Any, ...]:
        """Each tile is a candidate once."""
        return config.tile_m, config.tile_n

    def build(self, problem: Problem, config: Config, pads_to_16b: bool) -> Any:
        """The kernel. pads_to_16b: rows of D may end inside 16 bytes; nothing is written past their ends."""
        from ...kernels.blackwell import gemm

        return gemm.build(config, problem.product, problem.fusion, whole=not pads_to_16b)

    def per_tile(self, config: Config, problem: Problem) -> dict[str, int]:
        """MMAs that one thread issues, bytes that TMA writes to shared memory and the tensor core reads there, bytes of
        tensor memory that MMAs read and write and that the epilogue loads. An MMA reads 32 bytes of each row of A and
        B; in a CTA pair each reads its own rows of A and half of B. All but the first MMA also read D."""
        k_tiles, cells = -(-problem.k // problem.product.tile_k), config.tile_m * config.tile_n
        products = k_tiles * (TILE_K_BYTES // STEP_BYTES)
        return {
            "tcgen05": products,
            "tma_load_bytes": k_tiles * config.stage_bytes * config.group,
            "matrix_operand_bytes": products * (config.tile_m + config.tile_n) * STEP_BYTES,
            "tensor_memory_product_bytes": (2 * products - 1) * cells * CELL_BYTES,
            "tensor_memory_load_bytes": cells * CELL_BYTES,
        }

    def describe(self, config: Config) -> str:
        pair = "pairs of CTAs, " if config.group == 2 else ""
        return (
            f"Blackwell: {pair}tiles of {config.tile_m} x {config.tile_n}, {config.stages} stages, {config.buffers} "
            f"accumulators in tensor memory; {self.unproven}"
        )


class BlackwellSmallM(BlackwellFamily):
    """Few rows of A: `kernels.blackwell.small_m`."""

    name, config = SmallMConfig.family, SmallMConfig

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[SmallMConfig]:
        """All rows in one tile, with K split so that every multiprocessor has work, and without a split."""
        if problem.m > MOST_TOKENS:
            return []
        tiles, steps = -(-problem.n // ROWS), -(-problem.k // problem.product.tile_k)
        fitting = [each for each in SPLITS if tiles * each <= gpu.sms and 2 * each <= steps]
        found = []
        for split in {1, *([] if problem.product.a is s8 else fitting[-2:])}:
            plain = SmallMConfig(-(-problem.m // 16) * 16, split, 1)
            room = arches.get(TARGET).shared_per_cta - (plain.shared_bytes() - plain.stage_bytes)
            config = SmallMConfig(plain.tokens, split, min(MOST_STAGES, room // plain.stage_bytes))
            if self.fits(config, problem):
                found.append(config)
        return found

    def estimate(self, config: SmallMConfig, problem: Problem, gpu: Gpu) -> Estimate:
        """The time of one product: filling the busiest multiprocessor, or the memory time, plus the exchange."""
        tiles = -(-problem.n // ROWS) * -(-problem.m // config.tokens) * config.split_k
        steps = -(-problem.k // problem.product.tile_k // config.split_k)
        exchange = SPLIT_US * (config.split_k > 1)
        return self._estimate(config, problem, gpu, tiles, gpu.sms, steps, config.tokens, exchange)

    def build(self, problem: Problem, config: SmallMConfig, pads_to_16b: bool) -> Any:
        """The kernel; it stores element by element, so `pads_to_16b` does not matter."""
        from ...kernels.blackwell import small_m

        return small_m.build(config, problem.product, problem.fusion)

    def per_tile(self, config: SmallMConfig, problem: Problem) -> dict[str, int]:
        """Like `gemm`, for a cluster: each of its CTAs that has a split of K uses its own columns."""
        k_tiles, cells = -(-problem.k // problem.product.tile_k), config.tokens * ROWS
        products, active = k_tiles * (TILE_K_BYTES // STEP_BYTES), min(config.split_k, k_tiles)
        return {
            "tcgen05": products,
            "tma_load_bytes": k_tiles * config.stage_bytes,
            "matrix_operand_bytes": products * (config.tokens + ROWS) * STEP_BYTES,
            "tensor_memory_product_bytes": (2 * products - active) * cells * CELL_BYTES,
            "tensor_memory_load_bytes": active * cells * CELL_BYTES,
        }

    def describe(self, config: SmallMConfig) -> str:
        split = f", K in {config.split_k} splits" if config.split_k > 1 else ""
        tile = f"{config.tokens} rows of A by {ROWS} of B, {config.stages} stages{split}"
        return f"Blackwell, few rows: {tile}; {self.unproven}"
