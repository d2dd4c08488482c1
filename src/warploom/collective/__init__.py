"""Building blocks of kernels, under the names of the field; none is specific to an operation.

    pipeline/   rings of stages in shared memory, filled by TMA or by cp.async
    mma/        the matrix units of a warp and of a warpgroup
    tile/       the tiles of a CTA, their order, and the roles of its warps: schedulers, rasters, clusters, roles
    epilogue/   operations on accumulators before the store, and the stores
    reduce/     sums and maxima across lanes, CTAs of a cluster, and CTAs of a grid

The names below can be imported from here. They are looked up at their first use (PEP 562), because `epilogue.spec` and
`tile.sizes` are also imported where nothing is traced.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    "epilogue.direct_store": "store_accumulators store_fragment store_groups",
    "epilogue.tma_store": "TmaStore",
    "mma.fragment": "Fragment pack unpack",
    "mma.warp": "WarpMma warp_place",
    "pipeline.cp_async": "CpAsyncPipeline",
    "pipeline.operand_copy": "OperandCopy",
    "pipeline.swizzling": "swizzled",
    "pipeline.tma": "Stage State TmaPipeline",
    "tile.ordered_barrier": "OrderedBarrier",
    "tile.queue": "TileQueue",
    "tile.roles": "WARPGROUP consumers each_consumer each_producer producer warpgroup_index",
    "tile.scheduler": "Persistent TileCoord",
    "tile.sizes": "persistent_grid",
}
_HOME_OF = {name: home for home, names in _NAMES.items() for name in names.split()}

_RENAMED = {
    "FusedEnd": "epilogue.apply.Epilogue", "OneTile": "TileCoord, from ptx.special.ctaid", "Place": "TileCoord",
    "Scaled": "epilogue.apply.Epilogue", "Scaling": "epilogue.spec.Fusion", "Turns": "OrderedBarrier",
    "clusters": "tile.cluster", "k_tiles": "warploom.kernels.gemm_mainloop.k_tiles",
    "load_tiles": "TmaPipeline.produce", "multiply_tiles": "warploom.kernels.gemm_mainloop.ConsumerLoop",
    "packed": "pack", "row_block": "TileSlice.rows, which takes a register",
}  # fmt: skip
"""Names of version 0.1, and their replacements."""

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        raise AttributeError(f"{__name__}.{name} has a new name: {_RENAMED[name]}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return found
