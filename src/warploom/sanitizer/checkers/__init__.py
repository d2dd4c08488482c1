"""The checkers, in the order in which they judge an event; each owns its rules and calls no other."""

from __future__ import annotations

from .absent_lanes import AbsentLanes
from .array_bounds import ArrayBounds
from .clusters import Clusters
from .exits import Exits
from .global_memory import GlobalMemory
from .grid_order import GridOrder
from .groups import Groups
from .inside_warp import InsideWarp
from .inside_warp_global import InsideWarpGlobal
from .invalidations import Invalidations
from .layout import Layouts
from .lost_updates import LostUpdates
from .matrix_registers import MatrixRegisters
from .mbarriers import MBarriers
from .named_barriers import NamedBarriers
from .non_coherent_loads import NonCoherentLoads
from .peer_flags import PeerFlags
from .peer_slots import PeerSlots
from .performance import Performance
from .register_pool import RegisterPool
from .shared_memory import SharedMemory
from .swizzle_bases import SwizzleBases
from .tensor_cells import TensorCells
from .tensor_collectors import TensorCollectors
from .tensor_maps import TensorMaps
from .tensor_shapes import TensorShapes
from .tensor_units import TensorUnits
from .text import Text
from .undefined_registers import UndefinedRegisters
from .unwaited_lanes import UnwaitedLanes

CHECKERS = (
    Text, UndefinedRegisters, AbsentLanes, Clusters, MBarriers, Invalidations, NamedBarriers, GridOrder, TensorMaps,
    InsideWarpGlobal, InsideWarp, UnwaitedLanes, ArrayBounds, SharedMemory, Layouts, SwizzleBases, PeerFlags,
    PeerSlots, GlobalMemory, NonCoherentLoads, LostUpdates, MatrixRegisters, TensorCells, TensorUnits,
    TensorCollectors, TensorShapes, Groups, Exits, RegisterPool, Performance,
)  # fmt: skip
"""Causes come before consequences; lane checkers before the checker that owns the shadows, `Layouts` after it."""
