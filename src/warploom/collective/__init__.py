"""The field's patterns by their names, composed from `lang`: pipelines, warp roles, epilogues (more with each rung).

Names are looked up when first used (PEP 562): `sizes` and `fusion` are asked where nothing is traced.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import clusters as clusters
    from .cp_async_pipeline import CpAsyncPipeline as CpAsyncPipeline
    from .epilogue import packed as packed
    from .epilogue import store_fragment as store_fragment
    from .epilogue import store_groups as store_groups
    from .mainloop import k_tiles as k_tiles
    from .mainloop import load_tiles as load_tiles
    from .mainloop import multiply_tiles as multiply_tiles
    from .operand_copy import OperandCopy as OperandCopy
    from .operands import row_block as row_block
    from .roles import WARPGROUP as WARPGROUP
    from .roles import consumers as consumers
    from .roles import each_consumer as each_consumer
    from .roles import each_producer as each_producer
    from .roles import producer as producer
    from .roles import warpgroup_index as warpgroup_index
    from .scaling import Scaled as Scaled
    from .scaling import Scaling as Scaling
    from .schedule import OneTile as OneTile
    from .schedule import Persistent as Persistent
    from .schedule import Place as Place
    from .sizes import persistent_grid as persistent_grid
    from .swizzling import swizzled as swizzled
    from .tma_pipeline import Stage as Stage
    from .tma_pipeline import State as State
    from .tma_pipeline import TmaPipeline as TmaPipeline
    from .tma_store import TmaStore as TmaStore
    from .turns import Turns as Turns
    from .warp_mma import WarpMma as WarpMma
    from .warp_mma import warp_place as warp_place
    from .wgmma_mainloop import WGMMA_ROWS as WGMMA_ROWS
    from .wgmma_mainloop import set_zero as set_zero
    from .wgmma_mainloop import store_accumulators as store_accumulators
    from .wgmma_mainloop import wgmma_accumulators as wgmma_accumulators
    from .wgmma_mainloop import wgmma_stage as wgmma_stage

_NAMES = {
    "cp_async_pipeline": "CpAsyncPipeline",
    "epilogue": "packed store_fragment store_groups",
    "mainloop": "k_tiles load_tiles multiply_tiles",
    "operand_copy": "OperandCopy",
    "operands": "row_block",
    "roles": "WARPGROUP consumers each_consumer each_producer producer warpgroup_index",
    "scaling": "Scaled Scaling",
    "schedule": "OneTile Persistent Place",
    "sizes": "persistent_grid",
    "swizzling": "swizzled",
    "tma_pipeline": "Stage State TmaPipeline",
    "tma_store": "TmaStore",
    "turns": "Turns",
    "warp_mma": "WarpMma warp_place",
    "wgmma_mainloop": "WGMMA_ROWS set_zero store_accumulators wgmma_accumulators wgmma_stage",
}
_HOME_OF = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "WARPGROUP", "WGMMA_ROWS", "CpAsyncPipeline", "OneTile", "OperandCopy", "Persistent", "Place", "Scaled",
    "Scaling", "Stage", "State", "TmaPipeline", "TmaStore", "Turns", "WarpMma", "clusters", "consumers",
    "each_consumer", "each_producer", "k_tiles", "load_tiles", "multiply_tiles", "packed", "persistent_grid",
    "producer", "row_block", "set_zero", "store_accumulators", "store_fragment", "store_groups", "swizzled",
    "warp_place", "warpgroup_index", "wgmma_accumulators", "wgmma_stage",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "clusters":
        return import_module(".clusters", __name__)
    if name in _HOME_OF:
        found = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
