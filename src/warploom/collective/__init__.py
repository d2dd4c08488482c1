"""The field's patterns by their names, composed from `lang`: pipelines, warp roles, epilogues (more with each rung)."""

from . import clusters
from .cp_async_pipeline import CpAsyncPipeline
from .epilogue import packed, store_fragment, store_groups
from .mainloop import k_tiles, load_tiles, multiply_tiles
from .operand_copy import OperandCopy
from .operands import row_block
from .roles import WARPGROUP, consumers, each_consumer, producer, warpgroup_index
from .scaling import Scaled, Scaling
from .schedule import OneTile, Persistent, Place, persistent_grid
from .swizzling import swizzled
from .tma_pipeline import Stage, State, TmaPipeline
from .tma_store import TmaStore
from .turns import Turns
from .warp_mma import WarpMma, warp_place
from .wgmma_mainloop import WGMMA_ROWS, set_zero, store_accumulators, wgmma_accumulators, wgmma_stage

__all__ = [
    "WARPGROUP", "WGMMA_ROWS", "CpAsyncPipeline", "OneTile", "OperandCopy", "Persistent", "Place", "Scaled",
    "Scaling", "Stage", "State", "TmaPipeline", "TmaStore", "Turns", "WarpMma", "clusters", "consumers",
    "each_consumer", "k_tiles", "load_tiles", "multiply_tiles", "packed", "persistent_grid", "producer",
    "row_block", "set_zero", "store_accumulators", "store_fragment", "store_groups", "swizzled", "warp_place",
    "warpgroup_index", "wgmma_accumulators", "wgmma_stage",
]  # fmt: skip
