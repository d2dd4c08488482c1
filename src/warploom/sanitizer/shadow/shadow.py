"""Shadow memory: for each granule of a CTA's shared memory, the last write and the reads since.

A granule is 4 bytes, or fewer if the kernel makes narrower accesses. Accesses are numbered in a cluster's list; the
shadow holds these numbers. Reads by asynchronous operations are sets of operations, numbered likewise, because several
may read a stage at once; reads by warps are epochs, one row for each warp that ever read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...isa.swizzle import CHUNK_BYTES as CHUNK
from .whole_boxes import WholeBox, WholeBoxes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...emulator.machine.memory import Region

Granules: TypeAlias = "np.ndarray | slice"
HALF, LOW = 32, (1 << 32) - 1
"""Of the two numbers in a pair."""


class Shadow:
    """The shadow of one region.

    Attributes:
        last: number of the last write of each granule, 0 for none.
        readers: number of the set of asynchronous operations that have read it since.
        pairs: both as one number, `last` in the low half, for readers of both.
        epochs, codes: (rows, granules): when each warp last read it, and with which instruction; `rows` gives the
            row of a warp.
        tags: for each 16-byte chunk, which chunk of which tensor box it holds, 0 if unknown.
        under: number of the weak write that a strong one (an atomic) has covered, 0 for none; created when needed.
        origins: for each chunk the global address that cp.async copied it from; created at the first such copy.
        boxes: what whole copies wrote, where the arrays are out of date; see `settle`.
    """

    def __init__(self, region: Region, granule: int, boxes: WholeBoxes) -> None:
        self.region = region
        self.boxes = boxes
        self.granule = granule
        self.shift = granule.bit_length() - 1
        self.per_chunk = CHUNK // granule
        count = -(-region.size // CHUNK) * self.per_chunk
        self.pairs = np.zeros(count, np.int64)
        self.last, self.readers = self.pairs.view(np.int32).reshape(count, 2).T
        self.tags = np.zeros(count // self.per_chunk, np.int32)
        self.origins: np.ndarray | None = None
        self.under: np.ndarray | None = None
        self.rows: dict[int, int] = {}
        self.warps: list[int] = []
        self.epochs = np.zeros((0, count), np.int32)
        self.codes = np.zeros((0, count), np.int32)
        self._within = np.arange(self.per_chunk)
        self.read_async = False
        self.tagged = False

    def row(self, me: int) -> int:
        """The row of a warp, created at its first read."""
        found = self.rows.get(me)
        if found is None:
            found = self.rows[me] = len(self.warps)
            self.warps.append(me)
            if found >= len(self.epochs):
                more = np.zeros((max(4, found), self.last.size), np.int32)
                self.epochs = np.concatenate([self.epochs, more])
                self.codes = np.concatenate([self.codes, more])
        return found

    def latest(self, granules: Granules) -> list[int]:
        """The latest epoch in which each warp of `warps` read any of these granules, 0 for none."""
        if not self.warps:
            return []
        epochs = self.epochs[: len(self.warps), granules]
        every = tuple(range(1, epochs.ndim))
        return np.maximum.reduce(epochs, axis=every, initial=0).tolist()

    def settle(self, granules: Granules) -> None:
        """Bring the arrays up to date at these granules."""
        if not self.boxes.held:
            return
        if isinstance(granules, slice):
            low, high = granules.start, granules.stop
        else:
            low, high = int(granules.min(initial=self.last.size)), int(granules.max(initial=-1)) + 1
        for box in self.boxes.take(low, high):
            self.last[box.start : box.stop] = box.number
            self.clear(slice(box.start, box.stop))
            self.settle_tags(box)
            for number, place in self.boxes.reads(box):
                read = self.of_chunks(place.chunks)
                self.note_reader(read[(read >= box.start) & (read < box.stop)], number, self.boxes.joined)

    def settle_tags(self, box: WholeBox) -> None:
        """Enter the tags of a whole box into the array, and drop what cp.async noted there before."""
        self.untag(slice(box.start, box.stop))
        if box.target is not None:
            places = box.target.places()
            self.tags[places] = box.tag + np.arange(places.size, dtype=np.int32).reshape(places.shape)

    def elements(self, index: np.ndarray, size: int, count: int) -> np.ndarray:
        """The granules of `count` elements of `size` bytes starting at each index: (parts, lanes), or (lanes,); the
        arrays are up to date there."""
        total = size * count
        first = index if size == self.granule else (index * size) >> self.shift
        parts = total >> self.shift
        granules = first if parts <= 1 else first + np.arange(parts)[:, None]
        self.settle(granules)
        return granules

    def span(self, start: int, size: int) -> slice:
        """The granules of a range of bytes."""
        return slice(start >> self.shift, -(-(start + size) >> self.shift))

    def first_byte(self, granules: Granules, hits: np.ndarray) -> int:
        """The first byte of the first of these granules that is hit."""
        at = int(np.flatnonzero(hits.reshape(-1))[0])
        if isinstance(granules, slice):
            return (granules.start + at) * self.granule
        return int(np.broadcast_to(granules, hits.shape).reshape(-1)[at]) * self.granule

    def cover(self, granules: np.ndarray, numbers: np.ndarray) -> None:
        """Keep these weak writes below the strong one that overwrites them."""
        if self.under is None:
            self.under = np.zeros(self.last.size, np.int32)
        self.under[granules] = numbers

    def clear(self, granules: Granules) -> None:
        """Drop the reads and the tags of overwritten granules."""
        if self.warps:
            self.epochs[: len(self.warps), granules] = 0
        if self.read_async:
            self.readers[granules] = 0
        if self.tagged:
            self.untag(granules)
        if self.under is not None:
            self.under[granules] = 0

    def note_reader(self, granules: Granules, number: int, joined: Callable[[int, int], int]) -> None:
        """An asynchronous operation reads these granules; `joined`: a set of readers, by number, plus one."""
        self.read_async = True
        numbers = distinct(before := self.readers[granules])
        table = np.zeros(max(numbers, default=0) + 1, np.int32)
        for old in numbers:
            table[old] = joined(old, number)
        self.readers[granules] = table[before]

    def untag(self, granules: np.ndarray | slice) -> None:
        """Drop the box tags of these granules' chunks."""
        chunks: np.ndarray | slice
        if isinstance(granules, slice):
            chunks = slice(granules.start // self.per_chunk, -(-granules.stop // self.per_chunk))
        else:
            chunks = granules // self.per_chunk
        self.tags[chunks] = 0
        if self.origins is not None:
            self.origins[chunks] = 0

    def of_chunks(self, chunks: np.ndarray) -> np.ndarray:
        """The granules of 16-byte chunks."""
        return (chunks.reshape(-1)[:, None] * self.per_chunk + self._within).reshape(-1)


class Readers:
    """Sets of asynchronous operations as numbers: a set is a tuple of access numbers."""

    def __init__(self) -> None:
        self.sets: list[tuple[int, ...]] = [()]
        self._number: dict[tuple[int, ...], int] = {(): 0}

    def add(self, number: int, access: int) -> int:
        """The set with one more access."""
        old = self.sets[number]
        if access in old:
            return number
        return self.number((*old, access))

    def number(self, members: tuple[int, ...]) -> int:
        """The number of a set."""
        found = self._number.get(members)
        if found is None:
            found = self._number[members] = len(self.sets)
            self.sets.append(members)
        return found


def uniform(values: np.ndarray) -> int | None:
    """The number that all elements of an array equal, if there is one."""
    raw = values.tobytes()  # comparing bytes is the fastest test for equal elements
    return values.item(0) if raw and raw == raw[: values.itemsize] * values.size else None


def distinct(values: np.ndarray) -> list[int]:
    """The distinct numbers in an array; cheap if there is only one."""
    one = uniform(values)
    if one is not None or not values.size:
        return [] if one is None else [one]
    low, high = int(np.minimum.reduce(values, axis=None)), int(np.maximum.reduce(values, axis=None))
    if high - low < 4096:
        return (np.flatnonzero(np.bincount((values - low).reshape(-1))) + low).tolist()
    return np.unique(values).tolist()
