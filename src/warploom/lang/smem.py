"""Shared memory: `smem.array`, `smem.mbarrier`, `smem.wgmma_tile`, `smem.umma_tile`.

`shared` allocates plain memory and barriers, `operand_tile` the tiles that TMA fills and the matrix unit reads.
"""

from .operand_tile import OperandTile, TileSlice, operand_layout, tile, umma_tile, wgmma_tile
from .shared import SYMBOL, BarrierAddress, BarrierArray, SharedAddress, SharedArray, array, mbarrier

__all__ = [
    "SYMBOL", "BarrierAddress", "BarrierArray", "SharedAddress", "SharedArray", "TileSlice", "OperandTile", "array",
    "mbarrier", "operand_layout", "tile", "umma_tile", "wgmma_tile",
]  # fmt: skip
