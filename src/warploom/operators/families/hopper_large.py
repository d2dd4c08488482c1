"""The large-product kernels of Hopper: the configurations worth considering, and their estimated times.

Candidates follow from the problem's sizes by arithmetic on shared memory and registers, never from known shapes.
`estimate` has the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Any

from ...collective.epilogue.spec import Fusion
from ...kernels.hopper.description import PANEL, SHALLOW, SHARED_BYTES, TILE_K_BYTES, Config, Product
from ...kernels.hopper.free_tile_choice import SMALL_M_ROWS
from ...kernels.hopper.staggered import MIN_K_TILES
from ..spec.gpu import Gpu
from ..spec.problem import Problem
from ..views import round_up
from .estimate import FILL_BYTES, MEMORY, MOST_MHZ, TENSOR_TILE, Estimate, narrowness
from .family import KernelFamily
from .free_tile import computes

MOST_STAGES, FEWEST_STAGES = 8, {"ping_pong": 2, "cooperative": 3, "staggered": 3}
L2_BYTES = 50e6
SHORT_K_BYTES = 1024
"""Bytes of a row of A up to which K is short; see `for_short_k`."""
SHALLOW_STAGES = 8
"""Shallow stages of K up to which they are candidates: each costs time, and more of them hide the rows of a box that
are outside."""
HALF_STAGES_K = range(256, 385)
"""K of which stages of half a k-tile are candidates even if they leave no fewer rows outside: 5120 x 2560 x 302 in
benchmarks/results/nvidia-h100/sweep-short-k.json."""
FEWEST_ROWS, MOST_ROWS = 32, 128
"""Range of rows of A in which columns are cut to whole waves."""
LEAST_COLUMNS, MOST_COLUMNS = 64, 256
_PLAIN = Fusion()


@dataclass(frozen=True)
class Shape:
    """A tile and its consumers, before stages and clusters are decided."""

    kernel_schedule: str
    tile_m: int
    consumers: int
    columns: tuple[int, ...]
    epi_stages: int


SHAPES = (
    Shape("ping_pong", 64, 2, (64, 96, 128, 160, 192, 256), 1),
    Shape("ping_pong", 128, 2, (64, 96, 128, 144, 160, 176, 192, 208), 1),
    Shape("cooperative", 128, 2, (64, 96, 128, 144, 160, 176, 192, 208, 224, 240, 256), 2),
    Shape("cooperative", 192, 3, (128, 160, 176, 192), 1),
    Shape("cooperative", 256, 2, (64, 96, 112, 128, 144, 160, 176, 192, 208), 2),
    Shape("staggered", 256, 2, (96, 112, 128, 144, 160, 176, 192), 2),
)
"""Rows in the forms that the generator builds, columns in steps that suit the tail of a wave."""


# -- candidates ----------------------------------------------------------------------------------------------------


def hopper(problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """Tiles, clusters and rings of the large-product kernels."""
    for shape in SHAPES:
        if shape.tile_m >= 2 * round_up(problem.m, 64):
            continue  # half of the tile would be padding
        columns = [n for n in shape.columns if n % column_step(problem.product) == 0]
        widths = [n for n in columns if n < 2 * round_up(problem.n, 16)] or columns[:1]
        for tile_n, tile_k in itertools.product(widths, depths(problem)):
            plain = Config(
                kernel_schedule=shape.kernel_schedule,
                tile_m=shape.tile_m,
                tile_n=tile_n,
                consumers=shape.consumers,
                epi_stages=shape.epi_stages,
                ctas=1,
                tile_k=tile_k,
            )
            if has_idle_consumer(plain, problem, gpu):
                continue
            for config in clustered(plain, problem, gpu):
                filled = with_stages(config, problem.product, problem.fusion)
                if filled is not None:
                    yield filled


def has_idle_consumer(config: Config, problem: Problem, gpu: Gpu) -> bool:
    """True for a ping-pong kernel whose CTAs get one tile at most: the other warpgroup has none. A cooperative kernel
    of the same tile gives each half of it; a tile of 64 rows cannot be halved."""
    tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
    return config.kernel_schedule == "ping_pong" and config.tile_m > 64 and tiles <= gpu.sms


def column_step(of: Product) -> int:
    """The step of a tile's columns. An MN-major B at any other width has a narrower swizzle and is read at as little as
    half the rate (`NARROW_SWIZZLE`)."""
    return PANEL if of.b_major == "MN" else 8 if of.a.is_float else 16


def depths(problem: Problem) -> list[int]:
    """Values of `tile_k`: 0, and for a short K of MN-major operands those that leave fewer rows of boxes outside."""
    if "K" in (problem.product.a_major, problem.product.b_major):
        return [0]
    rows = {each: -(-problem.k // each) * each for each in (problem.product.tile_k, *sorted(SHALLOW, reverse=True))}
    found = [0]
    for tile_k, covered in rows.items():
        fewest = rows[found[-1] or problem.product.tile_k]
        half = tile_k == max(SHALLOW) and covered == fewest and covered in HALF_STAGES_K
        if half or (covered < fewest and covered <= SHALLOW_STAGES * tile_k):
            found.append(tile_k)
    return found


def whole_waves(problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """Columns cut so that every multiprocessor has the same number of tiles: for few rows of A, but so many that the
    small-M kernel is slow because its tiles leave a wave half empty."""
    if not FEWEST_ROWS < problem.m <= MOST_ROWS or problem.n <= LEAST_COLUMNS * gpu.sms:
        return
    rows = round_up(problem.m, 64)
    waves = -(-problem.n // (MOST_COLUMNS * gpu.sms))
    for each in (waves, waves + 1):
        columns = round_up(-(-problem.n // (each * gpu.sms)), column_step(problem.product))
        plain = Config("cooperative", rows, columns, consumers=rows // 64, epi_stages=2, ctas=1)
        config = with_stages(replace(plain, group=band(plain, gpu)), problem.product, problem.fusion)
        if config is not None and columns > LEAST_COLUMNS:
            yield config


@lru_cache(maxsize=64)
def _whole_waves(problem: Problem, gpu: Gpu) -> frozenset[Config]:
    return frozenset(whole_waves(problem, gpu))


def clustered(config: Config, problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """One CTA, and two that share the longer operand tile (either, if the last wave's tiles are split: that changes
    how many remain); not if the second would have nothing to do."""
    yield replace(config, ctas=1, multicast="b", group=band(config, gpu))
    majors = {"a": problem.product.a_major, "b": problem.product.b_major}
    longer = "b" if config.tile_n >= config.tile_m else "a"
    shared = False
    for operand in (longer, "a" if longer == "b" else "b"):
        across = problem.m > config.tile_m if operand == "b" else problem.n > config.tile_n
        rows = config.tile_n if operand == "b" else config.tile_m
        if not across or rows % (16 if majors[operand] == "K" else 2 * PANEL):
            continue  # slices are rows of a K-major tile, and panels of an MN-major one
        pair = replace(config, ctas=2, multicast=operand)
        pair = replace(pair, group=band(pair, gpu))
        if not shared:
            yield pair
            shared = True
        splits = config.kernel_schedule != "ping_pong" and config.consumers == 2 and not config.tile_k
        if splits and has_tail(pair, problem, gpu):
            yield replace(pair, split_tail=True)


def has_tail(config: Config, problem: Problem, gpu: Gpu) -> bool:
    """True if the last wave is at most half full, so that two CTAs can take each of its tiles."""
    rows, columns = config.cluster_tile
    tiles, clusters = -(-problem.m // rows) * -(-problem.n // columns), gpu.sms // config.ctas
    return tiles > clusters and 0 < tiles % clusters <= clusters // 2


def band(config: Config, gpu: Gpu) -> int:
    """Height of a raster band: clusters that run together cover a square of D, so they read least."""
    rows, columns = config.cluster_tile
    clusters = gpu.sms // config.ctas
    height = max(1.0, (clusters * columns / rows) ** 0.5)
    return min(16, max(1, 1 << round_log2(height)))


def round_log2(value: float) -> int:
    """log2, rounded to the nearest integer."""
    power = 0
    while 2**power * 1.4142 < value:
        power += 1
    return power


@lru_cache(maxsize=4096)
def with_stages(config: Config, product: Product, fusion: Fusion = _PLAIN) -> Config | None:
    """The configuration with as many stages as shared memory holds, or None if its form does not fit. Fewer store
    boxes are used if the stages would be too few."""
    wanted = FEWEST_STAGES[config.kernel_schedule]
    stage = config.stage_bytes(product)
    for epi_stages in range(config.epi_stages, 0, -1):
        room = SHARED_BYTES - replace(config, epi_stages=epi_stages, stages=0).shared_bytes(product, fusion)
        stages = min(MOST_STAGES, room // stage)
        if stages >= wanted:
            break
    else:
        return None
    made = replace(config, epi_stages=epi_stages, stages=stages)
    for more in (2, 1):
        wider = replace(made, epi_stages=epi_stages + more)
        if stages < MOST_STAGES and wider.shared_bytes(product, fusion) <= SHARED_BYTES:
            made = wider
            break
    return made if fits(made, product, fusion) else None


def for_short_k(config: Config, problem: Problem) -> Iterator[Config]:
    """For a short K, the configuration with store boxes for half or all of a consumer's tile, at the cost of stages: a
    consumer that waits for a box multiplies nothing. And tiles row by row, so that memory gets whole rows of D. A D
    larger than L2 is marked to be evicted first, so that A and B stay there: 3 to 12 % faster on the median in
    benchmarks/results/nvidia-h100/sweep-store-order.json."""
    product, fusion = problem.product, problem.fusion
    if problem.k * product.a.bytes > SHORT_K_BYTES:
        return
    count = config.boxes(product)
    for boxes in {config.epi_stages, -(-count // 2), count}:
        room = SHARED_BYTES - replace(config, epi_stages=boxes, stages=0).shared_bytes(product, fusion)
        stages = min(MOST_STAGES, room // config.stage_bytes(product))
        made = replace(config, epi_stages=boxes, stages=stages)
        if boxes < config.epi_stages or stages < FEWEST_STAGES[config.kernel_schedule]:
            continue
        made = replace(made, evict_first=problem.m * problem.n * product.out.bytes > L2_BYTES)
        yield from (each for each in (made, replace(made, group=1)) if each != config and fits(each, product, fusion))


def fits(config: Config, product: Product, fusion: Fusion) -> bool:
    """True if a kernel can be built from a configuration without spills."""
    return config.violated(product, fusion) is None and config.fits_registers(product, fusion)


# -- the model -----------------------------------------------------------------------------------------------------

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
    clock = _clock(activity * narrowness(config.tile_n), bytes_per_cycle, config.ctas)
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


def _clock(activity: float, bytes_per_cycle: float, ctas: int) -> float:
    """MHz inside the kernel, at the power limit or below the highest clock."""
    ratio = bytes_per_cycle / REFERENCE_FILL - 1
    energy = 1 + (FILL_ABOVE if ratio > 0 else FILL_BELOW) * ratio + (0 if ctas == 2 else MULTICAST_SAVES)
    return min(MOST_MHZ, BASE_MHZ * (BASE_ACTIVITY / (max(activity, 0.05) * energy)) ** CLOCK_POWER)


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
        return problem.m <= MOST_ROWS and not computes(problem) and config in _whole_waves(problem, gpu)

    def fits(self, config: Config, problem: Problem) -> bool:
        return fits(config, problem.product, problem.fusion)

    def estimate(self, config: Config, problem: Problem, gpu: Gpu) -> Estimate:
        return estimate(config, problem, gpu)

    def promised(self, config: Config) -> Config:
        return replace(config, constant_weights=config.pdl and config.ctas == 1)

    def tile(self, config: Config) -> tuple[Any, ...]:
        """Configurations that differ only in other fields are similar: `tune` times few of them."""
        return config.kernel_schedule, config.tile_m, config.tile_n, config.tile_k

    def build(self, problem: Problem, config: Config, overhang: bool) -> Any:
        """The kernel. overhang: it may write past the end of a row, up to a multiple of 16 bytes."""
        from ...kernels.hopper import gemm

        return gemm.build(problem.product, config, problem.fusion, **({"overhang": True} if overhang else {}))

    def describe(self, config: Config) -> str:
        pair = f", pairs of CTAs share {config.multicast.upper()}" if config.ctas == 2 else ""
        tail = ", two CTAs for each tile of the last wave" if config.split_tail else ""
        form = config.kernel_schedule.replace("_", "-")
        return f"{form}: tiles of {config.tile_m} x {config.tile_n}, {config.stages} stages{pair}{tail}"
