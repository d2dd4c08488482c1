"""A, B and the scale factors of one tcgen05.mma as matrices of element codes.

Shared memory of A and B is read through descriptors, in a pair half the rows from each CTA; A may be in tensor
memory, as scale factors always are. PTX ISA 9.7.16.10.3 to .7.
"""

from __future__ import annotations

import numpy as np

from ...isa import dtypes
from ...isa.dtypes import DType
from ...isa.instruction_descriptor import InstructionDescriptor
from ...isa.tensor_cells import ATOM_FACTORS, factor_cells, factor_pitch
from .matrix_operands import SharedOperand, of_sm_100

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e2m1": 4, "e2m3": 6, "e3m2": 6}
_UNITS: dict[int, DType] = {16: dtypes.b16, 32: dtypes.b32}
MISSING = {"ue8m0": 0xFF, "ue4m3": 0x7F}
"""The NaN code of each type of scale factor."""


def bits_of(kind: str) -> int:
    """Bits of an element type."""
    return _BITS.get(kind, 8)


def dense(descriptor: InstructionDescriptor) -> bool:
    """True if elements of 4 bits are packed two to a byte; the other kinds pad 4 and 6 bits to a byte each."""
    return descriptor.kind in ("mxf4", "mxf4nvf4")


def row_bytes(of: InstructionDescriptor, name: str) -> int:
    """Bytes of each row of "a" or "b" that one instruction multiplies: 32; 48 if k is 96; for a sparse A half as many
    as for its B."""
    stored = of.k // 2 if of.sparse and name == "a" else of.k
    bits = 4 if dense(of) else max(bits_of(of.a if name == "a" else of.b), 8)
    return stored * bits // 8


def shared_operand(of: InstructionDescriptor, name: str, rows: int, first: int = 0) -> SharedOperand:
    """The location of the `rows` rows of "a" or "b" in the shared memory of one CTA, from row `first` on."""
    kind, mn_major = (of.a, of.mn_major_a) if name == "a" else (of.b, of.mn_major_b)
    bits = max(bits_of(kind), 8)
    unit = _UNITS.get(bits, dtypes.b8)
    whole = 128 // bits if mn_major else 1  # rows of a chunk of 16 bytes
    covered, k = -(-(first + rows) // whole) * whole, row_bytes(of, name) * 8 // bits
    return SharedOperand(bits, covered, k, "MN" if mn_major else "K", unit, of_sm_100, slice(first, first + rows))


def codes(raw: np.ndarray, kind: str, packed: bool) -> np.ndarray:
    """Elements, one to each item, of an operand that was read from shared memory as bytes or larger units."""
    bits = bits_of(kind)
    if bits >= 8:
        return raw
    if packed:
        return _nibbles(raw)
    groups = raw.reshape(len(raw), -1, 16)  # 16 elements in 8 or 12 of 16 bytes
    if bits == 4:
        return _nibbles(groups[:, :, :8]).reshape(len(raw), -1)
    single = np.unpackbits(np.ascontiguousarray(groups[:, :, :12]), axis=2, bitorder="little")
    return (single.reshape(*groups.shape[:2], 16, 6) @ (1 << np.arange(6, dtype=np.uint8))).reshape(len(raw), -1)


def codes_from_cells(cells: np.ndarray, kind: str, packed: bool) -> np.ndarray:
    """Elements of A from tensor memory: (rows, 8) cells."""
    bits = bits_of(kind)
    raw = np.ascontiguousarray(cells)
    if bits >= 8:
        return raw.view(f"u{bits // 8}")
    held = raw.view(np.uint8)
    if packed:
        return _nibbles(held)
    return held >> 2 & 15 if bits == 4 else held >> 1 & 63


def negated(elements: np.ndarray, kind: str) -> np.ndarray:
    """The elements with their signs flipped."""
    return elements ^ elements.dtype.type(1 << (bits_of(kind) - 1))


def factors(cells: np.ndarray, rows: int, first: int, count: int, kind: str) -> np.ndarray:
    """Scale factors, (rows, count), from the 128 lanes of their columns: row r in lane r % 32, column r // 32.

    For k = 96 there are more than the cell has left after byte `first`: they continue in the cell `factor_pitch(rows)`
    columns further on. All quarters of the lanes must hold the same; where they differ there is no number.
    """
    width, words = factor_cells(rows), -(-(first + count) // ATOM_FACTORS)
    columns = np.arange(width)[:, None] + factor_pitch(rows) * np.arange(words)
    quarters = np.ascontiguousarray(cells[:, columns]).view(np.uint8)
    bytes_ = quarters.reshape(4, 32, width, words * 4)[..., first : first + count]
    same = (bytes_ == bytes_[0]).all(0)
    found = np.where(same, bytes_[0], np.uint8(MISSING[kind]))  # (32, columns, count)
    return found.transpose(1, 0, 2).reshape(-1, count)[:rows]


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """Two elements of each byte, the low one first."""
    both = np.stack([raw & np.uint8(15), raw >> np.uint8(4)], axis=-1)
    return both.reshape(*raw.shape[:-1], -1)
