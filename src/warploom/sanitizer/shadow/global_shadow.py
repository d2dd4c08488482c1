"""Shadow memory of global buffers: the last write of each granule, and the reads since.

An access is one 64-bit number: the warp of the grid that made it, its epoch (or the number of its asynchronous
operation), the instruction, and how strong it is. Buffers are large and clusters come and go, so nothing else is
kept. Of several reads the last is kept, and the last by another cluster; once the kernel has written the buffer, also
the last by each of a few other warps. Strong writes do not race with each other, so a counter may have many that
nothing orders: of those the last by each of a few clusters is kept until a plain write. 0 means no access.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.engines.boxes import Box
from ...emulator.engines.bulk import Bytes

if TYPE_CHECKING:
    from ...emulator.machine.machine import Machine
    from ...emulator.machine.memory import Region
    from ...emulator.machine.places import Lanes

PC_SHIFT, EPOCH_SHIFT, ACTOR_SHIFT = 3, 21, 40
PC_MASK, EPOCH_MASK = (1 << 18) - 1, (1 << 19) - 1
ASYNC_ACTOR = 1 << 22
"""Added to the actor's number for one of its asynchronous operations."""
SLOTS = 4
"""Clusters whose strong writes, and warps whose reads, are kept for a granule."""
LOGGED = 1 << 14
"""Maximum number of reads by copies that are logged before they are entered into the shadow."""


@dataclass(frozen=True)
class UnpackedAccess:
    """An access, unpacked. `actor`: warp of the grid, counted from 1; `epoch`: or the operation's number."""

    actor: int
    epoch: int
    pc: int
    level: int
    asynchronous: bool
    writes: bool


def pack(actor: int, epoch: int, pc: int, level: int, asynchronous: bool = False) -> int:
    """An access as a number; 0, which means none, if a field is too small for it."""
    if actor >= ASYNC_ACTOR or epoch > EPOCH_MASK or pc > PC_MASK:
        return 0
    actor += ASYNC_ACTOR if asynchronous else 0
    return actor << ACTOR_SHIFT | epoch << EPOCH_SHIFT | pc << PC_SHIFT | level


def unpack(number: int, writes: bool) -> UnpackedAccess:
    actor = number >> ACTOR_SHIFT
    return UnpackedAccess(
        actor % ASYNC_ACTOR, number >> EPOCH_SHIFT & EPOCH_MASK, number >> PC_SHIFT & PC_MASK, number & 7,
        actor >= ASYNC_ACTOR, writes,
    )  # fmt: skip


class GlobalShadow:
    """The shadow of one buffer.

    Attributes:
        last: the last write of each granule; reads: the last read since; others: the last read by a cluster other than
            that one's.
        strong: strong writes before the last one, by cluster (modulo SLOTS); empty if there is none.
        readers: reads before the last one, by warp (modulo SLOTS); empty if there is none.
        written, was_read: True if there is any.
    """

    def __init__(self, region: Region, granule: int) -> None:
        self.region = region
        self.granule = granule
        self.shift = granule.bit_length() - 1
        self.count = -(-region.size // granule)
        self.last = np.zeros(self.count, np.int64)
        self.reads = np.zeros(self.count, np.int64)
        self.others = np.zeros(self.count, np.int64)
        self.strong = np.zeros((0, self.count), np.int64)
        self.readers = self.strong
        self.written = False
        self.was_read = False
        self._of: tuple[Lanes | None, np.ndarray, np.ndarray] = (None, self.last, self.last)
        self._log: list[tuple[Bytes | Box, int]] = []

    def granules(self, index: np.ndarray, size: int, count: int) -> np.ndarray:
        """The granules of `count` elements of `size` bytes starting at each index: (parts, lanes), or (lanes,)."""
        total = size * count
        first = index if size == self.granule else (index * size) >> self.shift
        parts = total >> self.shift
        return first if parts <= 1 else first + np.arange(parts)[:, None]

    def before(self, place: Lanes) -> tuple[np.ndarray, np.ndarray]:
        """The granules that lanes access, and the last write of each before; found once for all checkers of an access,
        the last of which enters it."""
        if self._of[0] is not place:
            granules = self.granules(place.index, place.size, place.count)
            self._of = place, granules, self.last[granules]
        return self._of[1], self._of[2]

    def write(
        self, granules: np.ndarray, before: np.ndarray, numbers: np.ndarray | int, level: int, count: int
    ) -> None:
        """Set the last write. `before`: the last ones until now; `count`: warps of a cluster."""
        if level and np.count_nonzero(before):
            kept = (before & 7 != 0) & (before >> ACTOR_SHIFT != np.asarray(numbers) >> ACTOR_SHIFT)
            if kept.any():
                if not len(self.strong):
                    self.strong = np.zeros((SLOTS, self.count), np.int64)
                cluster = ((before[kept] >> ACTOR_SHIFT) % ASYNC_ACTOR - 1) // count
                self.strong[cluster % SLOTS, granules[kept]] = before[kept]
        elif not level and len(self.strong):
            self.strong[:, granules] = 0
        self.last[granules] = numbers
        if self.was_read:
            self.reads[granules] = 0
            self.others[granules] = 0
            self.readers[:, granules] = 0

    def read(self, granules: np.ndarray, numbers: np.ndarray | int, count: int) -> None:
        """Set the last read. `count`: warps of a cluster."""
        if self.written:
            before = self.reads[granules]
            self._keep(granules, before, (before != 0) & (before >> ACTOR_SHIFT != np.asarray(numbers) >> ACTOR_SHIFT))
        self.note_read(self.reads, self.others, granules, numbers, count)
        if self.written and isinstance(numbers, np.ndarray):  # several warps may read one granule at once
            mine = np.broadcast_to(numbers, granules.shape)
            self._keep(granules, mine, self.reads[granules] != mine)

    def _keep(self, granules: np.ndarray, reads: np.ndarray, which: np.ndarray) -> None:
        if which.any():
            if not len(self.readers):
                self.readers = np.zeros((SLOTS, self.count), np.int64)
            self.readers[(reads[which] >> ACTOR_SHIFT) % SLOTS, granules[which]] = reads[which]

    def first_byte(self, granules: np.ndarray, hits: np.ndarray) -> int:
        """The first byte of the first of these granules that is hit."""
        return int(np.broadcast_to(granules, hits.shape)[hits].flat[0]) * self.granule

    def views(self, place: Bytes | Box, machine: Machine) -> list[np.ndarray]:
        """`last`, `reads` and `others` for the area that a copy reads or writes; empty if there is none."""
        if isinstance(place, Bytes):
            part = slice(place.start >> self.shift, -(-(place.start + place.size) >> self.shift))
            return [array[part] for array in (self.last, self.reads, self.others)]
        found = place.window(machine.memory, None, writes=False)  # type: ignore[arg-type]  # it was checked at issue
        if found is None:
            return []
        window = found[1]
        at = window.__array_interface__["data"][0] - self.region.data.__array_interface__["data"][0]
        inner = (window.shape[-1] - 1) * window.strides[-1] + window.itemsize
        first, inside = at >> self.shift, at & (self.granule - 1)
        outer = window.strides[:-1]
        if any(stride & (self.granule - 1) for stride in outer):  # rows that share granules: the whole range
            span = sum((n - 1) * stride for n, stride in zip(window.shape[:-1], outer, strict=True)) + inner
            part = slice(first, -(-(at + span) >> self.shift))
            return [array[part] for array in (self.last, self.reads, self.others)]
        shape = (*window.shape[:-1], -(-(inside + inner) >> self.shift))
        strides = (*(stride >> self.shift << 3 for stride in outer), 8)
        return [
            np.ndarray(shape, np.int64, array, first * 8, strides) for array in (self.last, self.reads, self.others)
        ]

    def granules_in(self, view: np.ndarray, hits: np.ndarray) -> np.ndarray:
        """The granules of hits in one of `views`."""
        starts = view.__array_interface__["data"][0] + np.argwhere(hits) @ np.array(view.strides)
        origins = (array.__array_interface__["data"][0] for array in (self.last, self.reads, self.others))
        inside: np.ndarray = next(starts - origin for origin in origins if 0 <= starts[0] - origin < self.count * 8)
        return inside // 8

    def log_read(self, place: Bytes | Box, number: int, machine: Machine, count: int) -> None:
        """Log a read by a copy; it is entered into the shadow before the next write of the buffer."""
        self._log.append((place, number))
        if self.written or len(self._log) >= LOGGED:
            self.settle(machine, count)

    def settle(self, machine: Machine, count: int) -> None:
        """Enter logged reads into the shadow. `count`: warps of a cluster."""
        for place, number in self._log:
            views = self.views(place, machine)
            if views:
                self.note_read(views[1], views[2], slice(None), number, count)
        self._log.clear()

    def note_read(
        self, reads: np.ndarray, others: np.ndarray, where: np.ndarray | slice, numbers: np.ndarray | int, count: int
    ) -> None:
        """Set the last read, and keep the previous one if another cluster made it."""
        self.was_read = True
        before = reads[where]
        if np.count_nonzero(before):
            cluster = ((before >> ACTOR_SHIFT) % ASYNC_ACTOR - 1) // count
            mine = ((np.asarray(numbers) >> ACTOR_SHIFT) % ASYNC_ACTOR - 1) // count
            foreign = (before != 0) & (cluster != mine)
            if foreign.any():
                others[where] = np.where(foreign, before, others[where])
        reads[where] = numbers
