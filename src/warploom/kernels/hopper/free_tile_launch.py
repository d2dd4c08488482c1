"""The launch of a free tile's kernel: its arguments A, W and D, its grid and its resources."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ...lang import Kernel, Tile, kernel
from ...lang.tile import Scalar
from .description import Product
from .free_tile_config import FreeTileConfig


def traced(
    body: Callable[..., None], names: Mapping[str, Tile | Scalar], product: Product, config: FreeTileConfig, grid: Any,
    over: str = "",
) -> Kernel:  # fmt: skip
    """The kernel of a body that takes the arguments `names` and D, under the body's name. over: an argument whose
    memory D may share."""
    positional = inspect.Parameter.POSITIONAL_ONLY
    body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, positional) for name in (*names, "D")]
    )
    return kernel(
        in_specs=tuple(names.values()),
        out_specs=(result(product, config, over),),
        grid=grid,
        block=config.threads,
        cluster=(config.ctas, 1, 1),
        arch="sm_90a",
        registers=config.launch_registers,
        pdl=config.pdl,
        name=body.__name__,
    )(body)


def operands(product: Product, config: FreeTileConfig) -> dict[str, Tile]:
    """A and W. An operand that CTAs share is loaded in slices, which are never clipped."""
    tile_k = config.k_tiles * product.tile_k
    return {
        "A": Tile.wgmma_b("M", "K", product.a, major="K", tile_n=config.tokens, tile_k=tile_k, ragged=True,
                          clipped=config.along_weights == 1),
        "W": Tile.wgmma_a("N", "K", product.b, tile_m=config.weights, tile_k=tile_k, ragged=True,
                          clipped=config.along_tokens == 1),
    }  # fmt: skip


def result(product: Product, config: FreeTileConfig, over: str = "") -> Tile:
    """D. Rows stored in 16-byte units must begin at multiples of 16 bytes; otherwise they begin anywhere."""
    if config.vector_store:
        return Tile("M", "N", product.out, multiple=(1, 8), order="rows", over=over)
    return Tile("M", "N", product.out, over=over)
