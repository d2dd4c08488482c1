"""The register file of a CTA: one row for each register, one column for each thread.

Registers are untyped bits in a bank of their width; an instruction sees a row through a *slot*, a view as the
type it computes in. Consecutive warps that execute together see a window of columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ...isa.dtypes import DType, b128

WARP = 32
Mask = np.ndarray | Literal[True]
"""Lanes that execute: all of them, or those set in a (lanes,) bool array."""
BANKS: dict[int, np.dtype] = {
    1: np.dtype(np.bool_),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
    128: b128.numpy,
}
"""Element type of each bank, by register width in bits; predicates are the bank of width 1."""


class Row(NamedTuple):
    """A register: its bank (width in bits) and its row there."""

    bits: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nothing calls


@dataclass(frozen=True)
class Slot:
    """A register viewed as a type. A type narrower than the register sees its low part."""

    row: Row
    dtype: np.dtype


class RegisterLayout:
    """How many rows each bank has, which slots the code uses, and the constants among them."""

    def __init__(self) -> None:
        self.rows = dict.fromkeys(BANKS, 0)
        self.slots: list[Slot | np.generic] = []
        self._slot_of: dict[object, int] = {}

    def new_row(self, bits: int) -> Row:
        row = Row(bits, self.rows[bits])
        self.rows[bits] += 1
        return row

    def slot(self, row: Row, dtype: DType | np.dtype) -> int:
        """The number of the slot that views `row` as `dtype`."""
        kind = dtype.numpy if isinstance(dtype, DType) else dtype
        key = (row.bits, row.index, kind)
        found = self._slot_of.get(key)
        if found is None:
            found = self._slot_of[key] = len(self.slots)
            self.slots.append(Slot(row, kind))
        return found

    def constant(self, value: np.generic) -> int:
        """The number of a slot that holds a constant for all threads."""
        key = (value.tobytes(), value.dtype)
        if key not in self._slot_of:
            self._slot_of[key] = len(self.slots)
            self.slots.append(value)
        return self._slot_of[key]


class RegisterFile:
    """The registers of one CTA's threads. `lanes` counts whole warps."""

    def __init__(self, layout: RegisterLayout, lanes: int) -> None:
        self.layout = layout
        self.lanes = lanes
        self.banks = {bits: np.empty((layout.rows[bits], lanes), dtype) for bits, dtype in BANKS.items()}
        self._as: dict[tuple[int, np.dtype], np.ndarray] = {}
        self._windows: dict[tuple[int, int], Window] = {}
        self.reset()

    def reset(self) -> None:
        """Fill with poison (all bits set, NaN in every format; predicates true)."""
        for bits, bank in self.banks.items():
            if bits == 1:
                bank[...] = True
            elif bits == 128:
                bank.view(np.uint64)[...] = np.uint64(0xFFFFFFFFFFFFFFFF)
            else:
                bank[...] = np.iinfo(bank.dtype).max

    def bank_as(self, bits: int, dtype: np.dtype) -> np.ndarray:
        """A bank seen as `dtype`, (rows, lanes); for a narrower type, the low part of each register."""
        key = (bits, dtype)
        found = self._as.get(key)
        if found is None:
            bank = self.banks[bits]
            step = bank.dtype.itemsize // dtype.itemsize
            found = self._as[key] = bank.view(dtype) if step == 1 else bank.view(dtype)[:, ::step]
        return found

    def window(self, first_warp: int, warps: int) -> Window:
        """The value of every slot for these warps: (32·warps,) views, or scalars for constants."""
        found = self._windows.get((first_warp, warps))
        if found is None:
            lanes = slice(first_warp * WARP, (first_warp + warps) * WARP)
            found = self._windows[first_warp, warps] = Window(self, lanes)
        return found


class Window(dict[int, "np.ndarray | np.generic"]):
    """The contents of some columns of a register file, by slot. A slot's value is created on first use, because most
    windows use only few of them."""

    __slots__ = ("file", "lanes")

    def __init__(self, file: RegisterFile, lanes: slice) -> None:
        super().__init__()
        self.file, self.lanes = file, lanes

    def __missing__(self, number: int) -> np.ndarray | np.generic:
        slot = self.file.layout.slots[number]
        found: np.ndarray | np.generic = slot  # type: ignore[assignment]
        if isinstance(slot, Slot):
            found = self.file.bank_as(slot.row.bits, slot.dtype)[slot.row.index, self.lanes]
        self[number] = found
        return found
