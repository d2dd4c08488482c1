"""Which configurations are worth a thought for a problem: all that fit, by arithmetic on shared memory and registers.

The list is made from the problem's sizes, never from names of known shapes. `model` ranks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ..kernels.hopper.decode_config import DecodeConfig
from ..kernels.hopper.decode_config import choose as choose_decode
from ..kernels.hopper.description import BOX, SHARED_BYTES, TILE_K_BYTES, Config, Product
from .problem import Problem
from .views import round_up

AnyConfig: TypeAlias = Config | DecodeConfig

BARRIER_BYTES = 1024
MOST_STAGES = 8
MOST_ACCUMULATORS = 208
"""Accumulators of one thread that two consumers have room for; with three consumers, 128."""
MOST_OF_THREE = 128
DECODE_ROWS = 256
"""More rows of A than this are no case for the small-M kernels."""


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
    Shape("cooperative", 192, 3, (128, 160, 192, 256), 1),
    Shape("cooperative", 256, 2, (64, 96, 112, 128, 144, 160, 176, 192, 208), 2),
    Shape("staggered", 256, 2, (96, 128, 160, 192), 2),
)
"""Rows in the forms that the generator builds, columns in steps that a wave's tail can use."""


def candidates(problem: Problem, *, all_of_them: bool = False) -> list[AnyConfig]:
    """Configurations for a problem on a GPU of sm_90, in no order. Every one of them can be built.

    all_of_them: also small-M configurations beside the one that the kernel's rule gives, to be timed.
    """
    if problem.promoted:
        return list(block_scaled(problem))
    return [*decode(problem, all_of_them), *hopper(problem)]


def block_scaled(problem: Problem) -> Iterator[Config]:
    """Three consumers of 64 rows, or two of 128; one CTA each, for a drain at every block couples a cluster's CTAs."""
    from ..kernels.hopper import block_scaled as kernel

    for config in (kernel.CONFIG, kernel.LARGE_ROWS):
        if config._problem(problem.product) is None:
            yield replace(config, group=band(config))


def hopper(problem: Problem) -> Iterator[Config]:
    """Tiles, clusters and rings of the large-product kernels."""
    product = problem.product
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
            for config in clustered(plain, problem):
                filled = with_stages(config, product)
                if filled is not None:
                    yield filled


def clustered(config: Config, problem: Problem) -> Iterator[Config]:
    """One CTA, and two that share the longer operand tile; not where the second would have nothing to do."""
    yield replace(config, ctas=1, shared="b", group=band(config))
    # a tile that is read MN-major is loaded whole, by each CTA: it is not cut for the multicast
    product = problem.product
    majors = {"a": product.a_major, "b": product.b_major}
    shared = "b" if config.tile_n >= config.tile_m else "a"
    for operand in (shared, "a" if shared == "b" else "b"):
        across = problem.m > config.tile_m if operand == "b" else problem.n > config.tile_n
        rows = config.tile_n if operand == "b" else config.tile_m
        if not across or majors[operand] != "K" or rows % 16:
            continue
        pair = replace(config, ctas=2, shared=operand)
        pair = replace(pair, group=band(pair))
        yield pair
        if config.form != "ping_pong" and has_tail(pair, problem):
            yield replace(pair, split_tail=True)
        break


def has_tail(config: Config, problem: Problem, sms: int = 132) -> bool:
    """Whether the last wave is at most half full, so that two CTAs can take each of its tiles."""
    rows, columns = config.cluster_tile
    tiles, clusters = -(-problem.m // rows) * -(-problem.n // columns), sms // config.ctas
    return tiles > clusters and 0 < tiles % clusters <= clusters // 2


def band(config: Config) -> int:
    """Height of a raster band: the clusters that run together cover a square of D, so they read least."""
    rows, columns = config.cluster_tile
    clusters = 132 // config.ctas
    height = max(1.0, (clusters * columns / rows) ** 0.5)
    return min(16, max(1, 1 << round_log2(height)))


def round_log2(value: float) -> int:
    """The whole number nearest to log2."""
    power = 0
    while 2**power * 1.4142 < value:
        power += 1
    return power


def with_stages(config: Config, product: Product) -> Config | None:
    """The configuration with as many stages as shared memory holds, or None where there is no room for two."""
    most = MOST_ACCUMULATORS if config.consumers < 3 else MOST_OF_THREE
    if config.rows * config.tile_n // 128 > most:
        return None
    wanted = 2 if config.form == "ping_pong" else 3
    boxes = config.slots * config.consumers * BOX * TILE_K_BYTES
    stage = (config.tile_m + config.tile_n) * TILE_K_BYTES
    stages = min(MOST_STAGES, (SHARED_BYTES - BARRIER_BYTES - boxes) // stage)
    if stages < wanted:
        return None
    spare = SHARED_BYTES - BARRIER_BYTES - boxes - stages * stage
    more = min(2, spare // (config.consumers * BOX * TILE_K_BYTES)) if stages < MOST_STAGES else 0
    made = replace(config, stages=stages, slots=config.slots + more)
    return made if made._problem(product) is None else None


def decode(problem: Problem, all_of_them: bool) -> Iterator[DecodeConfig]:
    """The small-M kernel, where it can do what is asked."""
    fusion = problem.fusion
    if problem.m > DECODE_ROWS or fusion.scale_out or fusion.amax or fusion.scales == "block128":
        return
    yield from decode_variants(problem)[: None if all_of_them else 1]


def decode_variants(problem: Problem) -> list[DecodeConfig]:
    """The configuration of the kernel's own rule, which was made from readings, and those beside it."""
    product, found = problem.product, []
    chosen = choose_decode(problem.m, problem.n, problem.k, product, constant_weights=problem.constant_weights)
    for config in (
        chosen,
        replace(chosen, split=1, split_by="cluster").filled(),
        replace(chosen, split=2, split_by="cluster").filled(),
        replace(chosen, rows=128).filled(),
        replace(chosen, rows=64).filled(),
    ):
        if config.split == 1:
            config = replace(config, split_by="cluster")
        if config not in found and config._problem(product) is None:
            found.append(config)
    return found


def check(config: Any, problem: Problem) -> None:
    """Raise ArgumentError or ArgumentTypeError where a configuration that somebody pinned does not fit."""
    from ..errors import ArgumentTypeError

    if not isinstance(config, (Config, DecodeConfig)):
        raise ArgumentTypeError(
            "config= is no configuration of a kernel",
            expected="warploom.kernels.hopper.description.Config or decode_config.DecodeConfig, or None",
            got=repr(config),
        )
    config.check(problem.product)
