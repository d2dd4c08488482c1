"""Bytes of global memory that two unordered copies write: whether both write the same values.

Either may land last, so the bytes are compared when each has landed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..happens_before.access import InFlight, flights_of

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ..context import Context
    from .global_shadow import GlobalShadow

NOT_COMPLETE, SAME = "not complete", "same value"
"""What is missing between two copies; if the bytes are equal, only the order."""

Copy = tuple[int, int]
"""The warp of the grid that issued a copy, and the copy's number."""


@dataclass(eq=False, slots=True)
class _Pair:
    shadow: GlobalShadow
    granules: np.ndarray
    report: Callable[[str], None]
    landing: set[Copy]
    held: list[bytes] = field(default_factory=list)

    def look(self) -> None:
        width = self.shadow.granule
        places = self.granules[:, None] * width + np.arange(width)
        data = self.shadow.region.data
        self.held.append(data[places[places < data.size]].tobytes())


class DuplicateWrites:
    """Pairs of copies of which at least one has not landed."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._pairs: list[_Pair] = []

    def add(
        self,
        shadow: GlobalShadow,
        granules: np.ndarray,
        first: Copy,
        second: InFlight,
        report: Callable[[str], None],
    ) -> None:
        """Two copies write these granules; `report` is called with SAME if the bytes are equal, else NOT_COMPLETE."""
        pair = _Pair(shadow, granules, report, {self._copy(second)})
        pending = self.context.machine.engine.pending()
        if any(first == copy for operation in pending for copy in self._copies(operation)):
            pair.landing.add(first)
        else:
            pair.look()
        self._pairs.append(pair)

    def landed(self, operation: AsyncOperation) -> None:
        """An operation has written its bytes."""
        if not self._pairs:
            return
        for copy in self._copies(operation):
            for pair in [one for one in self._pairs if copy in one.landing]:
                pair.landing.discard(copy)
                pair.look()
                if not pair.landing:
                    self._pairs.remove(pair)
                    pair.report(SAME if pair.held[0] == pair.held[1] else NOT_COMPLETE)

    def give_up(self) -> None:
        """The run has finished: copies that have not landed count as different."""
        for pair in self._pairs:
            pair.report(NOT_COMPLETE)
        self._pairs.clear()

    def _copies(self, operation: AsyncOperation) -> Iterator[Copy]:
        yield from map(self._copy, flights_of(operation))

    def _copy(self, flight: InFlight) -> Copy:
        return self.context.state(flight.cta).actor(flight.me), flight.number
