"""Swizzled places of operand tiles, calculated by the threads themselves.

TMA and wgmma swizzle on their own; where threads write or read a tile (cp.async, st.shared, ldmatrix, stmatrix) they
have to find the same places. `isa.swizzle` has the law; here it is as three instructions on a register.
"""

from __future__ import annotations

from ...isa.swizzle import Swizzle
from ...lang.values import Register

CHUNK = 16
"""Bytes that stay together under every swizzle: one row of an 8 x 8 matrix of 16-bit elements."""
_LINE_SHIFT, _CHUNK_SHIFT = 7, 4


def swizzled(offset: Register, swizzle: Swizzle) -> Register:
    """Where the byte at `offset` of a tile lies (shr, and, xor); u32, bytes from the tile's start.

    The tile starts at a multiple of `swizzle.repeat`, as `smem.wgmma_tile` sees to, so the offset stands for the
    address. What is added to the result may be any multiple of `swizzle.repeat`; a step inside of a row goes in by XOR
    where the bits it sets are zero in `offset`. PTX ISA 5.5.7.
    """
    if swizzle.mask == 0:
        return offset
    return offset ^ ((offset >> (_LINE_SHIFT - _CHUNK_SHIFT)) & (swizzle.mask << _CHUNK_SHIFT))
