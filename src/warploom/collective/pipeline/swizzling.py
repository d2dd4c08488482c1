"""Swizzled places of tiles in shared memory, computed by threads.

TMA and the matrix unit swizzle by themselves. Threads that write or read a tile (cp.async, st.shared, ldmatrix,
stmatrix) must find the same places. `isa.swizzle` has the law; here it is three instructions on a register.
"""

from __future__ import annotations

from ...isa.swizzle import Swizzle
from ...lang.values import Register

_LINE_SHIFT, _CHUNK_SHIFT = 7, 4


def swizzled(offset: Register, swizzle: Swizzle) -> Register:
    """The place of byte `offset` of a tile (shr, and, xor); u32, bytes from the tile's start.

    The tile starts at a multiple of `swizzle.repeat`, as `smem.wgmma_tile` sees to, so the offset stands for the
    address. What is added to the result may be any multiple of `swizzle.repeat`; a step inside of a row goes in by XOR
    where the bits it sets are zero in `offset`. PTX ISA 5.5.7.
    """
    if swizzle.mask == 0:
        return offset
    return offset ^ ((offset >> (_LINE_SHIFT - _CHUNK_SHIFT)) & (swizzle.mask << _CHUNK_SHIFT))
