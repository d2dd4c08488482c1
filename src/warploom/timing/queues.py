"""Work queues: accounts for the tiles that unrecorded CTAs would have taken.

A tile queue is a counter in global memory. With few recorded clusters, these would get all of the grid's work. So from
the second time that a CTA updates the same counter, the unrecorded CTAs are assumed to have updated it as often: the
CTAs of a grid take tiles in rounds, and the recording keeps where each round begins. A counter that each CTA updates
once (arrivals at the end of a split-K sum) is left as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..emulator.machine.places import Lanes

if TYPE_CHECKING:
    from ..emulator.machine.machine import Machine
    from .recording import Recording

NUMBER = np.dtype(np.uint32)


class Queues:
    """The queues of one machine, which runs the first clusters of its grid."""

    def __init__(self, machine: Machine, recording: Recording) -> None:
        self._machine = machine
        self._recording = recording
        self._last: dict[tuple[int, int], int] = {}
        self._seen: dict[tuple[int, int], set[int]] = {}
        self._kept: list[Any] = []

    def updates(self, cta: int, place: Lanes) -> None:
        """Called before a CTA updates an integer in global memory atomically."""
        if place.lanes.size != 1 or place.count != 1 or place.size != NUMBER.itemsize:
            return
        values, at = place.region.as_type(NUMBER), int(place.index[0])
        key = id(place.region), at
        now = int(values[at])
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = set()
            self._kept.append(place.region)
        elif cta in seen and now == self._last[key] + 1:
            values[at] = now = now + self._absent()
            self._recording.turns.setdefault(cta, []).append(len(self._recording.operations))
        seen.add(cta)
        self._last[key] = now

    def _absent(self) -> int:
        """Number of unrecorded CTAs per recorded CTA."""
        machine = self._machine
        every = math.prod(machine.grid)
        recorded = min(every, (machine.most_clusters or every) * math.prod(machine.cluster_shape))
        return (every - recorded) // recorded
