"""Between registers and matrices: gather a fragment into a matrix of raw bits, scatter one back.

All functions take the registers of one or more warps (or one warpgroup) at once: (registers, units * threads)
unsigned integers, where a unit is the warp or warpgroup that owns one matrix.
"""

from __future__ import annotations

from functools import cache

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
    units = registers.shape[1] // fragment.threads
    return np.take(split(registers, fragment.bits).reshape(-1), _owners(fragment, units))


def scatter(matrices: np.ndarray, fragment: Fragment) -> np.ndarray:
    """The registers of (units, rows, columns) raw bits of 16, 32 or 64 bits: (registers, units * threads)."""
    return join(np.take(matrices.reshape(-1), _orders(fragment, matrices.shape[0])))


@cache
def _owners(fragment: Fragment, units: int) -> np.ndarray:
    """`fragment.owner` for several units side by side: (units, rows, columns)."""
    rest, place = np.divmod(fragment.owner, fragment.per_register)
    register, thread = np.divmod(rest, fragment.threads)
    unit = np.arange(units)[:, None, None]
    return ((register * units + unit) * fragment.threads + thread) * fragment.per_register + place


@cache
def _orders(fragment: Fragment, units: int) -> np.ndarray:
    """`fragment.order` for several units side by side: (registers, units * threads, per_register)."""
    moved = fragment.order[:, None] + np.arange(units)[:, None, None] * fragment.owner.size
    return moved.reshape(fragment.registers, units * fragment.threads, -1)


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
