"""The tile of a product that communicates: 128 rows for two consumers, as many columns as fill the waves best."""

from __future__ import annotations

from functools import lru_cache

from .description import BOX, RING_BARRIERS, SHARED_BYTES, TILE_K_BYTES, Config

__all__ = ["CONFIG", "choose"]

CONFIG = Config(ctas=1, pdl=False)
"""128 x 256."""
COLUMNS = (256, 224, 208, 192, 176, 160, 144, 128)
BOX_COLUMNS = 64
"""Of 16-bit results in a store box."""
END = 24
"""Columns that could be multiplied while a tile ends and the next one begins."""
NEAR = 0.02
"""Of the time: within it, a wider tile loads less for each product."""
RING_BYTES = CONFIG.stages * (CONFIG.tile_m + CONFIG.tile_n) * TILE_K_BYTES


@lru_cache(maxsize=256)
def choose(rows: int, columns: int, ranks: int, sms: int, *, staged: bool = False) -> Config:
    """For a product whose rows are in `ranks` parts of `rows`: the widest tile that is within `NEAR` of the fewest
    columns of time in all its rounds, with all the stages that fit where CONFIG does.

    staged: with room for a whole tile of 16-bit results in shared memory, in place of stages.
    """
    down = -(-rows // CONFIG.tile_m) * ranks

    def time(tile_n: int) -> int:
        return -(-down * -(-columns // tile_n) // sms) * (tile_n + END)

    most = (1 + NEAR) * min(map(time, COLUMNS))
    tile_n = next(each for each in COLUMNS if time(each) <= most)
    of_stage = (CONFIG.tile_m + tile_n) * TILE_K_BYTES
    if not staged:
        return Config(ctas=1, pdl=False, tile_n=tile_n, stages=RING_BYTES // of_stage)
    boxes = -(-tile_n // BOX_COLUMNS)
    room = SHARED_BYTES - RING_BARRIERS - CONFIG.consumers * boxes * BOX * TILE_K_BYTES
    return Config(ctas=1, pdl=False, tile_n=tile_n, stages=room // of_stage, epi_stages=boxes)
