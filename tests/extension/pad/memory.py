"""The unit that runs the family's operations, and the cells of a CTA."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from warploom.emulator.machine.memory import Region
from warploom.emulator.machine.slots import Slot
from warploom.emulator.machine.units import Unit

CELLS = 64
UNIT = Unit("pad", "pad", 100)
POISON = 0xDEADBEEF


class Pad:
    """The cells of one CTA, and how many are taken."""

    def __init__(self, owner: object) -> None:
        self.region = Region(np.zeros(CELLS * 4, np.uint8), "pad")
        self.cells = self.region.as_type(np.dtype(np.uint32))
        self.taken = 0

    def digest(self) -> Hashable:
        return self.taken, self.cells.tobytes()


PAD = Slot("pad", Pad)
