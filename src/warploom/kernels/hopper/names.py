"""Configurations by their names: "hopper_large:kernel_schedule=ping_pong,tile_n=192,stages=5", or the fields alone.

Evidence files of earlier versions have shorter names, which are read too:

    ping_pong_128x192x5_2b_g8        kernel schedule, tile and stages; 2 CTAs share B; raster bands of 8 tiles
    ..._tail, ..._cw                 the last wave is split in K; constant weights are loaded early
    n16_w64k2s5_S2c_o2_start_p6      16 rows of A, 64 of B, 2 k-tiles in each of 5 stages; K in 2 splits of a cluster,
                                     2 CTAs per SM, trigger at the start, 6 stages prefetched into L2
    s64x80_12_S2_f3                  a free tile: 64 rows of B by 80 of A, 12 stages, K in 2 splits, 3 stages into L2

Fields that such a name leaves open can follow it: "cooperative_256x192x3_2a_g8,epi_stages=3,pdl=0".
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ...errors import ArgumentError
from ..fields import from_words
from .description import BOX, SHARED_BYTES, Config, Product
from .free_tile_config import NAME, FreeTileConfig, named
from .small_m_config import SPLITS, TRIGGERS, SmallMConfig

_N = r"(\d{1,6})"  # longer numbers are not sizes
_LARGE = re.compile(rf"(cooperative|ping_pong|staggered)_{_N}x{_N}x{_N}(?:_(\d)([ab]))?_g{_N}(_tail)?(_cw)?", re.ASCII)
_SMALL = re.compile(
    rf"n{_N}_w{_N}k{_N}s{_N}(?:_(stream)|_S{_N}([cl]))?(?:_o(\d))?(?:_(start))?(_cw)?(?:_p{_N})?(_wide)?",
    re.ASCII,
)
KINDS: dict[str, Any] = {
    Config.family: Config,
    SmallMConfig.family: SmallMConfig,
    FreeTileConfig.family: FreeTileConfig,
}
WIDE_PING_PONG_COLUMNS = 160
"""Columns above which a second store box per consumer costs a stage."""


def any_config(text: str) -> Config | SmallMConfig | FreeTileConfig:
    """The configuration of a name, of any kind. Raises ArgumentError if the text is not a configuration."""
    family, colon, words = text.strip().partition(":")
    if colon and family in KINDS:
        return KINDS[family](**from_words(KINDS[family], words))
    if NAME.fullmatch(text.strip()):
        return named(text.strip())
    found = _SMALL.fullmatch(text.strip())
    return small_config(found) if found else large_config(text)


def small_config(found: re.Match[str]) -> SmallMConfig:
    """The configuration of a small-M kernel."""
    tokens, rows, k_tiles, stages, stream, split, by, per_sm, trigger, promise, prefetch, wide = found.groups()
    return SmallMConfig(
        tokens=int(tokens), rows=int(rows), k_tiles=int(k_tiles), stages=int(stages), split_k=int(split or 1),
        split_by="stream" if stream else next(name for name in SPLITS if name[0] == (by or "c")),
        ctas_per_sm=int(per_sm or 1), trigger=trigger or TRIGGERS[0], constant_weights=bool(promise),
        prefetch=int(prefetch or 0), vector_store=bool(wide),
    )  # fmt: skip


def large_config(text: str) -> Config:
    """The configuration of a large-product kernel. Raises ArgumentError if the text is not one."""
    first, _, rest = text.strip().removeprefix(f"{Config.family}:").partition(",")
    values: dict[str, Any] = {}
    if found := _LARGE.fullmatch(first.strip()):
        form, m, n, stages, ctas, shared, group, tail, promise = found.groups()
        values = {
            "kernel_schedule": form, "tile_m": int(m), "tile_n": int(n), "stages": int(stages), "ctas": int(ctas or 1),
            "multicast": shared or "b", "group": int(group), "split_tail": bool(tail),
            "constant_weights": bool(promise),
        }  # fmt: skip
        if form != "ping_pong" and int(m) % 128:
            values["consumers"] = int(m) // 64
    else:
        rest = text.strip().removeprefix(f"{Config.family}:")
    try:
        values |= from_words(Config, rest)
    except ArgumentError as error:
        if found or "=" in rest:
            raise
        raise _unknown(text) from error
    if not values:
        raise _unknown(text)
    config = Config(**values)
    return with_epi_stages(config) if found and "epi_stages" not in values else config


def _unknown(text: str) -> ArgumentError:
    fields = ", ".join(field.name for field in dataclasses.fields(Config))
    return ArgumentError(
        "this is not a configuration of the Hopper GEMM",
        expected=f"FIELD=VALUE of {fields}, as in kernel_schedule=ping_pong,stages=5", got=text[:200] or repr(text),
    )  # fmt: skip


def with_epi_stages(config: Config) -> Config:
    """The configuration with the number of store boxes that its name leaves open: a staggered consumer's whole block,
    otherwise two, or as many as fit next to the stages."""
    epi_stages = -(-config.tile_n // BOX) if config.kernel_schedule == "staggered" else 2
    if config.kernel_schedule == "ping_pong" and config.tile_n > WIDE_PING_PONG_COLUMNS:
        epi_stages = 1
    while epi_stages > 1 and dataclasses.replace(config, epi_stages=epi_stages).shared_bytes(Product()) > SHARED_BYTES:
        epi_stages -= 1
    return dataclasses.replace(config, epi_stages=epi_stages)
