"""Copies that fill a range of shared memory, kept as one entry each instead of one for each granule.

Most bytes of a tile are written by one copy, read by matrix operations, and overwritten by the next copy. While nothing
else touches them, the copy's entry (`WholeBox`) holds what the arrays of the shadow would, and these are out of date
there; `Shadow.settle` brings them up to date and drops the entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...emulator.engines.boxes import SharedBox
    from ...emulator.engines.matrix_operands import ChunkMap


@dataclass(eq=False, slots=True)
class WholeBox:
    """A range of granules that one copy wrote last, and from which only matrix operations have read since.

    Attributes:
        start, stop: the granules, whole 16-byte chunks.
        number: of the copy's access.
        readers: the operands read, by their chunk map's id, each with its map and the number of the set of readers.
        tag: number of the first chunk's tag (`Shadow.tags`), 0 without tags; target: the box that they belong to.
    """

    start: int
    stop: int
    number: int
    readers: dict[int, tuple[ChunkMap, int]] = field(default_factory=dict)
    tag: int = 0
    target: SharedBox | None = None


@dataclass(eq=False, slots=True)
class WholeBoxes:
    """The entries of one shadow, by their first granule; they do not overlap.

    `shift`: log2 of a granule's bytes; `sets`: the sets of readers, by number (`Readers.sets`); `joined`: a set of
    readers, by number, plus one.
    """

    shift: int
    sets: list[tuple[int, ...]]
    joined: Callable[[int, int], int]
    held: dict[int, WholeBox] = field(default_factory=dict)
    _around: dict[int, tuple[ChunkMap, list[WholeBox]]] = field(default_factory=dict)

    def hold(self, box: WholeBox) -> None:
        """A copy fills a range of granules, which no other entry overlaps; one for the same range is replaced."""
        self.held[box.start] = box
        self._around.clear()

    def around(self, place: ChunkMap) -> list[WholeBox]:
        """The entries that an operand consists of; none if a part of it is in no entry."""
        known = self._around.get(id(place))
        if known is None:
            known = self._around[id(place)] = place, self._find(place)
        return known[1]

    def _find(self, place: ChunkMap) -> list[WholeBox]:
        low, high = place.low >> self.shift, -(-place.high >> self.shift)
        found, left = [], high - low
        for box in self.held.values():
            if box.start < high and box.stop > low:
                found.append(box)
                left -= min(box.stop, high) - max(box.start, low)
                if not left:
                    break
        return [] if left else found

    def read(self, box: WholeBox, place: ChunkMap, number: int) -> None:
        """An operand in this box is read by the access with this number."""
        known = box.readers.get(id(place))
        box.readers[id(place)] = place, self.joined(known[1] if known is not None else 0, number)

    def take(self, low: int, high: int) -> list[WholeBox]:
        """Remove the entries that overlap a range of granules."""
        found = [one for one in self.held.values() if one.start < high and one.stop > low]
        for box in found:
            del self.held[box.start]
            self._around.clear()
        return found

    def reads(self, box: WholeBox) -> list[tuple[int, ChunkMap]]:
        """The reads of a box, oldest first: the access's number and the operand."""
        found = [(number, place) for place, readers in box.readers.values() for number in self.sets[readers]]
        return sorted(found, key=lambda one: one[0])
