"""The namespace of a kernel's body: `ptx.if_`, `ptx.inst.…`, `ptx.wgmma.…`.

At the lowest level, `ptx.inst` emits one instruction per call. All other functions document the instructions they emit.
"""

from __future__ import annotations

from .barriers import bar, cluster, fence, griddepcontrol, mbarrier, setmaxnreg
from .control import break_, continue_, do_while, elif_, else_, if_, loop, range, select, while_
from .copies import cp, tma
from .emit import Pair as pair
from .emit import Sink
from .expressions import atomic, math, pin, warp
from .inst import Instructions
from .launch_control import clusterlaunchcontrol
from .listing import branch_targets, call, constant, goto, label, place, pragma, symbol, tensor_at, variable
from .matrix import ldmatrix, mma_sync, stmatrix
from .pointers import addr, global_ptrs, load, store, tensor_address
from .special import special
from .tcgen05 import tcgen05
from .wgmma import wgmma

inst = Instructions()
sink = Sink()
"""The destination `_`: a discarded result."""

__all__ = [
    "addr", "atomic", "bar", "branch_targets", "break_", "call", "cluster", "clusterlaunchcontrol", "constant",
    "continue_", "cp", "do_while", "elif_", "else_", "fence", "global_ptrs", "goto", "griddepcontrol", "if_", "inst",
    "label", "ldmatrix", "load", "loop", "math", "mbarrier", "mma_sync", "pair", "pin", "place", "pragma", "range",
    "select", "setmaxnreg", "sink", "special", "stmatrix", "store", "symbol", "tcgen05", "tensor_address", "tensor_at",
    "tma", "variable", "warp", "wgmma", "while_",
]  # fmt: skip
