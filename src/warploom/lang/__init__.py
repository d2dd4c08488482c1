"""What a kernel author writes: `kernel`, `reg`, `smem`, `ptx`, `Tile`, `Scalar`.

A thin and honest layer: `ptx.inst` is one instruction per call, checked against the instruction table; the helpers say
what they emit; `print(kernel.ptx())` shows all of it.
"""

from . import ptx, reg, smem
from .kernel import Kernel, kernel
from .tile import Scalar, Tile, tiles

__all__ = ["Kernel", "Scalar", "Tile", "kernel", "ptx", "reg", "smem", "tiles"]
