"""The tile of a product that communicates: 128 rows for two consumers, as many columns as fill the waves best."""

from __future__ import annotations

from functools import lru_cache

from .description import TILE_K_BYTES, Config

__all__ = ["CONFIG", "choose"]

CONFIG = Config(ctas=1, pdl=False)
"""128 x 256."""
COLUMNS = (256, 224, 208, 192, 176, 160, 144, 128)
END = 24
"""Columns that could be multiplied while a tile ends and the next one begins."""
NEAR = 0.02
"""Of the time: within it, a wider tile loads less for each product."""
RING_BYTES = CONFIG.stages * (CONFIG.tile_m + CONFIG.tile_n) * TILE_K_BYTES


@lru_cache(maxsize=256)
def choose(rows: int, columns: int, ranks: int, sms: int) -> Config:
    """For a product whose rows are in `ranks` parts of `rows`: the widest tile that is within `NEAR` of the fewest
    columns of time in all its rounds, with all the stages that fit where CONFIG does."""
    down = -(-rows // CONFIG.tile_m) * ranks

    def time(tile_n: int) -> int:
        return -(-down * -(-columns // tile_n) // sms) * (tile_n + END)

    most = (1 + NEAR) * min(map(time, COLUMNS))
    tile_n = next(each for each in COLUMNS if time(each) <= most)
    return Config(ctas=1, pdl=False, tile_n=tile_n, stages=RING_BYTES // ((CONFIG.tile_m + tile_n) * TILE_K_BYTES))
