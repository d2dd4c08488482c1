"""The field's patterns by their names, composed from `lang`: pipelines, warp roles, epilogues (more with each rung)."""

from .cp_async_pipeline import CpAsyncPipeline
from .epilogue import packed, store_fragment, store_groups
from .operand_copy import OperandCopy
from .operands import row_block
from .roles import WARPGROUP, consumers, producer, warpgroup_index
from .swizzling import swizzled
from .tma_pipeline import Stage, TmaPipeline
from .warp_mma import WarpMma, warp_place
from .wgmma_mainloop import set_zero, store_accumulators, wgmma_accumulators, wgmma_stage

__all__ = [
    "WARPGROUP", "CpAsyncPipeline", "OperandCopy", "Stage", "TmaPipeline", "WarpMma", "consumers", "packed", "producer",
    "row_block", "set_zero", "store_accumulators", "store_fragment", "store_groups", "swizzled", "warp_place",
    "warpgroup_index", "wgmma_accumulators", "wgmma_stage",
]  # fmt: skip
