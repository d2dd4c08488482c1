"""Tiles of grouped GEMMs, chosen by the average number of rows of a group.

Measured on an H200 with bf16, N = 4096, K = 7168, next to a loop of cuBLAS calls. The fastest tile is 128 x 256 for 8
groups of 512 rows, 64 x 128 for 64 groups of 64, 128 x 192 for 64 groups of 0 to 512.
"""

from __future__ import annotations

from .description import Config

CONFIG = Config(tile_m=128, tile_n=256, stages=4, epi_stages=1, ctas=1)
"""For groups of some hundred rows."""
MEDIUM_GROUPS = Config(tile_m=128, tile_n=192, stages=5, epi_stages=1, ctas=1)
"""For groups of about a hundred rows, some of them short."""
NARROW = Config(tile_m=128, tile_n=128, stages=6, epi_stages=1, ctas=1)
"""For products whose larger tiles would leave much of a wave empty."""
SMALL_GROUPS = Config(tile_m=64, tile_n=128, consumers=1, stages=8, epi_stages=2, ctas=1)
"""For groups of up to 64 rows: a larger tile would multiply rows that are not there."""
CHOICES = (CONFIG, MEDIUM_GROUPS, NARROW, SMALL_GROUPS)
FEW_ROWS, SOME_ROWS = 64, 256
"""Average rows per group up to which the small tile, and the medium tile, is chosen."""
FILL_BYTES = 58
"""Bytes per cycle that L2 delivers to each SM when all SMs load."""


def choose(rows: int, groups: int, n: int, sms: int) -> Config:
    """The tile for groups of `rows` rows in total on `sms` SMs."""
    average = rows / groups
    if average <= FEW_ROWS:
        return SMALL_GROUPS
    if average <= SOME_ROWS:
        return MEDIUM_GROUPS

    def cycles(config: Config) -> float:
        tiles = groups * -(-average // config.tile_m) * -(-n // config.tile_n)
        fill = (config.tile_m + config.tile_n) * 128 / FILL_BYTES
        return -(-tiles // sms) * max(config.tile_m * config.tile_n / 32, fill)

    return min((CONFIG, MEDIUM_GROUPS, NARROW), key=cycles)
