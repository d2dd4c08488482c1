"""The checkers, in the order in which they judge an event; each owns its rules and calls no other."""

from __future__ import annotations

from .clusters import Clusters
from .exits import Exits
from .global_memory import GlobalMemory
from .grid_order import GridOrder
from .groups import Groups
from .inside_warp import InsideWarp
from .layout import Layouts
from .matrix_registers import MatrixRegisters
from .mbarriers import MBarriers
from .performance import Performance
from .register_pool import RegisterPool
from .shared_memory import SharedMemory
from .tensor_cells import TensorCells
from .tensor_maps import TensorMaps
from .tensor_units import TensorUnits
from .text import Text

CHECKERS = (
    Text, Clusters, MBarriers, GridOrder, TensorMaps, InsideWarp, SharedMemory, Layouts, GlobalMemory, MatrixRegisters,
    TensorCells, TensorUnits, Groups, Exits, RegisterPool, Performance,
)  # fmt: skip
"""Causes before consequences; `InsideWarp` before the checker that owns the shadows, `Layouts` after it."""
