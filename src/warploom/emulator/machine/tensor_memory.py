"""Tensor memory of an SM: 128 lanes x 512 columns of 32 bits, and its allocations. PTX ISA 9.7.16.1, 9.7.16.7.

CTAs that are resident on one SM share it, and allocate columns in powers of two from 32 up. An allocation that does
not fit waits until another CTA frees columns. A CTA pair (cta_group::2) allocates the same columns on both SMs. The
cells of a new allocation have the bytes of memory that nothing has written in this run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ...isa.tensor_cells import factor_pitch
from ...isa.tensor_memory import COLUMNS, LANE_SHIFT, LANES, QUARTER, SIZES
from .memory import Region
from .slots import Slot

if TYPE_CHECKING:
    from .frame import Issuer
    from .machine import Cta

COLUMN_MASK = (1 << LANE_SHIFT) - 1
SMALLEST = SIZES[0]
"""Columns of the smallest allocation."""
POISON = np.uint32(0xFFFFFFFF)


@dataclass(eq=False)
class Columns:
    """One allocation: columns `start` to `start + count` of the SM of a CTA, made for a group of 1 or 2 CTAs."""

    cta: Cta
    start: int
    count: int
    group: int
    by: Issuer

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(frozen=True, eq=False)
class Cells:
    """A block of cells: `lanes` x `columns` of the tensor memory of a CTA's SM; lanes may be listed one by one.

    `named`: the lane in the address of a warp's load or store, which the hardware maps into the warp's own quarter.
    """

    cta: Cta
    region: Region
    lanes: slice | np.ndarray
    columns: slice
    named: int | None = None

    @property
    def view(self) -> np.ndarray:
        """The cells, (lanes, columns) uint32; a copy if lanes are listed."""
        return cells_of(self.region)[self.lanes, self.columns]

    def of_factors(self, rows: int) -> list[Cells]:
        """The cells of these that hold scale factors of `rows` rows: row r in lane r % 32 of each quarter, column
        r // 32; those of k = 96 go on in the next atoms."""
        whole, rest = divmod(rows, QUARTER)
        lanes = np.flatnonzero(np.arange(LANES) % QUARTER < rest)
        parts = []
        for first in range(self.columns.start, self.columns.stop, factor_pitch(rows)):
            last = first + whole
            if whole:
                parts.append(replace(self, columns=slice(first, last)))
            if rest:
                parts.append(replace(self, lanes=lanes, columns=slice(last, last + 1)))
        return parts

    def meets(self, other: Cells) -> bool:
        """True if the two blocks have a cell in common."""
        if self.region is not other.region:
            return False
        if self.columns.start >= other.columns.stop or other.columns.start >= self.columns.stop:
            return False
        mine, theirs = np.zeros(LANES, np.bool_), np.zeros(LANES, np.bool_)
        mine[self.lanes] = theirs[other.lanes] = True
        return bool((mine & theirs).any())

    def put(self, values: np.ndarray | np.generic) -> None:
        cells_of(self.region)[self.lanes, self.columns] = values


def cells_of(region: Region) -> np.ndarray:
    """(lanes, columns) uint32 view of a tensor memory."""
    return region.as_type(np.dtype(np.uint32)).reshape(LANES, COLUMNS)


class TensorMemory:
    """The cells of one SM, and their allocations, oldest first."""

    def __init__(self, owner: object) -> None:
        self.region = Region(np.full(LANES * COLUMNS * 4, 0xFF, np.uint8), "tensor memory")
        self.allocations: list[Columns] = []

    def places_for(self, count: int) -> Iterator[int]:
        """First columns of all free ranges of that size, in multiples of SMALLEST."""
        taken = np.zeros(COLUMNS, np.bool_)
        for one in self.allocations:
            taken[one.start : one.end] = True
        for start in range(0, COLUMNS - count + 1, SMALLEST):
            if not taken[start : start + count].any():
                yield start

    def of(self, cta: Cta) -> list[Columns]:
        return [one for one in self.allocations if one.cta is cta]

    def holds(self, cta: Cta, low: int, high: int) -> bool:
        """True if columns `low` up to `high` all belong to allocations of the CTA."""
        for one in sorted(self.of(cta), key=lambda one: one.start):
            if one.start <= low < one.end:
                low = one.end
        return low >= high

    def digest(self) -> Hashable:
        return (
            tuple((one.cta.index, one.start, one.count) for one in self.allocations),
            *(cells_of(self.region)[:, one.start : one.end].tobytes() for one in self.allocations),
        )


TENSOR_MEMORY = Slot("tensor memory", TensorMemory)


def tensor_memory_of(cta: Cta) -> TensorMemory:
    """The tensor memory of the SM that a CTA is on."""
    return TENSOR_MEMORY.of(cta.sm)


# -- what a CTA may do -----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Permits:
    """A CTA's permit to allocate, and the group it allocates for (0: none yet)."""

    relinquished: Issuer | None = None
    group: int = 0
    asked: list[Request] = field(default_factory=list)

    def digest(self) -> Hashable:
        return (self.relinquished is not None, self.group, tuple(one.digest() for one in self.asked))


@dataclass(eq=False)
class Request:
    """A pending alloc or dealloc of a warp: "alloc" or "dealloc", columns, first column (for a dealloc).

    `granted`: the first column once it is complete, otherwise -1.
    """

    kind: str
    cta: Cta
    count: int
    group: int
    by: Issuer
    start: int = -1
    granted: int = -1

    def digest(self) -> Hashable:
        return (self.kind, self.count, self.start, self.granted)


PERMITS = Slot("tensor memory permits", lambda cta: Permits())


def peer_of(cta: Cta) -> Cta | None:
    """The other CTA of the pair (ranks 2i and 2i + 1), or None if the cluster has none."""
    rank = cta.rank ^ 1
    return cta.cluster.ctas[rank] if rank < cta.cluster.size else None


def settle(request: Request) -> bool:
    """Carry out a request if columns are free and, for a pair, both CTAs have requested. True if it is complete."""
    if request.granted >= 0:
        return True
    partner = None
    if request.group == 2:
        peer = peer_of(request.cta)
        waiting = PERMITS.of(peer).asked if peer is not None else []
        partner = next((one for one in waiting if one.kind == request.kind and one.granted < 0), None)
        if partner is None or partner.count != request.count:
            return False
    both = [request] if partner is None else [request, partner]
    return _allocate(both) if request.kind == "alloc" else _free(both)


def _allocate(requests: list[Request]) -> bool:
    memories = [tensor_memory_of(one.cta) for one in requests]
    free = set.intersection(*(set(memory.places_for(requests[0].count)) for memory in memories))
    if not free:
        return False
    start = min(free)
    for memory, one in zip(memories, requests, strict=True):
        columns = Columns(one.cta, start, one.count, one.group, one.by)
        memory.allocations.append(columns)
        _fill(memory, columns)
        one.granted = start
        PERMITS.of(one.cta).asked.remove(one)
        for listener in one.cta.machine.events.made:
            listener("columns", columns, one.by)
    requests[0].cta.machine.progress()
    return True


def _fill(memory: TensorMemory, columns: Columns) -> None:
    """The cells of a new allocation have the bytes that all memory has in this run before it is written."""
    cells = cells_of(memory.region)[:, columns.start : columns.end]
    filled = np.frombuffer(columns.cta.machine.unwritten * 4, np.uint32)
    cells[...] = np.resize(filled, columns.count)


def _free(requests: list[Request]) -> bool:
    for one in requests:
        memory = tensor_memory_of(one.cta)
        found = next(held for held in memory.of(one.cta) if held.start == one.start)
        for listener in one.cta.machine.events.unmade:
            listener("columns", found, one.by)
        memory.allocations.remove(found)
        one.granted = one.start
        PERMITS.of(one.cta).asked.remove(one)
    requests[0].cta.machine.progress()
    return True
