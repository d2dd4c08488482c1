"""The field's patterns by their names, composed from `lang`: pipelines, warp roles, epilogues (more with each rung)."""

from .epilogue import store_fragment
from .operands import row_block
from .roles import WARPGROUP, consumers, producer, warpgroup_index
from .tma_pipeline import Stage, TmaPipeline

__all__ = [
    "WARPGROUP", "Stage", "TmaPipeline", "consumers", "producer", "row_block", "store_fragment", "warpgroup_index",
]  # fmt: skip
