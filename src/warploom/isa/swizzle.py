"""The shared-memory swizzles: the physical position of each 16-byte chunk of a row.

A tile is stored as rows of `span` bytes. A swizzle moves the chunks within each 128-byte line by an XOR with the
line's number, so that the same column of eight rows falls into eight different groups of banks. It is a function
of the absolute shared-memory address, for TMA and for the matrix unit alike. PTX ISA 5.5.7 (tensor swizzling modes) and
9.7.15.5.1 (a warpgroup MMA's shared-memory layout); measured on an H200: tests/golden/descriptor.npz.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

CHUNK_BYTES = 16
"""Bytes that stay together under every swizzle of sm_90: one row of an 8 x 8 matrix of 16-bit elements."""


class _Facts(NamedTuple):
    span: int
    mask: int
    chunk_shift: int
    descriptor: int | None
    tcgen05: int | None
    driver: int


class Swizzle(Enum):
    """One swizzle mode. The value is its name in a tensor map: `Swizzle("128B")`.

    The three atom modes move chunks of 32 or 64 bytes and exist since sm_100.
    """

    NONE = "NONE"
    B32 = "32B"
    B64 = "64B"
    B128 = "128B"
    B128_ATOM_32B = "128B_ATOM_32B"
    B128_ATOM_32B_FLIP_8B = "128B_ATOM_32B_FLIP_8B"
    B128_ATOM_64B = "128B_ATOM_64B"

    @property
    def span(self) -> int:
        """Bytes of one row of the pattern, the maximum width of a TMA box; 16 for NONE: one row of a core matrix
        (without a swizzle, a TMA box has no such limit)."""
        return _FACTS[self].span

    @property
    def mask(self) -> int:
        """The low bits of the 128-byte line's number that take part in the XOR."""
        return _FACTS[self].mask

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats, and the alignment at which the base offset is 0: 1024 for 128B,
        512 for 64B, 256 for 32B; 128 for NONE, which TMA requires of any destination."""
        return 128 * (_FACTS[self].mask + 1)

    @property
    def descriptor_code(self) -> int | None:
        """Bits 62-63 of a matrix descriptor; None if it has no such mode."""
        return _FACTS[self].descriptor

    @property
    def tcgen05_code(self) -> int | None:
        """Bits 61-63 of a tcgen05 descriptor (sm_100); None if it has no such mode."""
        return _FACTS[self].tcgen05

    @property
    def driver_code(self) -> int:
        """Value of the driver's CUtensorMapSwizzle."""
        return _FACTS[self].driver

    @property
    def arch(self) -> str:
        """First target with this mode."""
        return "sm_100" if self.name.startswith("B128_ATOM") else "sm_90"

    def apply(self, address: Any, base_offset: int = 0) -> Any:
        """The swizzled address of the byte at the unswizzled `address`; its own inverse.

        Args:
            address: byte address or NumPy integer array of addresses, absolute in shared memory.
            base_offset: the descriptor field of that name, for a pattern that does not start at a multiple of `repeat`;
                see `base_offset`.

        Returns an int or an array like `address`.
        """
        facts = _FACTS[self]
        if facts.mask == 0:
            return address
        swizzled = address ^ ((((address >> 7) - base_offset) & facts.mask) << facts.chunk_shift)
        if self is Swizzle.B128_ATOM_32B_FLIP_8B:
            swizzled = swizzled ^ (((address >> 7) & 1) << 3)
        return swizzled

    def base_offset(self, pattern_start: int) -> int:
        """The descriptor's base offset for a pattern that starts at this address (PTX ISA 9.7.15.5.1.2.2)."""
        return (pattern_start >> 7) & self.mask

    @classmethod
    def of_descriptor_code(cls, code: int) -> Swizzle:
        """The mode of bits 62-63 of a matrix descriptor."""
        return _OF_DESCRIPTOR_CODE[code]


_FACTS = {
    Swizzle.NONE: _Facts(16, 0, 4, 0, 0, 0),
    Swizzle.B32: _Facts(32, 1, 4, 3, 6, 1),
    Swizzle.B64: _Facts(64, 3, 4, 2, 4, 2),
    Swizzle.B128: _Facts(128, 7, 4, 1, 2, 3),
    Swizzle.B128_ATOM_32B: _Facts(128, 3, 5, None, 1, 4),
    Swizzle.B128_ATOM_32B_FLIP_8B: _Facts(128, 3, 5, None, None, 5),
    Swizzle.B128_ATOM_64B: _Facts(128, 1, 6, None, None, 6),
}
_OF_DESCRIPTOR_CODE = {facts.descriptor: swizzle for swizzle, facts in _FACTS.items() if facts.descriptor is not None}

OPERAND_SWIZZLES = (Swizzle.B128, Swizzle.B64, Swizzle.B32, Swizzle.NONE)
"""The modes that a matrix descriptor supports, widest first."""
