"""Building blocks of a kernel under the field's names; no operation by name.

    pipeline/   rings of stages in shared memory: filled by TMA or by cp.async
    mma/        the matrix units: mma.sync of a warp, wgmma of a warpgroup
    tile/       which tile a CTA computes, in which order, and what its warps do: schedulers, rasters, clusters, roles
    epilogue/   what happens to accumulators on their way to memory, and the ways there
    reduce/     sums and maxima across lanes, CTAs of a cluster, and CTAs of a grid

The names below can be imported from here. They are looked up when first used (PEP 562), because the descriptions
(`epilogue.spec`, `tile.sizes`) are also read where nothing is traced.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    "epilogue.direct_store": "store_accumulators store_fragment store_groups",
    "epilogue.tma_store": "TmaStore",
    "mma.fragment": "Fragment pack unpack",
    "mma.warp": "WarpMma warp_place",
    "mma.wgmma": "WGMMA_ROWS set_zero wgmma_accumulators wgmma_stage",
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

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return found
