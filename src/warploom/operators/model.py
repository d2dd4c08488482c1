"""How long a configuration takes, by arithmetic: the ranking behind every choice that nobody has timed.

    cycles   waves x (k-tiles x max(tensor core, fill) + exposed end) + first fill + last store
    clock    falls a little with activity and with energy; most of it is a property of the card, not of the kernel
    memory   bytes of A, B and D at the rate that memory gives

The constants were fitted to one prototype's readings on an H200 (seven tiles on sixteen shapes, which are in
`tests/operators/readings.py`). They order configurations; they do not predict microseconds to a percent. `warploom
tune` measures.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..kernels.hopper.decode_config import DecodeConfig
from ..kernels.hopper.description import TILE_K_BYTES, Config, Fusion
from .candidates import DECODE_FIRST, AnyConfig, whole_waves
from .spec.gpu import Gpu
from .spec.problem import Problem

TENSOR_TILE = 32
"""Elements of an output tile that a multiprocessor's tensor core advances by one k-tile of 128 bytes in a cycle."""
FILL_BYTES = 58.0
"""Bytes per cycle that L2 gives one multiprocessor when all ask."""
SMEM_BYTES = 128
"""Bytes per cycle that wgmma reads from shared memory."""
END_FIXED, END_EACH = 450.0, 12.8
"""Cycles of a tile's end: fixed, and for each accumulator of a thread (16-bit output)."""
FUSED = {"relu": 4.0, "gelu": 75.0, "gelu_tanh": 75.0, "silu": 65.0}
"""What an activation adds to END_EACH. gelu was read, with a bias: 27 us in four waves of 256 x 128 tiles; the
others go by their instructions, of which the exponential and the reciprocal take 8 cycles for a warp."""
FUSED_VECTOR, FUSED_ARRAY, FUSED_FACTOR = 20.0, 25.0, 2.0
"""The same for a vector along the columns (its loads are waited for box by box), for a gate or C, and for a factor."""
STAGGERED_SHARE, PING_PONG_END = 0.71, 150.0
RAMP, PAIR_RAMP = 3000.0, 1700.0
"""Cycles before the first tile is multiplied and after the last is stored, that no form hides; what pairs of CTAs add,
which meet before the first tile and after the last."""
TAIL_EXTRA = 2500.0
"""Cycles of exchanging a split tile's halves."""
BASE_MHZ, BASE_ACTIVITY, MOST_MHZ = 1335.0, 0.95, 1760.0
"""The clock inside a kernel of 128 x 256 tiles at the power limit, and without it."""
CLOCK_POWER = 0.08
REFERENCE_FILL = 48.0
"""Bytes per cycle that such a kernel fills without multicast."""
PROMOTION = 0.5
"""Cycles for each accumulator of a thread that is promoted and that no third consumer hides."""
FILL_ABOVE, FILL_BELOW = 1.11, 0.24
"""What a share more, or less, of them adds to or takes from the energy of a product."""
MULTICAST_SAVES = 0.01
ALONE = 1.005
"""CTAs without a partner read each operand for themselves; the readings are of pairs, so they must promise more."""
MEMORY, MEMORY_BESIDE = 4.35e6, 0.12
"""Bytes per microsecond that a product reads and writes at best; share of the other work that it does not hide."""
DECODE_MEMORY, DECODE_RAMP_US = 4.35e6, 2.2
DECODE_SPLIT_US = 1.2
DECODE_TURNOVER = ((32, 0.1), (64, 0.4), (256, 1.0))
"""Share of a half-empty last wave that is lost, by the tokens of a tile: the next kernel's first loads fill most of it
where a CTA leaves room for another. Read at N of 10240 to 28672."""
SM_MEMORY = 0.052e6
"""Bytes per microsecond that one multiprocessor can take alone."""


@dataclass(frozen=True)
class Estimate:
    """What the model says of one configuration.

    Attributes:
        time_us: microseconds.
        waves: rounds of tiles, each as long as the longest.
        wave_efficiency: share of the tiles' places that are used.
        activity: share of the time in which tensor cores multiply something that counts.
        fill: bytes per cycle that each multiprocessor is filled with.
        exposed: share of the time that ends of tiles take.
        clock_mhz: assumed.
        bound: "tensor cores", "fill" or "memory".
    """

    time_us: float
    waves: float
    wave_efficiency: float
    activity: float
    fill: float
    exposed: float
    clock_mhz: float
    bound: str


def estimate(config: AnyConfig, problem: Problem, gpu: Gpu) -> Estimate:
    """The estimate for all products of a problem, one launch each."""
    sms = gpu.sms
    one = estimate_decode(config, problem, sms) if isinstance(config, DecodeConfig) else _large(config, problem, sms)
    if problem.count == 1:
        return one
    return Estimate(one.time_us * problem.count, *_rest(one))


def _rest(one: Estimate) -> tuple[float, float, float, float, float, float, str]:
    return one.waves, one.wave_efficiency, one.activity, one.fill, one.exposed, one.clock_mhz, one.bound


def _large(config: Config, problem: Problem, sms: int) -> Estimate:
    m, n = problem.m, problem.n
    k_tiles = -(-problem.k // problem.product.tile_k)
    rows, columns = config.cluster_tile
    tiles = -(-m // rows) * -(-n // columns)
    clusters = max(1, sms // config.ctas)
    waves, extra = _waves(tiles, clusters, config)

    tensor = config.tile_m * config.tile_n / TENSOR_TILE * _narrow(config.tile_n)
    shared = config.tile_n if config.shared == "b" else config.tile_m
    filled = (config.tile_m + config.tile_n - (shared / 2 if config.ctas == 2 else 0)) * TILE_K_BYTES
    step = max(tensor, filled / FILL_BYTES)
    if problem.promoted:
        step += PROMOTION * config.rows * config.tile_n / 128 / (config.consumers if config.consumers > 2 else 1)
    end = _end(config, problem, k_tiles * step)
    ramp = RAMP + (PAIR_RAMP if config.ctas == 2 else 0)
    cycles = waves * (k_tiles * step + end) + extra + ramp + _whole_end(config, problem)
    useful = problem.m * problem.n * k_tiles / TENSOR_TILE / sms
    activity = min(1.0, useful / cycles)

    bytes_per_cycle = (config.tile_m + config.tile_n) * TILE_K_BYTES / tensor
    clock = _clock(activity * _narrow(config.tile_n), bytes_per_cycle, config.ctas)
    time = cycles / clock * (1.0 if config.ctas == 2 else ALONE)
    memory = problem.bytes / problem.count / MEMORY
    bound = "memory" if memory > time else "fill" if step > tensor else "tensor cores"
    efficiency = (m * n) / (waves * clusters * rows * columns)
    return Estimate(
        max(time, memory) + MEMORY_BESIDE * min(time, memory) * (bound == "memory"), waves, efficiency, activity,
        filled / step, (waves * end) / cycles, clock, bound,
    )  # fmt: skip


def _waves(tiles: int, clusters: int, config: Config) -> tuple[float, float]:
    """Rounds of tiles, and cycles that a split tail adds."""
    full, rest = divmod(tiles, clusters)
    if config.split_tail and rest and full and rest <= clusters // 2:
        return full + 0.5, TAIL_EXTRA
    return float(full + (rest > 0)), 0.0


def _narrow(tile_n: int) -> float:
    """How much longer a wgmma takes than its products, for it reads 64 rows of A however few columns it has."""
    return max(1.0, (64 + tile_n) * 32 / SMEM_BYTES / (tile_n / 2))


def _whole_end(config: Config, problem: Problem) -> float:
    """Cycles to convert, transform and store a consumer's part."""
    each = END_EACH * max(1.0, problem.product.out.bytes / 2) + fused_cycles(problem.fusion)
    return END_FIXED + each * config.accumulators


def fused_cycles(fusion: Fusion) -> float:
    """Cycles that a fused end adds for each accumulator of a thread, two consumers at work."""
    vectors = (fusion.scales == "row") + (fusion.bias == "column")
    factors = fusion.alpha + (fusion.scales == "tensor") + (fusion.bias == "row") + fusion.scale_out + 2 * fusion.amax
    activation = FUSED[fusion.activation] if fusion.activation else 0.0
    arrays = fusion.gate + fusion.addend
    return activation + FUSED_VECTOR * vectors + FUSED_ARRAY * arrays + FUSED_FACTOR * factors


def _end(config: Config, problem: Problem, main: float) -> float:
    """Cycles of a tile's end in which its multiprocessor does not multiply."""
    whole = _whole_end(config, problem)
    if config.form == "ping_pong":
        return PING_PONG_END + max(0.0, whole - main)
    return whole * STAGGERED_SHARE if config.form == "staggered" else whole


def _clock(activity: float, bytes_per_cycle: float, ctas: int) -> float:
    """MHz inside the kernel, at the power limit or below the highest clock."""
    ratio = bytes_per_cycle / REFERENCE_FILL - 1
    energy = 1 + (FILL_ABOVE if ratio > 0 else FILL_BELOW) * ratio + (0 if ctas == 2 else MULTICAST_SAVES)
    return min(MOST_MHZ, BASE_MHZ * (BASE_ACTIVITY / (max(activity, 0.05) * energy)) ** CLOCK_POWER)


def estimate_decode(config: DecodeConfig, problem: Problem, sms: int) -> Estimate:
    """The small-M kernel: memory's time, what the multiprocessors that have a tile can take, and the hand-over."""
    tiles = config.tiles(problem.m, problem.n) * config.split
    places = sms * config.ctas_per_sm
    waves = -(-tiles // places)
    bytes_ = problem.bytes / problem.count
    whole = config.tiles(problem.m, problem.n) * config.stage_bytes / config.k_tiles
    filled = whole * -(-problem.k // problem.product.tile_k)
    memory = bytes_ / min(DECODE_MEMORY, min(tiles, sms) * SM_MEMORY)
    fill = filled / (min(tiles, sms) * FILL_BYTES * MOST_MHZ)
    tensor = filled / (config.rows + config.tokens) / TILE_K_BYTES * config.rows * config.tokens / TENSOR_TILE
    tensor *= max(1.0, (64 + config.tokens) * 32 / SMEM_BYTES / (config.tokens / 2))
    tensor /= min(tiles, sms) * MOST_MHZ
    busy = max(memory, fill, tensor)
    partial = waves * places / tiles if waves > 1 else 1.0
    lost = next(share for tokens, share in DECODE_TURNOVER if config.tokens <= tokens)
    time = busy * (1 + lost * (partial - 1)) + DECODE_RAMP_US + (DECODE_SPLIT_US if config.split > 1 else 0)
    bound = "memory" if busy == memory else "fill" if busy == fill else "tensor cores"
    return Estimate(
        time, float(waves), tiles / (waves * places), tensor / time, filled / (time * MOST_MHZ) / min(tiles, sms), 0.0,
        MOST_MHZ, bound,
    )  # fmt: skip


def ranked(configs: list[AnyConfig], problem: Problem, gpu: Gpu) -> list[tuple[AnyConfig, Estimate]]:
    """Configurations with their estimates, the fastest first; equals by name, so that the order is the same always.

    Up to 128 rows what was made for them, by readings, goes first whatever the estimates of the rest: the small-M
    kernel, and tiles cut to whole waves.
    """
    timed = [(config, estimate(config, problem, gpu)) for config in configs]
    whole = set(whole_waves(problem, gpu))

    def order(pair: tuple[AnyConfig, Estimate]) -> tuple[bool, float, str]:
        made_for_few = isinstance(pair[0], DecodeConfig) or pair[0] in whole
        return not (made_for_few and problem.m <= DECODE_FIRST), pair[1].time_us, pair[0].name()

    return sorted(timed, key=order)
