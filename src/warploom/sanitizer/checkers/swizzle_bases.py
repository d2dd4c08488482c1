"""Whether swizzled boxes begin where the pattern of their swizzle does.

TMA swizzles by the absolute address in shared memory (PTX ISA 5.5.7): in a box that begins inside the pattern, row 0 is
exchanged as if it were another row. Who reads the tile by its own row and column then finds other chunks. A box that
follows another one without a gap, back to one that begins with the pattern, is a part of that one's tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...emulator.engines.boxes import SharedBox
from ...emulator.machine.events import Observer
from ..happens_before.access import flights_of
from ..report.findings import at

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.finding import Finding
    from ..context import Context
    from ..happens_before.access import Flight


class SwizzleBases(Observer):
    """See the module's docstring."""

    rules = ("swizzle-base",)

    def __init__(self, context: Context) -> None:
        self.context = context
        self._ends: dict[tuple[str, int], set[int]] = {}
        """Where boxes begin, by their swizzle and the byte behind them."""
        self._inside: dict[tuple[str, int], tuple[SharedBox, Flight]] = {}
        """Boxes that begin inside the pattern, by swizzle and first byte, each with the first that used it."""

    def issued(self, operation: AsyncOperation) -> None:
        for place in (*operation.sources, *operation.targets):
            if not isinstance(place, SharedBox) or place.packed:
                continue
            swizzle, begin = place.spec.swizzle, place.offset
            self._ends.setdefault((swizzle, begin + place.rows * place.spec.pitch), set()).add(begin)
            if begin % place.spec.swizzle_mode.repeat and (swizzle, begin) not in self._inside:
                for flight in flights_of(operation):
                    self._inside[swizzle, begin] = (place, flight)

    def report(self) -> list[Finding]:
        for (swizzle, begin), (box, flight) in self._inside.items():
            if self._continues(swizzle, begin, box.spec.swizzle_mode.repeat):
                continue
            phase = begin % box.spec.swizzle_mode.repeat
            self.context.findings.add(
                "swizzle-base",
                f"{at(flight.code)} has a box with swizzle {swizzle} at {box.name}, {phase} bytes inside the pattern, "
                f"which begins at multiples of {box.spec.swizzle_mode.repeat}: its row 0 is stored as row "
                f"{phase // 128} of the pattern",
                (flight.code,), flight.cta, flight.warp, address=box.name,
            )  # fmt: skip
        return []

    def _continues(self, swizzle: str, begin: int, repeat: int) -> bool:
        """Whether boxes lie one behind the other from the beginning of a pattern up to this byte."""
        seen, work = set(), [begin]
        while work:
            here = work.pop()
            if here % repeat == 0:
                return True
            if here not in seen:
                seen.add(here)
                work.extend(self._ends.get((swizzle, here), ()))
        return False
