"""The shared-memory matrix descriptor: 64 bits that determine the address of each element of an operand.

The bit layout is PTX ISA 9.7.15.5.1.2.2, the address functions are the canonical layouts of 9.7.15.5.1.2.1. Both
agree with what an H200 reads, at 16-byte granularity: tests/golden/descriptor.npz.

An operand is addressed by (row, k): `row` counts m for A and n for B. Its *major* is the dimension that is contiguous
in memory: "K" or "MN".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..errors import ArgumentError, InvalidOperandError
from .dtypes import DType
from .swizzle import Swizzle

ADDRESS_MASK = 0x3FFFF
"""Shared-memory addresses in a descriptor have 18 bits."""
_FIELD_MASK = 0x3FFF
_RESERVED = ~(_FIELD_MASK | _FIELD_MASK << 16 | _FIELD_MASK << 32 | 7 << 49 | 3 << 62) & (1 << 64) - 1
START_MASK = _FIELD_MASK
"""The descriptor's bits that hold the start address; all others are constant for a layout."""


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor, fields in bytes.

    Attributes:
        start: byte address of the operand in the CTA's shared memory, a multiple of 16 below 2^18.
        leading_offset: bytes between core-matrix columns; `operand_addresses` has its meaning in each layout.
        stride_offset: bytes between core-matrix rows; likewise.
        swizzle: NONE, B32, B64 or B128.
        base_offset: 0..7, for a pattern that does not start at a multiple of its repeat.
    """

    start: int
    leading_offset: int
    stride_offset: int
    swizzle: Swizzle
    base_offset: int = 0

    def encode(self) -> int:
        """The 64 bits. Raises ArgumentError for a field that does not fit."""
        for name in ("start", "leading_offset", "stride_offset"):
            value = getattr(self, name)
            if value % 16 or not 0 <= value <= ADDRESS_MASK:
                raise ArgumentError(
                    f"a matrix descriptor cannot hold this {name}",
                    expected="a multiple of 16 bytes below 2^18",
                    got=value,
                )
        if not 0 <= self.base_offset <= 7:
            raise ArgumentError("a descriptor's base offset has 3 bits", expected="0 to 7", got=self.base_offset)
        return (
            self.start >> 4
            | self.leading_offset >> 4 << 16
            | self.stride_offset >> 4 << 32
            | self.base_offset << 49
            | self._unit_bits()
        )

    def _unit_bits(self) -> int:
        """The bits that are specific to this matrix unit: the swizzle's code."""
        if self.swizzle.descriptor_code is None:
            raise ArgumentError(f"descriptors have no swizzle {self.swizzle.value}", expected="NONE, 32B, 64B or 128B")
        return self.swizzle.descriptor_code << 62

    def at(self, start: int) -> Self:
        """The same layout at another address."""
        return replace(self, start=start)


def decode(bits: int) -> Descriptor:
    """The fields of a 64-bit descriptor. Raises InvalidOperandError if reserved bits are set."""
    bits = int(bits)
    if bits & _RESERVED:
        raise InvalidOperandError(
            "a matrix descriptor has reserved bits set",
            expected="zero in bits 14-15, 30-31, 46-48 and 52-61",
            got=f"{bits:#018x} (reserved bits {bits & _RESERVED:#x})",
            hint="a field was shifted in without its mask, or the descriptor was made for another generation",
        )
    return Descriptor(
        start=(bits & _FIELD_MASK) << 4,
        leading_offset=(bits >> 16 & _FIELD_MASK) << 4,
        stride_offset=(bits >> 32 & _FIELD_MASK) << 4,
        swizzle=Swizzle.of_descriptor_code(bits >> 62 & 3),
        base_offset=bits >> 49 & 7,
    )


def operand_addresses(descriptor: Descriptor, dtype: DType, rows: int, k: int, major: str) -> np.ndarray:
    """Byte address in shared memory of every element of an operand: (rows, k) int64, wrapped at 18 bits.

    See `unwrapped_addresses` for the arguments and the formulas.
    """
    return unwrapped_addresses(descriptor, dtype, rows, k, major) & ADDRESS_MASK


def unwrapped_addresses(descriptor: Descriptor, dtype: DType, rows: int, k: int, major: str) -> np.ndarray:
    """Byte address of every element of an operand, not yet wrapped at the 18 bits of a shared-memory address.

    Args:
        descriptor: the operand's descriptor.
        dtype: element type, of 8, 16 or 32 bits.
        rows: extent in m (A: 64) or n (B).
        k: extent in k of one instruction: 32 bytes' worth of elements.
        major: "K" or "MN".

    Returns an int64 array of shape (rows, k). With r the row, kb the byte offset in k, S the swizzle's span,
    T = 16 bytes' worth of elements, W = S / 16, and u swizzled as an absolute address:

        K, no swizzle    start + (r%8)*16 + (r/8)*stride + (kb/16)*leading + kb%16
        K, swizzled      u = start + (r%8)*S + (r/8)*stride + kb           (leading is not used)
        MN, no swizzle   start + (r%T)*size + (r/T)*stride + (k%8)*16 + (k/8)*leading
        MN, swizzled     u = start + (r%T)*size + (r/T%W)*16 + r/(T*W)*leading + (k%8)*S + (k/8)*stride
    """
    size = dtype.bytes
    row = np.arange(rows, dtype=np.int64)[:, None]
    column = np.arange(k, dtype=np.int64)[None, :]
    leading, stride, swizzle = descriptor.leading_offset, descriptor.stride_offset, descriptor.swizzle
    span = swizzle.span
    if major == "K":
        byte = column * size
        if swizzle is Swizzle.NONE:
            offset = row % 8 * 16 + row // 8 * stride + byte // 16 * leading + byte % 16
        else:
            offset = row % 8 * span + row // 8 * stride + byte
    elif major == "MN":
        per_chunk = 16 // size
        chunk, inside = row // per_chunk, row % per_chunk * size
        if swizzle is Swizzle.NONE:
            offset = inside + chunk * stride + column % 8 * 16 + column // 8 * leading
        else:
            chunks = span // 16
            offset = inside + chunk % chunks * 16 + chunk // chunks * leading + column % 8 * span + column // 8 * stride
    else:
        raise ArgumentError("an operand's major is unknown", expected="'K' or 'MN'", got=major)
    return swizzle.apply(descriptor.start + offset, descriptor.base_offset)
