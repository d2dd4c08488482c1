"""The large-product kernels of Hopper: a family of the choice, and their estimated times (`estimate` has the model)."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

from ...collective.epilogue.spec import Fusion
from ...kernels.hopper.description import PANEL, TILE_K_BYTES, Config, Product
from ...kernels.hopper.free_tile_choice import SMALL_M_ROWS
from ...kernels.hopper.staggered import MIN_K_TILES
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from .estimate import FILL_BYTES, MEMORY, MOST_MHZ, TENSOR_TILE, Estimate, narrowness, of_h200_clock
from .family import KernelFamily
from .free_tile import computes
from .hopper_large_tiles import (
    MOST_ROWS,
    cached_whole_waves,
    fits,
    for_short_k,
    hopper,
    whole_waves,
)

END_FIXED, END_EACH = 450.0, 12.8
"""Cycles of a tile's epilogue: fixed, and for each accumulator of a thread (16-bit output)."""
FUSED = {"relu": 4.0, "gelu": 75.0, "gelu_tanh": 75.0, "silu": 2.0}
"""What an activation adds to END_EACH. gelu was measured with a bias: 27 us in four waves of 256 x 128 tiles; silu with
a gate, 1.2 more than an addend, the median of 32 pairs, of which half are between -23 and 12 (fused-ends.json). The
others follow from their instructions, of which the exponential and the reciprocal take 8 cycles for a warp."""
FUSED_VECTOR, FUSED_ARRAY, FUSED_FACTOR = 20.0, 25.0, 2.0
"""The same for a vector along the columns (its loads are waited for box by box), for a gate or C, and for a factor."""
STAGGERED_SHARE, PING_PONG_END = 0.71, 150.0
RAMP, PAIR_RAMP = 3000.0, 1700.0
"""Cycles before the first tile is multiplied and after the last is stored, which no form hides; extra cycles of pairs
of CTAs, which synchronise before the first tile and after the last."""
TAIL_EXTRA = 2500.0
"""Cycles to exchange a split tile's halves."""
BASE_MHZ, BASE_ACTIVITY = 1335.0, 0.95
"""The clock inside a kernel of 128 x 256 tiles at the power limit."""
CLOCK_POWER = 0.08
REFERENCE_FILL = 48.0
"""Bytes per cycle that such a kernel loads without multicast."""
PROMOTION = 0.5
"""Cycles for each promoted accumulator of a thread that no third consumer hides."""
FILL_ABOVE, FILL_BELOW = 1.11, 0.24
"""Change in the energy of a product per change in this share."""
MULTICAST_SAVES = 0.01
ALONE = 1.005
"""CTAs without a partner read each operand themselves; measurements are of pairs, so they must promise more."""
NARROW_SWIZZLE = {64: 1.0, 32: 1.3, 16: 1.8}
"""How much longer an MMA takes that reads an MN-major B in panels of so many columns: on an H100, by
`benchmarks/sweep.py --layouts`."""
OUTSIDE_ROW = 6.0
"""Cycles of a row of k of an MN-major box that is outside the tensor."""
SHALLOW_STEP = 40.0
"""Cycles that a shallow stage takes besides its MMAs."""
MEMORY_EXPOSED = 0.12
"""Share of the other work that the memory time does not hide."""


def estimate(config: Config, problem: Problem, gpu: Gpu) -> Estimate:
    """The estimate for one product."""
    sms = gpu.sms
    m, n = problem.m, problem.n
    tile_k = config.stage_k(problem.product)
    k_tiles, depth = -(-problem.k // tile_k), tile_k / problem.product.tile_k
    rows, columns = config.cluster_tile
    tiles = -(-m // rows) * -(-n // columns)
    clusters = max(1, sms // config.ctas)
    waves, extra = _waves(tiles, clusters, config)

    tensor = config.tile_m * config.tile_n / TENSOR_TILE * narrowness(config.tile_n) * depth
    if problem.product.b_major == "MN":
        tensor *= NARROW_SWIZZLE[gcd(config.tile_n, PANEL)]
    shared = config.tile_n if config.multicast == "b" else config.tile_m
    filled = (config.tile_m + config.tile_n - (shared / 2 if config.ctas == 2 else 0)) * TILE_K_BYTES * depth
    step = max(tensor, filled / FILL_BYTES) + SHALLOW_STEP * (depth < 1)
    if problem.promoted:
        step += PROMOTION * config.rows * config.tile_n / 128 / (config.consumers if config.consumers > 2 else 1)
    end = _end(config, problem, k_tiles * step)
    ramp = RAMP + (PAIR_RAMP if config.ctas == 2 else 0)
    loaded = max(k_tiles, MIN_K_TILES) if config.kernel_schedule == "staggered" else k_tiles
    outside = (loaded * tile_k - problem.k) * OUTSIDE_ROW * _transposed_panels(config, problem.product)
    cycles = waves * (k_tiles * step + outside + end) + extra + ramp + _whole_end(config, problem)
    useful = problem.m * problem.n * k_tiles * depth / TENSOR_TILE / sms
    activity = min(1.0, useful / cycles)

    bytes_per_cycle = (config.tile_m + config.tile_n) * TILE_K_BYTES * depth / tensor
    clock = _clock(activity * narrowness(config.tile_n), bytes_per_cycle, config.ctas, gpu)
    time = cycles / clock * (1.0 if config.ctas == 2 else ALONE)
    memory = problem.bytes / problem.count / MEMORY
    bound = "memory" if memory > time else "fill" if step > tensor else "tensor cores"
    efficiency = (m * n) / (waves * clusters * rows * columns)
    return Estimate(
        max(time, memory) + MEMORY_EXPOSED * min(time, memory) * (bound == "memory"), waves, efficiency, activity,
        filled / step, (waves * end) / cycles, clock, bound,
    )  # fmt: skip


def _transposed_panels(config: Config, of: Product) -> int:
    """The number of panels of a stage that are read MN-major, whose boxes have rows of k."""
    widths = ((of.a_major, config.tile_m), (of.b_major, config.tile_n))
    return sum(-(-width // PANEL) for major, width in widths if major == "MN")


def _waves(tiles: int, clusters: int, config: Config) -> tuple[float, float]:
    """Waves of tiles, and cycles that a split tail adds."""
    full, rest = divmod(tiles, clusters)
    if config.split_tail and rest and full and rest <= clusters // 2:
        return full + 0.5, TAIL_EXTRA
    return float(full + (rest > 0)), 0.0


def _whole_end(config: Config, problem: Problem) -> float:
    """Cycles to convert, transform and store a consumer's part."""
    each = END_EACH * max(1.0, problem.product.out.bytes / 2) + fused_cycles(problem.fusion)
    return END_FIXED + each * config.accumulators


def fused_cycles(fusion: Fusion) -> float:
    """Cycles that a fused epilogue adds for each accumulator of a thread, with two consumers at work."""
    vectors = (fusion.scales == "row") + (fusion.bias == "column")
    factors = fusion.alpha + (fusion.scales == "tensor") + (fusion.bias == "row") + fusion.scale_out + 2 * fusion.amax
    activation = FUSED[fusion.activation] if fusion.activation else 0.0
    arrays = fusion.gate + fusion.addend
    return activation + FUSED_VECTOR * vectors + FUSED_ARRAY * arrays + FUSED_FACTOR * factors


def _end(config: Config, problem: Problem, main: float) -> float:
    """Cycles of a tile's epilogue in which its multiprocessor does not multiply."""
    whole = _whole_end(config, problem)
    if config.kernel_schedule == "ping_pong":
        return PING_PONG_END + max(0.0, whole - main)
    return whole * STAGGERED_SHARE if config.kernel_schedule == "staggered" else whole


def _clock(activity: float, bytes_per_cycle: float, ctas: int, gpu: Gpu) -> float:
    """MHz inside the kernel, at the power limit or below the highest clock."""
    ratio = bytes_per_cycle / REFERENCE_FILL - 1
    energy = 1 + (FILL_ABOVE if ratio > 0 else FILL_BELOW) * ratio + (0 if ctas == 2 else MULTICAST_SAVES)
    return min(
        MOST_MHZ * of_h200_clock(gpu), BASE_MHZ * (BASE_ACTIVITY / (max(activity, 0.05) * energy)) ** CLOCK_POWER
    )


MOST_BESIDE = 8
"""Tiles that are candidates even if there are free tiles."""


def _best(problem: Problem, gpu: Gpu) -> list[Config]:
    """The first by the model, one for each tile."""
    found: dict[tuple[object, ...], Config] = {}
    for config in sorted(hopper(problem, gpu), key=lambda each: estimate(each, problem, gpu).time_us):
        found.setdefault((config.kernel_schedule, config.tile_m, config.tile_n, config.tile_k), config)
    return list(found.values())[:MOST_BESIDE]


class HopperLarge(KernelFamily):
    """Tiles, clusters and rings of `kernels.hopper.gemm`."""

    name, arch, config = "hopper_large", "sm_90a", Config

    def takes(self, problem: Problem) -> bool:
        """Everything but promoted sums."""
        return not problem.promoted

    def candidates(self, problem: Problem, gpu: Gpu, every: bool = False) -> list[Config]:
        """All configurations that fit."""
        if computes(problem) and not every:
            found = _best(problem, gpu) if problem.m > SMALL_M_ROWS else []
        else:
            found = list(dict.fromkeys([*hopper(problem, gpu), *whole_waves(problem, gpu)]))
        return list(dict.fromkeys([*found, *(more for each in found for more in for_short_k(each, problem))]))

    def goes_first(self, config: Config, problem: Problem, gpu: Gpu) -> bool:
        """Tiles cut to whole waves, which measurements prefer if there are no free tiles."""
        return problem.m <= MOST_ROWS and not computes(problem) and config in cached_whole_waves(problem, gpu)

    def fits(self, config: Config, problem: Problem) -> bool:
        return fits(config, problem.product, problem.fusion)

    def estimate(self, config: Config, problem: Problem, gpu: Gpu) -> Estimate:
        return estimate(config, problem, gpu)

    def promised(self, config: Config) -> Config:
        return replace(config, constant_weights=config.pdl and config.ctas == 1)

    def tile(self, config: Config) -> tuple[Any, ...]:
        """Configurations that differ only in other fields are similar: `tune` times few of them."""
        return config.kernel_schedule, config.tile_m, config.tile_n, config.tile_k

    def build(self, problem: Problem, config: Config, pads_to_16b: bool) -> Any:
        """The kernel. pads_to_16b: it may write past the end of a row, up to a multiple of 16 bytes."""
        from ...kernels.hopper import gemm

        return gemm.build(problem.product, config, problem.fusion, **({"pads_to_16b": True} if pads_to_16b else {}))

    def describe(self, config: Config) -> str:
        pair = f", pairs of CTAs share {config.multicast.upper()}" if config.ctas == 2 else ""
        tail = ", two CTAs for each tile of the last wave" if config.split_tail else ""
        form = config.kernel_schedule.replace("_", "-")
        return f"{form}: tiles of {config.tile_m} x {config.tile_n}, {config.stages} stages{pair}{tail}"
