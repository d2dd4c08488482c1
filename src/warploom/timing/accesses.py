"""What loads and stores ask of the memory pipe, the first-level cache and L2: passes, lines, sectors, misses.

Addresses are those of the run. What the first-level cache keeps is a CTA's own; what L2 has is not known here, only
which sectors a cluster touches for the first time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..emulator.machine.counters import bank_conflicts, global_sectors
from ..emulator.machine.places import Lanes
from .caches import Cache
from .occupancy import L2_BYTES
from .recording import Access, Recording

if TYPE_CHECKING:
    from ..emulator.machine.frame import Frame
    from ..emulator.machine.machine import Cta, Machine

SECTOR, LINE = 32, 128
FROM_DRAM = 64
"""DRAM is read in pairs of sectors."""
PAST_L1 = {"cg", "cv", "volatile", "relaxed", "acquire", "mmio"}
"""Words of a load that the first-level cache does not serve."""


class Accesses:
    """Of one machine; fills the sums of a recording and keeps each kind of access once, in `known`."""

    def __init__(self, machine: Machine, recording: Recording) -> None:
        self._machine, self._recording = machine, recording
        self.known: list[Access] = []
        self.touched: set[Any] = set()
        """Sectors and boxes that the cluster has read or written."""
        self._indices: dict[Access, int] = {}
        self._patterns: dict[Any, tuple[float, float]] = {}
        self._caches: dict[int, Cache] = {}
        self._second: Cache | None = None
        self._dirty: set[int] = set()
        self._pairs: set[int] = set()
        self._regions: dict[Any, int] = {}

    def made(self, frame: Frame, how: str, place: Lanes) -> int:
        """The index of what each warp of a frame asks; how: "reads", "writes" or "updates"."""
        size = place.size * place.count
        address = place.index.astype(np.int64) * place.size
        share = len(np.unique(place.lanes >> 5))
        if place.space.startswith("shared"):
            wavefronts = self._wavefronts(place.lanes, address, size)
            return self._index(Access("shared", how != "reads", wavefronts / share, updates=how == "updates"))
        wavefronts, sectors = self._requests(place.lanes, address, size)
        missed, distant, evicted = self._missed(frame, place, address, size, how)
        return self._index(Access(
            place.space, how != "reads", wavefronts / share, sectors / share, round(missed / share, 1),
            round(distant / share, 1), how == "updates", round(evicted / share, 1),
        ))  # fmt: skip

    def _index(self, access: Access) -> int:
        index = self._indices.get(access)
        if index is None:
            index = self._indices[access] = len(self.known)
            self.known.append(access)
        return index

    def _wavefronts(self, lanes: np.ndarray, address: np.ndarray, size: int) -> float:
        """Passes of a shared-memory request: as many as its bytes need, and those that conflicts add."""
        key = (size, (address - (int(address[0]) & -LINE)).tobytes(), lanes.tobytes())
        found = self._patterns.get(key)
        if found is None:
            words = np.unique((lanes >> 5) << 40 | address >> 2).size * max(size // 4, 1)
            least = -(-min(words, lanes.size * max(size // 4, 1)) // 32)
            found = self._patterns[key] = float(least + bank_conflicts(lanes, address, size)), 0.0
        return found[0]

    def _requests(self, lanes: np.ndarray, address: np.ndarray, size: int) -> tuple[float, float]:
        """(lines of 128 bytes that the warps' requests touch, sectors)."""
        key = ("g", size, (address - (int(address[0]) & -LINE)).tobytes(), lanes.tobytes())
        found = self._patterns.get(key)
        if found is None:
            _, sectors = global_sectors(lanes, address, size)
            lines = np.unique((lanes >> 5) << 40 | (address - (int(address[0]) & -LINE)) >> 7).size
            found = self._patterns[key] = float(lines), float(sectors)
        return found

    def _missed(
        self, frame: Frame, place: Lanes, address: np.ndarray, size: int, how: str
    ) -> tuple[float, float, float]:
        """Sectors that are not in the first-level cache; those of them that the cluster touches for the first time, and
        those that it has read, but that its share of L2 has lost since."""
        recording = self._recording
        number = self._regions.setdefault(place.region, len(self._regions))
        sectors = set((np.unique(address >> 5) + (number << 40)).tolist())
        if size > SECTOR:
            sectors |= {one + 1 for one in sectors}
        new = sectors - self.touched
        self.touched |= new
        if how != "reads":
            dirty = sectors - self._dirty
            self._dirty |= dirty
            recording.dirty += SECTOR * len(dirty)
            recording.stored += SECTOR * len(sectors)
            if how == "updates":
                recording.updates += len(np.unique((place.lanes >> 5) << 40 | address >> 7))
            recording.written += place.lanes.size * size if how == "writes" else 0
            return float(len(sectors)), 0.0, 0.0
        distant = float(len(new))
        recording.distant += self._from_dram(new)
        missed = len(sectors) if _past_first_level(frame) else self._cache(frame.cta).missed(sectors)
        if self._second is None:
            self._second = Cache(self._second_sectors())
        evicted = max(0.0, self._second.missed(sectors) - distant) if missed else 0.0
        recording.evicted += SECTOR * evicted
        recording.fetched += SECTOR * missed
        recording.received += SECTOR * missed
        return float(missed), distant, evicted

    def copied(self, lanes: np.ndarray, address: np.ndarray, size: int) -> tuple[int, float, float]:
        """Of a copy that lanes start: lines of 128 bytes, bytes of its sectors, and bytes that DRAM is read for.

        address: in global memory, of lanes that read.
        """
        lines = np.unique(np.stack([lanes.astype(np.int64) >> 5, address >> 7]), axis=1).shape[1]
        sectors = {("copied", one) for one in np.unique(address >> 5).tolist()}
        new = sectors - self.touched
        self.touched |= new
        return lines, float(max(SECTOR * len(sectors), size * lanes.size)), self._from_dram({one for _, one in new})

    def _from_dram(self, sectors: set[int]) -> float:
        """Bytes that DRAM is read for, so that new sectors are there."""
        pairs = {one >> 1 for one in sectors} - self._pairs
        self._pairs |= pairs
        return float(FROM_DRAM * len(pairs))

    def _cache(self, cta: Cta) -> Cache:
        found = self._caches.get(id(cta))
        if found is None:
            found = self._caches[id(cta)] = Cache(self._cache_sectors())
        return found

    def _second_sectors(self) -> int:
        """Sectors of L2 that the recorded clusters have, while CTAs run on all SMs."""
        machine = self._machine
        grid = math.prod(machine.grid)
        together = min(grid, machine.model.sms * self._residents())
        recorded = min(grid, (machine.most_clusters or grid) * math.prod(machine.cluster_shape))
        return max(1, int(L2_BYTES * recorded / together) // SECTOR)

    def _residents(self) -> int:
        warps = -(-self._machine.threads // 32)
        shared = self._machine.code.shared_size
        return max(1, min(self._machine.model.warps_per_sm // warps, (224 << 10) // max(shared, 1)))

    def _cache_sectors(self) -> int:
        """Sectors of the first-level cache that a CTA has: what shared memory leaves, divided among residents."""
        shared, residents = self._machine.code.shared_size, self._residents()
        return max(1, ((256 << 10) - residents * shared) // residents // SECTOR)


def _past_first_level(frame: Frame) -> bool:
    return not PAST_L1.isdisjoint(frame.operation.instruction.opcode.split("."))
