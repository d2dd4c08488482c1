"""The tile of a communicating product: 128 rows for two consumers, and the number of columns that fills waves best."""

from __future__ import annotations

from functools import lru_cache

from .description import BOX, PANEL, RING_BARRIER_BYTES, SHARED_BYTES, TILE_K_BYTES, Config

__all__ = ["CONFIG", "choose"]

CONFIG = Config(ctas=1, pdl=False)
"""128 x 256."""
COLUMNS = (256, 224, 208, 192, 176, 160, 144, 128)
BOX_COLUMNS = 64
"""Columns of 16-bit results in a store box."""
END = 24
"""Cost of an epilogue and the start of the next tile, in columns that could be multiplied in that time."""
NEAR = 0.02
"""Share of the time within which a wider tile is preferred, because it loads less per product."""
RING_BYTES = CONFIG.stages * (CONFIG.tile_m + CONFIG.tile_n) * TILE_K_BYTES


@lru_cache(maxsize=256)
def choose(
    rows: int, columns: int, ranks: int, sms: int, *, staged: bool = False, slots: bool = False, b_major: str = "K"
) -> Config:  # fmt: skip
    """Choose the tile for a product with `ranks` parts of `rows` rows: the widest one whose time over all waves is
    within `NEAR` of the shortest, with as many stages as fit in CONFIG's shared memory.

    staged: reserve a buffer for a whole tile of 16-bit results in shared memory, at the cost of stages. Two CTAs then
    share B, if the number of parts, whose rows of tiles they take in turns, is even.
    slots: have one store box per consumer, which leaves shared memory for the slots of `pushed_by_tma`.
    b_major: an MN-major B is read at full rate only in whole panels.
    """
    widths = [tile_n for tile_n in COLUMNS if b_major == "K" or tile_n % PANEL == 0]
    down = -(-rows // CONFIG.tile_m) * ranks

    def time(tile_n: int) -> int:
        return -(-down * -(-columns // tile_n) // sms) * (tile_n + END)

    most = (1 + NEAR) * min(map(time, widths))
    tile_n = next(each for each in widths if time(each) <= most)
    of_stage = (CONFIG.tile_m + tile_n) * TILE_K_BYTES
    if not staged:
        boxes = 1 if slots else CONFIG.epi_stages
        return Config(ctas=1, pdl=False, tile_n=tile_n, stages=RING_BYTES // of_stage, epi_stages=boxes)
    boxes = -(-tile_n // BOX_COLUMNS)
    room = SHARED_BYTES - RING_BARRIER_BYTES - CONFIG.consumers * boxes * BOX * TILE_K_BYTES
    ctas = 1 if ranks % 2 else 2
    return Config(ctas=ctas, pdl=False, tile_n=tile_n, stages=room // of_stage, epi_stages=boxes)
