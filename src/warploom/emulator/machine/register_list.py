"""Registers that an instruction names together in braces, and registers lane by lane."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .frame import Frame
from .places import Rows


@dataclass(frozen=True)
class RegisterList:
    """Registers named together in braces, read and written at once as (n, lanes) arrays.

    Attributes:
        slots: slot number of each element; a sink has a scratch slot.
        bits, rows: bank and row numbers when all elements are registers of one bank, else rows is None.
        dtype: the type as which they are viewed.
    """

    slots: tuple[int, ...]
    dtype: np.dtype
    bits: int = 0
    rows: slice | np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.slots)

    def read(self, frame: Frame) -> np.ndarray:
        """The values, (n, lanes), as a copy."""
        if self.rows is not None:
            return np.array(frame.registers.bank_as(self.bits, self.dtype)[self.rows, frame.columns])
        values = frame.values
        return np.stack([np.broadcast_to(values[slot], (frame.lanes,)) for slot in self.slots])

    def write(self, frame: Frame, new: np.ndarray) -> None:
        """Write (n, lanes) values where the frame's mask is set."""
        mask = frame.mask
        if self.rows is not None:
            window = frame.registers.bank_as(self.bits, self.dtype)
            if isinstance(self.rows, slice):
                np.copyto(window[self.rows, frame.columns], new, where=mask, casting="unsafe")
            elif mask is True:
                window[self.rows, frame.columns] = new
            else:
                window[self.rows, frame.columns] = np.where(mask, new, window[self.rows, frame.columns])
            return
        for slot, value in zip(self.slots, new, strict=True):
            np.copyto(frame.values[slot], value, where=mask, casting="unsafe")

    def write_all(self, frame: Frame, values: np.ndarray) -> None:
        """Write (n, 1 or lanes) values to all lanes of a frame, ignoring its current mask."""
        if self.rows is not None:
            frame.registers.bank_as(self.bits, self.dtype)[self.rows, frame.columns] = values
            return
        mask = frame.mask
        frame.mask = True
        try:
            self.write(frame, np.broadcast_to(values, (len(self), frame.lanes)))
        finally:
            frame.mask = mask

    def place(self) -> Rows:
        """The registers as a location for observers; none if they are not all in one bank."""
        if self.rows is None:
            return Rows(frozenset())
        if isinstance(self.rows, slice):
            return _rows(self.bits, tuple(range(self.rows.start, self.rows.stop)))
        return _rows(self.bits, tuple(self.rows.tolist()))


@lru_cache(maxsize=1024)
def _rows(bits: int, numbers: tuple[int, ...]) -> Rows:
    """One object for all instructions that name the same registers, because observers compare it often."""
    return Rows(frozenset((bits, number) for number in numbers))


def lane_value(frame: Frame, slot: int, lane: int) -> int:
    """The integer that a slot holds for a lane; a constant holds it for all."""
    value = frame.values[slot]
    return int(value[lane]) if isinstance(value, np.ndarray) else int(value)


def lane_array(frame: Frame, slot: int) -> np.ndarray:
    """The register of a destination slot, (lanes,), to be set lane by lane."""
    value = frame.values[slot]
    assert isinstance(value, np.ndarray)  # a destination is never a constant
    return value
