"""The language of a kernel author: `kernel`, `reg`, `smem`, `tmem`, `ptx`, `Tile`, `Scalar`.

A thin layer: `ptx.inst` emits one instruction per call, checked against the instruction table; helpers document what
they emit; `print(kernel.ptx())` shows everything.
"""

from . import ptx, reg, smem, tmem
from .kernel import Kernel, kernel
from .ptx_kernel import Param, PtxKernel, ptx_kernel
from .tile import Scalar, Tile, tiles

__all__ = [
    "Kernel",
    "Param",
    "PtxKernel",
    "Scalar",
    "Tile",
    "kernel",
    "ptx",
    "ptx_kernel",
    "reg",
    "smem",
    "tiles",
    "tmem",
]
