"""Address operands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .frame import Frame


@dataclass(frozen=True)
class AddressOperand:
    """An address as the instruction computes it.

    Attributes:
        space: "global", "shared", "shared::cta", "shared::cluster", "local", "param", "const" or "generic".
        slot: slot of the base register, or -1.
        offset: constant part.
    """

    space: str
    slot: int
    offset: int

    def compute(self, frame: Frame) -> np.ndarray:
        """The (lanes,) addresses, uint64."""
        if self.slot < 0:
            return np.full(frame.lanes, self.offset & 0xFFFFFFFFFFFFFFFF, np.uint64)
        base = frame.values[self.slot]
        if not isinstance(base, np.ndarray):
            base = np.full(frame.lanes, base)
        if base.dtype.itemsize == 8:
            return base + np.uint64(self.offset & 0xFFFFFFFFFFFFFFFF) if self.offset else base
        narrow = base + np.uint32(self.offset & 0xFFFFFFFF) if self.offset else base  # wraps at 32 bits
        return narrow.astype(np.uint64)
