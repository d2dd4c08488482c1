"""The tiles of grouped GEMMs, and what the kernel can be built from.

`operators.families.grouped` ranks the tiles by the rows of an average group.
"""

from __future__ import annotations

from ...collective.tile.sizes import MOST_GROUPS
from ...errors import ArgumentError
from .description import BOX, RING_BARRIER_BYTES, SHARED_BYTES, TILE_K_BYTES, Config, Fusion, Product

ROW_TILES_BYTES = 4 * (MOST_GROUPS + 1)
"""Shared memory beside the ring and the store boxes: the number of row tiles before each group."""
MOST_VECTORS = 2
"""Vectors along the columns: scales and a bias, of which each consumer has a part in shared memory."""
MOST_STAGES = 8
TILES = (
    (64, 64), (64, 128), (64, 192), (64, 256), (128, 64), (128, 128), (128, 192), (128, 256), (256, 64), (256, 96),
    (256, 128),
)  # fmt: skip
"""Rows and columns of the tiles. One of 64 rows has one consumer, the others have two."""


def tile(tile_m: int, tile_n: int, kernel_schedule: str = "cooperative") -> Config:
    """The configuration of a tile, with as many stages as fit beside its store boxes and vectors."""
    alone = kernel_schedule == "ping_pong"  # each consumer has a tile
    consumers = 1 if tile_m == BOX and not alone else 2
    epi_stages = 2 if consumers == 1 else 1
    boxes = consumers * epi_stages * BOX * TILE_K_BYTES
    vectors = 4 * consumers * (tile_m // (1 if alone else consumers) + MOST_VECTORS * tile_n)
    room = SHARED_BYTES - RING_BARRIER_BYTES - ROW_TILES_BYTES - boxes - vectors
    stages = min(MOST_STAGES, room // ((tile_m + tile_n) * TILE_K_BYTES))
    return Config(
        kernel_schedule=kernel_schedule, tile_m=tile_m, tile_n=tile_n, consumers=consumers, stages=stages,
        epi_stages=epi_stages, ctas=1,
    )  # fmt: skip


PING_PONG = ((64, 128), (64, 192), (64, 256), (128, 128), (128, 192))
"""Rows and columns of the tiles of two consumers that multiply in turns, each a tile of its own: one stores while the
other multiplies, which counts for a short K."""
CHOICES = (*(tile(*each) for each in TILES), *(tile(*each, "ping_pong") for each in PING_PONG))
CONFIG, MEDIUM_GROUPS = tile(128, 256), tile(128, 128, "ping_pong")
WIDE_GROUPS, SMALL_GROUPS = tile(64, 256, "ping_pong"), tile(64, 128, "ping_pong")
"""For groups that fill whole tiles; of some hundred rows; of several times 64; and of up to 64, where a larger tile
would multiply rows that are not there."""


def check(product: Product, config: Config, fusion: Fusion) -> None:
    """Raise ArgumentError if the grouped kernel cannot be built."""
    config.check(product)
    if config.kernel_schedule == "staggered" or config.ctas != 1 or "MN" in (product.a_major, product.b_major):
        raise ArgumentError(
            f"the grouped kernel cannot be built as {config.name()}",
            expected="a cooperative or ping-pong form, one CTA, both operands contiguous in k",
            got=f"{product}, {config}",
            code="configuration",
        )
    fusion.check(product.out)
    if fusion.bias == "row" or fusion.gate or fusion.addend or fusion.scale_out or fusion.amax:
        raise ArgumentError(
            "the grouped kernel lacks this epilogue", expected="scales, alpha, a bias of the column, an activation",
            got=fusion,
        )  # fmt: skip
