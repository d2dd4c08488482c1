"""Which configurations are worth a thought for a problem: all that fit, by arithmetic on shared memory and registers.

The list is made from the problem's sizes, never from names of known shapes. `model` ranks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ..kernels.hopper.decode_config import FEW_TOKENS, GROUP_ROWS, DecodeConfig
from ..kernels.hopper.decode_config import choose as choose_decode
from ..kernels.hopper.description import SHARED_BYTES, TILE_K_BYTES, Config, Fusion, Product
from .spec.gpu import Gpu
from .spec.problem import Problem
from .views import round_up

AnyConfig: TypeAlias = Config | DecodeConfig

MOST_STAGES = 8
DECODE_ROWS = 256
"""More rows of A than this are no case for the small-M kernels."""
DECODE_FIRST = 128
"""Rows of A up to which the small-M kernels, and tiles cut to whole waves, go first."""
MOST_COLUMNS = 256
_PLAIN = Fusion()


@dataclass(frozen=True)
class Shape:
    """A tile and who computes it, before stages and clusters are decided."""

    form: str
    tile_m: int
    consumers: int
    columns: tuple[int, ...]
    slots: int


SHAPES = (
    Shape("ping_pong", 64, 2, (64, 96, 128, 160, 192, 256), 1),
    Shape("ping_pong", 128, 2, (64, 96, 128, 144, 160, 176, 192, 208), 1),
    Shape("cooperative", 128, 2, (64, 96, 128, 144, 160, 176, 192, 208, 224, 240, 256), 2),
    Shape("cooperative", 192, 3, (128, 160, 176, 192), 1),
    Shape("cooperative", 256, 2, (64, 96, 112, 128, 144, 160, 176, 192, 208), 2),
    Shape("staggered", 256, 2, (96, 112, 128, 144, 160, 176, 192), 2),
)
"""Rows in the forms that the generator builds, columns in steps that a wave's tail can use."""


def candidates(problem: Problem, gpu: Gpu, *, all_of_them: bool = False) -> list[AnyConfig]:
    """Configurations for a problem on a GPU of sm_90, in no particular order. Each of them can be built.

    all_of_them: also small-M configurations beside the one that the kernel's rule gives, to be timed.
    """
    if problem.promoted:
        return list(block_scaled(problem, gpu))
    usual = list(hopper(problem, gpu))
    return [
        *decode(problem, gpu, all_of_them),
        *usual,
        *(each for each in whole_waves(problem, gpu) if each not in usual),
    ]


def block_scaled(problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """Three consumers of 64 rows, or two of 128; one CTA each, for a drain at every block couples a cluster's CTAs."""
    from ..kernels.hopper import block_scaled as kernel

    for config in (kernel.CONFIG, kernel.LARGE_ROWS):
        if fits(config, problem.product, problem.fusion):
            yield replace(config, group=band(config, gpu))


def hopper(problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """Tiles, clusters and rings of the large-product kernels."""
    for shape in SHAPES:
        if shape.tile_m >= 2 * round_up(problem.m, 64):
            continue  # half of the tile would multiply nothing
        widths = [n for n in shape.columns if n < 2 * round_up(problem.n, 16)] or list(shape.columns[:1])
        for tile_n in widths:
            plain = Config(
                form=shape.form,
                tile_m=shape.tile_m,
                tile_n=tile_n,
                consumers=shape.consumers,
                slots=shape.slots,
                ctas=1,
            )
            for config in clustered(plain, problem, gpu):
                filled = with_stages(config, problem.product, problem.fusion)
                if filled is not None:
                    yield filled


def whole_waves(problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """For few rows of A, but so many that the small-M kernel suffers where its tiles leave a wave half empty: columns
    cut so that every multiprocessor has as many tiles, one or two or as many as must be."""
    if not FEW_TOKENS < problem.m <= DECODE_FIRST or problem.n <= GROUP_ROWS * gpu.sms:
        return
    rows = round_up(problem.m, 64)
    waves = -(-problem.n // (MOST_COLUMNS * gpu.sms))
    for each in (waves, waves + 1):
        narrow = problem.product.a.is_float and problem.product.b_major == "K"
        columns = round_up(-(-problem.n // (each * gpu.sms)), 8 if narrow else 16)
        plain = Config("cooperative", rows, columns, consumers=rows // 64, slots=2, ctas=1)
        config = with_stages(replace(plain, group=band(plain, gpu)), problem.product, problem.fusion)
        if config is not None and columns > GROUP_ROWS:
            yield config


def clustered(config: Config, problem: Problem, gpu: Gpu) -> Iterator[Config]:
    """One CTA, and two that share the longer operand tile (either, where the last wave's tiles are split: that changes
    how many are left); not where the second would have nothing to do."""
    yield replace(config, ctas=1, shared="b", group=band(config, gpu))
    # a tile that is read MN-major is loaded whole, by each CTA: it is not cut for the multicast
    product = problem.product
    majors = {"a": product.a_major, "b": product.b_major}
    longer = "b" if config.tile_n >= config.tile_m else "a"
    shared = False
    for operand in (longer, "a" if longer == "b" else "b"):
        across = problem.m > config.tile_m if operand == "b" else problem.n > config.tile_n
        rows = config.tile_n if operand == "b" else config.tile_m
        if not across or majors[operand] != "K" or rows % 16:
            continue
        pair = replace(config, ctas=2, shared=operand)
        pair = replace(pair, group=band(pair, gpu))
        if not shared:
            yield pair
            shared = True
        if config.form != "ping_pong" and config.consumers == 2 and has_tail(pair, problem, gpu):
            yield replace(pair, split_tail=True)


def has_tail(config: Config, problem: Problem, gpu: Gpu) -> bool:
    """Whether the last wave is at most half full, so that two CTAs can take each of its tiles."""
    rows, columns = config.cluster_tile
    tiles, clusters = -(-problem.m // rows) * -(-problem.n // columns), gpu.sms // config.ctas
    return tiles > clusters and 0 < tiles % clusters <= clusters // 2


def band(config: Config, gpu: Gpu) -> int:
    """Height of a raster band: the clusters that run together cover a square of D, so they read least."""
    rows, columns = config.cluster_tile
    clusters = gpu.sms // config.ctas
    height = max(1.0, (clusters * columns / rows) ** 0.5)
    return min(16, max(1, 1 << round_log2(height)))


def round_log2(value: float) -> int:
    """The whole number nearest to log2."""
    power = 0
    while 2**power * 1.4142 < value:
        power += 1
    return power


def with_stages(config: Config, product: Product, fusion: Fusion = _PLAIN) -> Config | None:
    """The configuration with as many stages as shared memory holds, or None where there is no room for what its form
    needs. Fewer store boxes are taken where the stages would be too few."""
    wanted = 2 if config.form == "ping_pong" else 3
    stage = (config.tile_m + config.tile_n) * TILE_K_BYTES
    for slots in range(config.slots, 0, -1):
        room = SHARED_BYTES - replace(config, slots=slots, stages=0).shared_bytes(product, fusion)
        stages = min(MOST_STAGES, room // stage)
        if stages >= wanted:
            break
    else:
        return None
    made = replace(config, slots=slots, stages=stages)
    for more in (2, 1):
        wider = replace(made, slots=slots + more)
        if stages < MOST_STAGES and wider.shared_bytes(product, fusion) <= SHARED_BYTES:
            made = wider
            break
    return made if fits(made, product, fusion) else None


def fits(config: AnyConfig, product: Product, fusion: Fusion) -> bool:
    """Whether a kernel can be built from a configuration, without spills."""
    return config._problem(product, fusion) is None and config.fits_registers(product, fusion)


def decode(problem: Problem, gpu: Gpu, all_of_them: bool) -> Iterator[DecodeConfig]:
    """The small-M kernel, where it can do what is asked."""
    fusion = problem.fusion
    if problem.m > DECODE_ROWS or fusion.scale_out or fusion.amax or fusion.scales == "block128":
        return
    yield from decode_variants(problem, gpu)[: None if all_of_them else 1]


def decode_variants(problem: Problem, gpu: Gpu) -> list[DecodeConfig]:
    """The configuration of the kernel's own rule, which was made from readings, and those beside it."""
    product, found = problem.product, []
    chosen = choose_decode(problem.m, problem.n, problem.k, gpu.sms, product, constant_weights=problem.constant_weights)
    for config in (
        chosen,
        replace(chosen, split=1, split_by="cluster").filled(),
        replace(chosen, split=2, split_by="cluster").filled(),
        replace(chosen, rows=128).filled(),
        replace(chosen, rows=64).filled(),
    ):
        if config.split == 1:
            config = replace(config, split_by="cluster")
        if config not in found and fits(config, product, problem.fusion):
            found.append(config)
    return found


def check(config: Any, problem: Problem) -> None:
    """Raise ArgumentError or ArgumentTypeError where a configuration that somebody pinned does not fit."""
    from ..errors import ArgumentError, ArgumentTypeError

    if not isinstance(config, (Config, DecodeConfig)):
        raise ArgumentTypeError(
            "config= is no configuration of a kernel",
            expected="a name as `warploom explain` shows it, or an object: warploom.kernels.hopper.description.Config, "
            "warploom.kernels.hopper.decode_config.DecodeConfig",
            got=repr(config),
        )
    config.check(problem.product, problem.fusion)
    if isinstance(config, DecodeConfig):
        if problem.promoted:
            raise ArgumentError(
                "the small-M kernel does not promote its sums", expected="a cooperative Config of one CTA",
                got=config.name(), hint="leave config= to the library",
            )  # fmt: skip
        if config.wide and problem.n % 8:
            raise ArgumentError(
                f"{config.name()} stores rows of D in whole 16 bytes", expected="N a multiple of 8, or wide=False",
                got=f"N = {problem.n}",
            )  # fmt: skip
