"""Checks that swizzled boxes begin where the swizzle pattern does.

TMA swizzles by the absolute address in shared memory (PTX ISA 5.5.7): in a box that begins inside the pattern, row 0 is
swizzled like another row. MMAs use the absolute address too, but threads that address the tile by its own row and
column find other chunks. A box that follows other boxes without a gap, back to a box that begins with the pattern, is
part of that box's tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.engines.boxes import SharedBox
from ...emulator.machine.events import Observer
from ...emulator.machine.units import WARPGROUP_MMA
from ..happens_before.access import flights_of
from ..report.findings import at

if TYPE_CHECKING:
    import numpy as np

    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.finding import Finding
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.places import Lanes
    from ..context import Context
    from ..happens_before.access import InFlight


class SwizzleBases(Observer):
    """See the module's docstring."""

    rules = ("swizzle-base",)
    ignores = (WARPGROUP_MMA,)

    def __init__(self, context: Context) -> None:
        self.context = context
        self._ends: dict[tuple[str, int], set[int]] = {}
        """The start of boxes, by their swizzle and the byte after them."""
        self._inside: dict[tuple[str, int], tuple[SharedBox, InFlight]] = {}
        self._touched: set[tuple[str, int]] = set()
        """Boxes that begin inside the pattern, by swizzle and first byte, each with its first user; and which of them
        threads access."""

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if not self._inside or place.space != "shared":
            return
        low, high = int(place.index.min()) * place.size, (int(place.index.max()) + place.count) * place.size
        for key, (box, _) in self._inside.items():
            if key not in self._touched and low < box.offset + box.rows * box.spec.pitch and box.offset < high:
                self._touched.add(key)

    def issued(self, operation: AsyncOperation) -> None:
        for number, place in enumerate((*operation.sources, *operation.targets)):
            if not isinstance(place, SharedBox) or place.packed:
                continue
            swizzle, begin = place.spec.swizzle, place.offset
            self._ends.setdefault((swizzle, begin + place.rows * place.spec.pitch), set()).add(begin)
            if begin % place.spec.swizzle_mode.repeat and (swizzle, begin) not in self._inside:
                for flight in flights_of(operation):
                    self._inside[swizzle, begin] = (place, flight)
                if number < len(operation.sources):  # a store of data that threads have written
                    self._touched.add((swizzle, begin))

    def report(self) -> list[Finding]:
        for (swizzle, begin), (box, flight) in self._inside.items():
            if (swizzle, begin) not in self._touched or self._continues(swizzle, begin, box.spec.swizzle_mode.repeat):
                continue
            phase = begin % box.spec.swizzle_mode.repeat
            self.context.findings.add(
                "swizzle-base",
                f"{at(flight.code)} has a box with swizzle {swizzle} at {box.name}, {phase} bytes into the pattern, "
                f"which begins at multiples of {box.spec.swizzle_mode.repeat}: its row 0 is stored as row "
                f"{phase // 128} of the pattern",
                (flight.code,), flight.cta, flight.warp, address=box.name,
            )  # fmt: skip
        return []

    def _continues(self, swizzle: str, begin: int, repeat: int) -> bool:
        """True if boxes follow each other without gaps from the start of a pattern to this byte."""
        seen, work = set(), [begin]
        while work:
            here = work.pop()
            if here % repeat == 0:
                return True
            if here not in seen:
                seen.add(here)
                work.extend(self._ends.get((swizzle, here), ()))
        return False
