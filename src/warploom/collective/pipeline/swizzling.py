"""Swizzled offsets of tiles in shared memory, computed by threads.

TMA and the matrix unit swizzle by themselves. Threads that write or read a tile (cp.async, st.shared, ldmatrix,
stmatrix) must compute the same offsets. `isa.swizzle` defines the function; here it is three instructions.
"""

from __future__ import annotations

from ...isa.swizzle import Swizzle
from ...lang.values import Register

_LINE_SHIFT, _CHUNK_SHIFT = 7, 4


def swizzled(offset: Register, swizzle: Swizzle) -> Register:
    """The swizzled offset of byte `offset` of a tile (shr, and, xor); u32, in bytes from the tile's start.

    The tile starts at a multiple of `swizzle.repeat`, as `smem.wgmma_tile` guarantees, so the offset stands in for the
    address. Multiples of `swizzle.repeat` may be added to the result. A step inside a row is applied by XOR if the bits
    that it sets are zero in `offset`. PTX ISA 5.5.7.
    """
    if swizzle.mask == 0:
        return offset
    return offset ^ ((offset >> (_LINE_SHIFT - _CHUNK_SHIFT)) & (swizzle.mask << _CHUNK_SHIFT))
