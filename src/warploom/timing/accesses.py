"""The cost of loads and stores in the memory pipe, the L1 cache and L2: passes, lines, sectors, misses.

Addresses are those of the run. Each CTA has its own share of L1. The contents of L2 are not modelled here, only which
sectors a cluster touches for the first time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..emulator.machine.counters import bank_conflicts, global_sectors
from ..emulator.machine.places import Lanes
from .caches import Cache
from .contention import LINE, in_one_place
from .drawn import loaded_addresses
from .occupancy import L2_BYTES
from .recording import REMOTE, Access, Recording, Run

if TYPE_CHECKING:
    from ..emulator.machine.frame import Frame
    from ..emulator.machine.machine import Cta, Machine

SECTOR = 32
FROM_DRAM = 64
"""DRAM is read in pairs of sectors."""
PAST_L1 = {"cg", "cv", "volatile", "relaxed", "acquire", "mmio"}
"""Modifiers of loads that bypass L1."""
SWAPS = {"exch", "cas"}
"""Atomics of all types that are one machine instruction on shared memory."""
FLOATS = {"f32", "f64"}
"""Types of atomics whose additions to one word take turns, lane by lane."""
COMMON_BYTES = 128 << 10
"""The largest array that L1 keeps whole next to the CTAs' own data: half of L1."""
WHOLE = 0.9
"""If one cluster reads this share of an array, all clusters are taken to read it."""


class Accesses:
    """The accesses of one machine: adds to the totals of a recording and keeps each kind of access once, in `known`."""

    def __init__(self, machine: Machine, recording: Recording) -> None:
        self._machine, self._recording = machine, recording
        self.known: list[Access] = []
        self.touched: set[Any] = set()
        """Sectors and boxes that the cluster has read or written."""
        self.after_all = False
        """All other CTAs have written what this one now reads of the arrays that it writes, too: L2 has it."""
        self._indices: dict[Access, int] = {}
        self._patterns: dict[Any, tuple[float, float]] = {}
        self._shared: dict[Any, tuple[float, bool]] = {}
        self._caches: dict[int, Cache] = {}
        self._second: Cache | None = None
        self._dirty: set[int] = set()
        self._pairs: set[int] = set()
        self._regions: dict[Any, int] = {}
        self._asked: dict[int, tuple[float, ...]] = {}
        """By small region: bytes requested from L2, first requested from DRAM, and possibly evicted from L2."""
        self._written: set[int] = set()
        self._updated: set[int] = set()
        """The regions updated at places that differ between CTAs."""
        self._in_one_place: frozenset[int] | None = None
        self._added: dict[int, float] = {}
        """By region: additions of floats to each word, if words are hit evenly."""
        self._loaded = loaded_addresses(machine.code.operations)
        self._draws: dict[int, tuple[float, float]] = {}
        """By region: sectors that are requested from L2 at loaded addresses, and of these the first of the cluster."""

    def made(self, frame: Frame, how: str, place: Lanes) -> int:
        """Return the index of the access that each warp of a frame makes; how: "reads", "writes" or "updates"."""
        size = place.size * place.count
        address = place.index.astype(np.int64) * place.size
        share = len(np.unique(place.lanes >> 5))
        if place.space.startswith("shared"):
            wavefronts, paired = self._wavefronts(place.lanes, address, size, how == "reads")
            space = "shared" if place.region is frame.cta.shared else REMOTE
            rounds = _rounds(place.lanes, address) if how == "updates" and space == "shared" and _loops(frame) else 0.0
            if rounds:
                wavefronts = 2.0 * (wavefronts + share * (rounds - 1.0))
            return self._index(Access(
                space, how != "reads", wavefronts / share, updates=how == "updates", paired=paired, rounds=rounds,
            ))  # fmt: skip
        if place.space == "local":
            return self._index(self._of_threads(place, address, size, how, share))
        wavefronts, sectors = self._requests(place.lanes, address, size)
        missed, distant, evicted = self._missed(frame, place, address, size, how)
        common = self._small(frame, place, how)
        return self._index(Access(
            place.space, how != "reads", wavefronts / share, sectors / share, round(missed / share, 1),
            round(distant / share, 1), how == "updates", round(evicted / share, 1), common=common,
            drawn=self._drawn_from(frame, place, missed, distant) if how == "reads" else 0,
        ))  # fmt: skip

    def _index(self, access: Access) -> int:
        index = self._indices.get(access)
        if index is None:
            index = self._indices[access] = len(self.known)
            self.known.append(access)
        return index

    def _wavefronts(self, lanes: np.ndarray, address: np.ndarray, size: int, reads: bool) -> tuple[float, bool]:
        """Return the passes of a shared-memory request, as its bytes and conflicts need, and whether it is paired.

        Per pass, a load fills one register of all lanes, or two if lanes are paired (NVIDIA developer forum,
        "Unexpected shared memory bank conflict", for cc 7.x).
        """
        key = (size, reads, (address - (int(address[0]) & -LINE)).tobytes(), lanes.tobytes())
        found = self._shared.get(key)
        if found is None:
            paired = reads and _paired(lanes, address)
            words = np.unique((lanes >> 5) << 40 | address >> 2).size * max(size // 4, 1)
            least = -(-min(words, lanes.size * max(size // 4, 1)) // 32)
            if reads:
                least = max(least, len(np.unique(lanes >> 5)) * (size // 4) // (2 if paired else 1))
            found = self._shared[key] = float(least + bank_conflicts(lanes, address, size)), paired
        return found

    def _of_threads(self, place: Lanes, address: np.ndarray, size: int, how: str, share: int) -> Access:
        """An access to local memory, where the same word of a warp's threads is a line. It stays in L1 if that has
        room for the local memory of all resident threads."""
        machine, recording = self._machine, self._recording
        each = max(machine.code.local_bytes, 1)
        offset = address % each
        line = offset // 4 * LINE + (place.lanes & 31) * 4 + offset % 4 + (place.lanes >> 5) * (each // 4 + 1) * LINE
        wavefronts, sectors = self._requests(place.lanes, line, size)
        held = machine.threads * each // SECTOR
        missed = 0.0 if held <= self._cache_sectors() else sectors
        if how == "reads":
            recording.fetched += SECTOR * missed
            recording.received += SECTOR * missed
        else:
            recording.stored += SECTOR * missed
        return Access("local", how != "reads", wavefronts / share, sectors / share, missed / share)

    def _requests(self, lanes: np.ndarray, address: np.ndarray, size: int) -> tuple[float, float]:
        """Return (128-byte lines, sectors) that the warps' requests touch."""
        key = (size, (address - (int(address[0]) & -LINE)).tobytes(), lanes.tobytes())
        found = self._patterns.get(key)
        if found is None:
            _, sectors = global_sectors(lanes, address, size)
            lines = np.unique((lanes >> 5) << 40 | (address - (int(address[0]) & -LINE)) >> 7).size
            found = self._patterns[key] = float(lines), float(sectors)
        return found

    def _missed(
        self, frame: Frame, place: Lanes, address: np.ndarray, size: int, how: str
    ) -> tuple[float, float, float]:
        """Return the number of sectors that miss L1, and how many of them are new to the cluster or evicted.

        Evicted sectors were read before, but are no longer in the cluster's share of L2.
        """
        recording = self._recording
        number = self._number(place)
        sectors = set((np.unique(address >> 5) + (number << 40)).tolist())
        if size > SECTOR:
            sectors |= {one + 1 for one in sectors}
        new = sectors - self.touched
        self.touched |= new
        if how != "reads":
            self._written.add(number)
            dirty = sectors - self._dirty
            self._dirty |= dirty
            recording.dirty += SECTOR * len(dirty)
            recording.stored += SECTOR * len(sectors)
            if how == "updates":
                self._updates(frame, place, address, number)
            if how == "writes":
                recording.written += place.lanes.size * size
                name = place.region.name
                recording.lanes_wrote[name] = recording.lanes_wrote.get(name, 0.0) + place.lanes.size * size
            return float(len(sectors)), 0.0, 0.0
        if self.after_all and number in self._written:
            new = set()
        distant = float(len(new))
        first = self._from_dram(new)
        recording.distant += first
        missed = len(sectors) if _past_first_level(frame) else self._cache(frame.cta).missed(sectors)
        if self._second is None:
            self._second = Cache(self._second_sectors())
        evicted = max(0.0, self._second.missed(sectors) - distant) if missed else 0.0
        recording.evicted += SECTOR * evicted
        recording.fetched += SECTOR * missed
        recording.received += SECTOR * missed
        if place.region.size <= COMMON_BYTES:
            known = self._asked.get(number, (0.0, 0.0, 0.0))
            new_ones = SECTOR * missed, first, SECTOR * evicted
            self._asked[number] = tuple(one + more for one, more in zip(known, new_ones, strict=True))
        return float(missed), distant, evicted

    def _updates(self, frame: Frame, place: Lanes, address: np.ndarray, number: int) -> None:
        if self._in_one_place is None:
            self._in_one_place = in_one_place(self._machine.code.operations)
        shared = frame.operation.pc in self._in_one_place
        found = self._recording.shared_updates if shared else self._recording.updates
        found.count += len(np.unique((place.lanes.astype(np.int64) >> 5) << 40 | address >> 7))
        before = len(found.words)
        for word in np.unique(address >> 2).tolist():
            found.touch(number << 40 | word >> 5, word)
        if shared:
            found.bytes += LINE * (len(found.words) - before)
        elif number not in self._updated:
            self._updated.add(number)
            found.bytes += place.region.size
        if frame.operation.instruction.opcode.split(".")[-1] in FLOATS:
            self._added[number] = self._added.get(number, 0.0) + place.lanes.size * place.size / place.region.size
            self._recording.piled = max(self._added.values())

    def _number(self, place: Lanes) -> int:
        return self._regions.setdefault(place.region, len(self._regions) + 1)

    def _small(self, frame: Frame, place: Lanes, how: str) -> int:
        """Return the number of a small array that is read through L1, or 0."""
        small = how == "reads" and place.space == "global" and place.region.size <= COMMON_BYTES
        return self._number(place) if small and not _past_first_level(frame) else 0

    def share_common(self, runs: Sequence[Run]) -> None:
        """Let later CTAs of an SM hit L1 for small arrays that all CTAs read.

        The first CTAs, which run side by side, wait for these arrays together.
        """
        machine = self._machine
        turns = -(-math.prod(machine.grid) // machine.model.sms)
        common = self._common()
        if turns < 2 or not common:
            return
        share, chance = 1.0 / turns, min(1.0, self._residents() / turns)
        for number in common:
            fetched, distant, evicted = (one * (1.0 - share) for one in self._asked[number])
            self._recording.fetched -= fetched
            self._recording.received -= fetched
            self._recording.distant -= distant
            self._recording.evicted -= evicted
        for run in runs:
            if any(one is not None and one.common in common for one in run.accesses):
                run.accesses = tuple(
                    one.kept(share, chance) if one is not None and one.common in common else one for one in run.accesses
                )

    def _drawn_from(self, frame: Frame, place: Lanes, missed: float, distant: float) -> int:
        """Return the number of an array that fits in L2 and is read at a loaded address, or 0."""
        if frame.operation.pc not in self._loaded or place.space != "global" or place.region.size > L2_BYTES:
            return 0
        number = self._number(place)
        requests, first = self._draws.get(number, (0.0, 0.0))
        self._draws[number] = requests + missed, first + distant
        return number

    def share_drawn(self, runs: Sequence[Run]) -> None:
        """Let clusters find in L2 what others have read at loaded addresses, as random ones: such reads are not in
        step, so few of them wait for DRAM."""
        recording = self._recording
        scale = math.prod(recording.grid) / max(1, recording.ctas)
        sizes = {number: region.size / SECTOR for region, number in self._regions.items()}
        new = {}
        for number, (requests, first) in self._draws.items():
            every = requests * scale / sizes[number]
            """Requests of the grid for each sector."""
            new[number] = min(1.0, requests / max(every * first, 1.0))
            recording.distant -= (1.0 - new[number]) * first * FROM_DRAM / 2
        for run in runs:
            if any(one is not None and one.drawn for one in run.accesses):
                run.accesses = tuple(
                    replace(one, distant=one.distant * new[one.drawn]) if one is not None and one.drawn else one
                    for one in run.accesses
                )

    def _common(self) -> set[int]:
        """Small arrays that one cluster reads whole and no thread writes."""
        read: Counter[int] = Counter(one >> 40 for one in self.touched if isinstance(one, int))
        sizes = {number: region.size for region, number in self._regions.items()}
        return {
            number for number in self._asked.keys() - self._written
            if read[number] * SECTOR >= WHOLE * sizes[number]
        }  # fmt: skip

    def copied(self, lanes: np.ndarray, address: np.ndarray, size: int) -> tuple[int, float, float]:
        """Return the 128-byte lines, sector bytes and DRAM bytes of a copy that lanes start.

        address: global addresses that the lanes read.
        """
        lines = np.unique(np.stack([lanes.astype(np.int64) >> 5, address >> 7]), axis=1).shape[1]
        sectors = {("copied", one) for one in np.unique(address >> 5).tolist()}
        new = sectors - self.touched
        self.touched |= new
        return lines, float(max(SECTOR * len(sectors), size * lanes.size)), self._from_dram({one for _, one in new})

    def _from_dram(self, sectors: set[int]) -> float:
        """Bytes that DRAM reads to supply new sectors."""
        pairs = {one >> 1 for one in sectors} - self._pairs
        self._pairs |= pairs
        return float(FROM_DRAM * len(pairs))

    def _cache(self, cta: Cta) -> Cache:
        found = self._caches.get(id(cta))
        if found is None:
            found = self._caches[id(cta)] = Cache(self._cache_sectors())
        return found

    def _second_sectors(self) -> int:
        """The recorded clusters' share of L2 while CTAs run on all SMs, in sectors."""
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
        """A CTA's share of L1 in sectors: what shared memory leaves, divided among resident CTAs."""
        shared, residents = self._machine.code.shared_size, self._residents()
        return max(1, ((256 << 10) - residents * shared) // residents // SECTOR)


def _paired(lanes: np.ndarray, address: np.ndarray) -> bool:
    """True if each lane reads the same address as the lane at XOR distance 1, or each as the lane at distance 2."""
    asked = np.full((int(lanes.max()) | 31) + 1, -1, np.int64)
    asked[lanes] = address
    for distance in (1, 2):
        other = asked[np.arange(asked.size) ^ distance]
        if np.all((asked == other) | (asked < 0) | (other < 0)):
            return True
    return False


def _loops(frame: Frame) -> bool:
    """True if ptxas makes an atomic on shared memory a loop with a compare-and-swap, as for sums of floats."""
    words = frame.operation.instruction.opcode.split(".")
    return words[-1] not in ("u32", "s32", "b32") and SWAPS.isdisjoint(words)


def _rounds(lanes: np.ndarray, address: np.ndarray) -> float:
    """Return the most lanes of a warp that update the same word, as a mean over the warps: one of them a round."""
    words, counts = np.unique(lanes.astype(np.int64) >> 5 << 40 | address >> 2, return_counts=True)
    return float(np.mean([counts[words >> 40 == warp].max() for warp in np.unique(words >> 40)]))


def _past_first_level(frame: Frame) -> bool:
    return not PAST_L1.isdisjoint(frame.operation.instruction.opcode.split("."))
