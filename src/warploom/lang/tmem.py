"""Tensor memory: `tmem.alloc`, `tmem.reserve`, and the tiles in an allocation (sm_100)."""

from .accumulator import Accumulator, AccumulatorBuffer, TensorFragment
from .tensor_address import TensorAddress, TensorTile
from .tensor_memory import TensorMemory, alloc, reserve

__all__ = [
    "Accumulator", "AccumulatorBuffer", "TensorAddress", "TensorFragment", "TensorMemory", "TensorTile", "alloc",
    "reserve",
]  # fmt: skip
