"""Work queues: accounts for the tiles that unrecorded CTAs would have taken.

A tile queue is a counter in global memory. With few recorded clusters, these would get all of the grid's work, and the
first of them all of theirs. So the CTAs of a grid are assumed to take tiles in rounds, each one per round, and from the
second time that a CTA updates the same counter, it finds there what the others have left it. A counter that each CTA
updates once (`arrivals`) is left as it is, or gets a planted value; and one that all CTAs of the grid update equally
often (a barrier of the grid) is left, too.

In every round, a recorded CTA comes first, as the CTA that takes most tiles does. If tiles differ and the longest come
first, it also has more work than others. `spread` lets it come at another place in each round. These tiles are still
few, so the mean CTA's work (`pace`) follows from the shortest and the longest of both recordings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..emulator.machine.places import Lanes

if TYPE_CHECKING:
    from ..emulator.machine.machine import Machine
    from .recording import Recording

Word = tuple[str, int]
"""A word of 32 bits in global memory: its array's name, and its index."""
NUMBER = np.dtype(np.uint32)
NONE: Mapping[Word, int] = MappingProxyType({})
GOLDEN = (5**0.5 - 1) / 2
"""Share of a round from a place to the next round's: multiples of it are spread evenly, however many there are."""


EVEN = 1.02
"""Ratio of two tiles' bytes up to which they are equally long."""


def uneven(taken: Sequence[Sequence[float]]) -> bool:
    """True if a CTA's tiles differ; taken: the bytes of each tile, by CTA."""
    return any(max(tiles) > EVEN * min(tiles) for tiles in taken)


def pace(first: Sequence[Sequence[float]], spread: Sequence[Sequence[float]]) -> float:
    """Return the work of a mean CTA relative to that of CTAs at places of `spread`.

    first: the tiles of the same CTAs as the first of each round. Lengths are taken to be even between the shortest and
    the longest, and the last round to be half full.
    """
    known = [one for tiles in (*first, *spread) for one in tiles]
    mean = (min(known) + max(known)) / 2
    many = sum(len(tiles) - 0.5 for tiles in first)
    return mean * many / sum(map(sum, spread))


@dataclass
class _Queue:
    """A counter: its first and last value, and how often each CTA has updated it."""

    region: Any
    """Kept alive, so that its id is not reused."""
    first: int
    last: int
    draws: dict[int, int] = field(default_factory=dict)
    jumped: bool = False
    told: bool = False
    """A CTA learns the value that it had before an update."""


class Queues:
    """The queues of one machine, which runs the first clusters of its grid.

    spread: see the module's docstring. planted: what each CTA finds in words that it updates once.
    """

    def __init__(
        self, machine: Machine, recording: Recording, spread: bool = False, planted: Mapping[Word, int] = NONE
    ) -> None:
        self._machine = machine
        self._recording = recording
        self._spread = spread
        self._planted = planted
        self._queues: dict[tuple[int, int], _Queue] = {}

    def updates(self, cta: int, place: Lanes, told: bool) -> bool:
        """Called before a CTA updates an integer in global memory atomically. True if it finds a planted value."""
        if place.lanes.size != 1 or place.count != 1 or place.size != NUMBER.itemsize:
            return False
        values, at = place.region.as_type(NUMBER), int(place.index[0])
        key = id(place.region), at
        now = int(values[at])
        queue = self._queues.setdefault(key, _Queue(place.region, now, now - 1))
        queue.told |= told
        turn = queue.draws.get(cta, 0)
        planted = self._planted.get((place.region.name, at)) if turn == 0 else None
        if planted is not None:
            values[at] = now = planted
        if (queue.jumped and now == 0) or (now == queue.last + 1 and (queue.jumped or self._ahead(queue, turn))):
            values[at] = now = self._number(queue, cta, turn)
            queue.jumped = True
        if turn:
            self._recording.turns.setdefault(cta, []).append(len(self._recording.operations))
        queue.draws[cta] = turn + 1
        queue.last = now
        return planted is not None

    @property
    def arrivals(self) -> list[Word]:
        """The words that no CTA updated twice, and of which it learnt the value."""
        return [
            (queue.region.name, at) for (_, at), queue in self._queues.items()
            if queue.told and max(queue.draws.values()) == 1
        ]  # fmt: skip

    def restore(self) -> None:
        """Give each counter its first value, for another recording on the same arrays."""
        for (_, at), queue in self._queues.items():
            queue.region.as_type(NUMBER)[at] = queue.first

    def _ahead(self, queue: _Queue, turn: int) -> bool:
        """True if a CTA draws again, and others, recorded or not, have not drawn as often."""
        if not turn:
            return False
        every = self._every(len(queue.draws))
        return len(queue.draws) < every or min(queue.draws.values()) < turn

    def _number(self, queue: _Queue, cta: int, turn: int) -> int:
        """Return what a CTA draws in its turn."""
        order = list(queue.draws).index(cta) if cta in queue.draws else len(queue.draws)
        every = self._every(max(len(queue.draws), order + 1))
        if self._spread and turn:
            order = (order + int(turn * GOLDEN % 1.0 * every)) % every
        return queue.first + turn * every + order

    def _every(self, drawing: int) -> int:
        """Number of CTAs of the grid that draw, where so many of the recorded ones do."""
        machine = self._machine
        clusters = math.prod(machine.grid) // math.prod(machine.cluster_shape)
        recorded = min(clusters, machine.most_clusters or clusters)
        return -(-drawing // recorded) * clusters
