"""Between registers and matrices: gather a fragment into a matrix of raw bits, scatter one back.

All functions take the registers of one or more warps (or one warpgroup) at once: (registers, units * threads)
unsigned integers, where a unit is the warp or warpgroup that owns one matrix.
"""

from __future__ import annotations

import numpy as np

from ...isa.fragments import Fragment

_ELEMENT: dict[int, np.dtype] = {
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}


def gather(registers: np.ndarray, fragment: Fragment) -> np.ndarray:
    """The matrices that registers hold: (units, rows, columns) raw bits, elements below 8 bits one to a byte."""
    count, lanes = registers.shape
    units = lanes // fragment.threads
    elements = split(registers, fragment.bits)
    if units == 1:
        return np.take(elements.reshape(-1), fragment.owner)[None]
    by_unit = elements.reshape(count, units, -1).transpose(1, 0, 2).reshape(units, -1)
    return np.take(by_unit, fragment.owner, axis=1)


def scatter(matrices: np.ndarray, fragment: Fragment) -> np.ndarray:
    """The registers of (units, rows, columns) raw bits of 16, 32 or 64 bits: (registers, units * threads)."""
    units = matrices.shape[0]
    flat = matrices.reshape(units, -1)
    if units == 1:
        return join(np.take(flat[0], fragment.order))
    places = join(np.take(flat, fragment.order, axis=1))
    return places.transpose(1, 0, 2).reshape(fragment.registers, -1)


def split(registers: np.ndarray, bits: int) -> np.ndarray:
    """Registers (…, lanes) as elements (…, lanes * elements per register), low bits first."""
    registers = np.ascontiguousarray(registers)
    if bits >= 8:
        return registers.view(_ELEMENT[bits])
    octets = registers.view(np.uint8)
    if bits == 1:
        return np.unpackbits(octets, axis=-1, bitorder="little")
    return np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)


def join(elements: np.ndarray) -> np.ndarray:
    """Elements (…, per register) of 16, 32 or 64 bits as registers (…)."""
    if elements.dtype.itemsize >= 4:
        return elements[..., 0]
    return elements.view(np.uint32)[..., 0]
