"""The shared-memory matrix descriptor of tcgen05 (sm_100): wgmma's fields, a version, and other swizzle codes.

PTX ISA 9.7.16.4.1, table 40. The addresses are the canonical layouts of 9.7.16.10.6, the same as wgmma's
(`isa.descriptors`), plus one: rows of 128 bytes whose chunks of 32 bytes move, for MN-major operands of 32 bits.
Not run on hardware; the constants in the tests are those of Triton's kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import ArgumentError, InvalidOperandError
from . import descriptors
from .descriptors import ADDRESS_MASK
from .dtypes import DType
from .swizzle import Swizzle

VERSION = 1
"""Bits 46 to 48. A wgmma descriptor has 0 there."""
ABSOLUTE = 1 << 52
"""Bit of a descriptor whose leading offset is an address."""
_FIELD = 0x3FFF
_SWIZZLES = {swizzle.tcgen05_code: swizzle for swizzle in Swizzle if swizzle.tcgen05_code is not None}
_RESERVED = (3 << 14) | (3 << 30) | (0xFF << 53)


@dataclass(frozen=True)
class Descriptor(descriptors.Descriptor):
    """A tcgen05 matrix descriptor, fields in bytes.

    Attributes:
        start, stride_offset, base_offset: as in a wgmma descriptor.
        leading_offset: likewise; if `absolute`, the address at which rows go on that cross 128 bytes.
        swizzle: NONE, 32B, 64B, 128B or 128B_ATOM_32B.
        absolute: whether `leading_offset` is an address; sm_103a only.
    """

    absolute: bool = False

    def _unit_bits(self) -> int:
        code = self.swizzle.tcgen05_code
        if code is None:
            known = ", ".join(swizzle.value for swizzle in _SWIZZLES.values())
            raise ArgumentError(f"tcgen05 descriptors have no swizzle {self.swizzle.value}", expected=known)
        return VERSION << 46 | ABSOLUTE * self.absolute | code << 61


def decode(bits: int) -> Descriptor:
    """The fields of a 64-bit descriptor.

    Raises InvalidOperandError for another version, for reserved bits and for undefined swizzle codes.
    """
    bits = int(bits)
    version, code = bits >> 46 & 7, bits >> 61 & 7
    if version != VERSION:
        raise InvalidOperandError(
            "a tcgen05 matrix descriptor has the wrong version",
            expected="0b001 in bits 46-48",
            got=f"{bits:#018x} (version {version:#05b})",
            hint="a descriptor for sm_90 has 0 there: its swizzle codes differ too" if version == 0 else None,
        )
    if bits & _RESERVED or code not in _SWIZZLES:
        raise InvalidOperandError(
            "a tcgen05 matrix descriptor has reserved bits set"
            if bits & _RESERVED
            else f"a tcgen05 matrix descriptor has the swizzle code {code}, which means nothing",
            expected="zero in bits 14-15, 30-31 and 53-60, and 0, 1, 2, 4 or 6 in bits 61-63",
            got=f"{bits:#018x}",
            hint="a field was shifted in without its mask, or the descriptor was made for another generation",
        )
    return Descriptor(
        start=(bits & _FIELD) << 4,
        leading_offset=(bits >> 16 & _FIELD) << 4,
        stride_offset=(bits >> 32 & _FIELD) << 4,
        swizzle=_SWIZZLES[code],
        base_offset=bits >> 49 & 7,
        absolute=bool(bits & ABSOLUTE),
    )


def operand_addresses(descriptor: Descriptor, dtype: DType, rows: int, k: int, major: str) -> np.ndarray:
    """Byte address in shared memory of every element of an operand: (rows, k) int64, wrapped at 18 bits.

    Args:
        descriptor: the operand's descriptor.
        dtype: element type, of 8, 16 or 32 bits. 4-bit operands are addressed as half as many bytes.
        rows: extent in m (A) or n (B) in this CTA.
        k: extent in k of one instruction: 32 bytes' worth of elements, or 48.
        major: "K" or "MN".

    The formulas are those of `descriptors.unwrapped_addresses`, and two more. 128B_ATOM_32B is for MN-major 32-bit
    elements:

        u = start + (r%32)*4 + (r/32)*leading + (k%4)*128 + (k/4)*stride

    With an absolute leading address, which is for K-major rows swizzled by 128B, the bytes of a row from the next
    multiple of 128 on are at that address (9.7.16.3.1.2). With kb the byte in k, counted from the start's last such
    multiple:

        u = (start or leading)/128*128 + (r%8)*128 + (r/8)*stride + kb%128

    Raises InvalidOperandError for these two with other operands.
    """
    if descriptor.swizzle is Swizzle.B128_ATOM_32B:
        if major != "MN" or dtype.bytes != 4:
            raise InvalidOperandError(
                "swizzle 128B_ATOM_32B is for MN-major operands of 32-bit elements",
                expected="another swizzle",
                got=f"{major}-major, {dtype}",
            )
        row = np.arange(rows, dtype=np.int64)[:, None]
        column = np.arange(k, dtype=np.int64)[None, :]
        unswizzled = (
            descriptor.start
            + row % 32 * 4
            + row // 32 * descriptor.leading_offset
            + column % 4 * 128
            + column // 4 * descriptor.stride_offset
        )
        return np.asarray(descriptor.swizzle.apply(unswizzled, descriptor.base_offset)) & ADDRESS_MASK
    if descriptor.absolute:
        return _in_two_chunks(descriptor, dtype, rows, k, major)
    return descriptors.operand_addresses(descriptor, dtype, rows, k, major)


def _in_two_chunks(descriptor: Descriptor, dtype: DType, rows: int, k: int, major: str) -> np.ndarray:
    """`operand_addresses` with an absolute leading address."""
    if descriptor.swizzle is not Swizzle.B128 or major != "K" or descriptor.base_offset:
        raise InvalidOperandError(
            "bit 52 of a tcgen05 matrix descriptor makes its leading offset an address, which this operand cannot have",
            expected="a K-major operand with 128B swizzle and base offset 0",
            got=f"{major}-major, {descriptor.swizzle.value}, base offset {descriptor.base_offset}",
        )
    span = Swizzle.B128.span
    row = np.arange(rows, dtype=np.int64)[:, None]
    byte = descriptor.start % span + np.arange(k, dtype=np.int64)[None, :] * dtype.bytes
    chunk = np.where(byte < span, descriptor.start, descriptor.leading_offset) // span * span
    unswizzled = chunk + row % 8 * span + row // 8 * descriptor.stride_offset + byte % span
    return np.asarray(Swizzle.B128.apply(unswizzled, 0)) & ADDRESS_MASK
