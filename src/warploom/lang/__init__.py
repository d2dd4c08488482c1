"""What a kernel author writes: `kernel`, `reg`, `smem`, `tmem`, `ptx`, `Tile`, `Scalar`.

A thin and honest layer: `ptx.inst` is one instruction per call, checked against the instruction table; the helpers say
what they emit; `print(kernel.ptx())` shows all of it.
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
