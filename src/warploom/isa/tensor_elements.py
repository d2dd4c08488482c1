"""Element types of a tensor map: the types of PTX, and packed ones of 4 and 6 bits (sm_100).

Sixteen packed elements are adjacent in global memory. In shared memory they take 8 bytes (`b4x16`), or 16 with a gap at
the end (`b4x16_p64`, `b6x16_p32`), as matrix units require for mixed 8-, 6- and 4-bit kinds. PTX ISA 5.5.1.1 (sub-byte
types); CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import dtypes
from .dtypes import DType, Kind

# element type of the driver's CUtensorMapDataType and of tensormap.replace's .elemtype (PTX ISA 9.7.9.28, table 33)
ELEMENTS: dict[str, tuple[str, int, int]] = {
    "u8": ("UINT8", 0, 0), "s8": ("UINT8", 0, 0), "b8": ("UINT8", 0, 0),
    "e4m3": ("UINT8", 0, 0), "e5m2": ("UINT8", 0, 0),
    "u16": ("UINT16", 1, 1), "s16": ("UINT16", 1, 1), "b16": ("UINT16", 1, 1),
    "u32": ("UINT32", 2, 2), "b32": ("UINT32", 2, 2), "s32": ("INT32", 3, 3),
    "u64": ("UINT64", 4, 4), "b64": ("UINT64", 4, 4), "s64": ("INT64", 5, 5),
    "f16": ("FLOAT16", 6, 6), "f32": ("FLOAT32", 7, 7), "f64": ("FLOAT64", 8, 9),
    "bf16": ("BFLOAT16", 9, 10), "tf32": ("TFLOAT32", 11, 11),
    "b4x16": ("16U4_ALIGN8B", 13, 13), "b4x16_p64": ("16U4_ALIGN16B", 14, 14), "b6x16_p32": ("16U6_ALIGN16B", 15, 15),
}  # fmt: skip
DRIVER_FLOATS = frozenset({"FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "TFLOAT32"})
REPLACE_ELEMENTS = {
    0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 8: "f32", 9: "f64", 10: "bf16",
    11: "tf32", 12: "tf32", 13: "b4x16", 14: "b4x16_p64", 15: "b6x16_p32",
}  # fmt: skip
"""Element types by code of tensormap.replace's .elemtype."""
GROUP = 16
"""Packed elements that stay together."""


@dataclass(frozen=True)
class Packing:
    """How packed elements are stored.

    Attributes:
        bits: bits per element in global memory; shared_bits: in shared memory, gaps included.
        multiple: required divisor of the innermost extent; if there are gaps, the exact width of the box.
        swizzles: the swizzles that TMA accepts; stored: whether it can also store.
    """

    bits: int
    shared_bits: int
    multiple: int
    swizzles: tuple[str, ...] = ()
    stored: bool = True

    @property
    def spread(self) -> bool:
        """True if there are gaps in shared memory."""
        return self.shared_bits != self.bits

    def bytes(self, elements: int) -> int:
        """Bytes of global memory that `elements` elements take."""
        return elements * self.bits // 8

    def elements(self, size: int) -> int:
        """Elements in `size` bytes of global memory."""
        return size * 8 // self.bits

    def spread_out(self, rows: np.ndarray) -> np.ndarray:
        """Bytes of global memory, (..., row), in the layout of shared memory; gaps are zeros."""
        group, room = self.bytes(GROUP), GROUP * self.shared_bits // 8
        made = np.zeros((*rows.shape[:-1], rows.shape[-1] // group, room), np.uint8)
        made[..., :group] = rows.reshape(*rows.shape[:-1], -1, group)
        return made.reshape(*rows.shape[:-1], -1)

    def pushed_together(self, rows: np.ndarray) -> np.ndarray:
        """The inverse of `spread_out`."""
        group, room = self.bytes(GROUP), GROUP * self.shared_bits // 8
        return rows.reshape(*rows.shape[:-1], -1, room)[..., :group].reshape(*rows.shape[:-1], -1)


PACKINGS = {
    "b4x16": Packing(4, 4, 2),
    "b4x16_p64": Packing(4, 8, 128, ("NONE", "128B", "128B_ATOM_32B"), stored=False),
    "b6x16_p32": Packing(6, 8, 128, ("NONE", "128B", "128B_ATOM_32B", "128B_ATOM_64B")),
}
PACKED = {name: DType(name, packing.bits, Kind.BITS, np.dtype(np.uint8)) for name, packing in PACKINGS.items()}
"""The packed types by name. Arrays of them are arrays of bytes."""


def element_of(value: object) -> DType:
    """The element type of a map from a description. Raises ArgumentTypeError as `dtypes.of` does."""
    if isinstance(value, str) and value in PACKED:
        return PACKED[value]
    return dtypes.of(value)
