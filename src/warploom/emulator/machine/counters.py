"""The counters of a machine."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...isa.instructions.table import MATRIX_UNITS

SECTOR = 32
BANK_COUNT = 32
BANK_WIDTH = 4
KEPT_PATTERNS = 4096
"""Maximum number of address patterns whose cost is remembered."""


@dataclass
class Site:
    """The cost of one instruction's memory accesses, over all warps."""

    requests: int = 0
    conflicts: int = 0
    sectors: int = 0
    bytes: int = 0

    def add(self, other: Site) -> None:
        self.requests += other.requests
        self.conflicts += other.conflicts
        self.sectors += other.sectors
        self.bytes += other.bytes


@dataclass
class Counters:
    """The counters of a run. Instructions count once for each warp; bytes once for each thread's access.

    Attributes:
        detailed: True if sectors and bank conflicts are counted (this costs time; on if checking is on).
        global_sectors: 32-byte sectors that the warps' global requests accessed.
        bank_conflicts: shared-memory passes beyond the minimum.
        tma_load_bytes, tma_fetch_bytes: bytes that TMA loads delivered to the receivers, and bytes fetched for them: a
            multicast fetches once.
        tensor_memory_product_bytes: tensor memory that tcgen05 MMAs read and wrote: D, and A if it is there.
        mbarrier_arrivals: threads that arrived; completions by copies do not count.
    """

    detailed: bool = False
    instructions: int = 0
    global_load_bytes: int = 0
    global_store_bytes: int = 0
    global_requests: int = 0
    global_sectors: int = 0
    shared_load_bytes: int = 0
    shared_store_bytes: int = 0
    bank_conflicts: int = 0
    local_bytes: int = 0
    tma_load_bytes: int = 0
    tma_fetch_bytes: int = 0
    tma_store_bytes: int = 0
    cp_async_bytes: int = 0
    matrix_operand_bytes: int = 0
    tensor_memory_load_bytes: int = 0
    tensor_memory_store_bytes: int = 0
    tensor_memory_copy_bytes: int = 0
    tensor_memory_product_bytes: int = 0
    tensor_flops: int = 0
    barrier_waits: int = 0
    mbarrier_waits: int = 0
    mbarrier_arrivals: int = 0
    ctas: int = 0
    matrix: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MATRIX_UNITS, 0))
    """MMAs by instruction kind; also as attributes: `counters.mma`."""
    sites: dict[int, Site] = field(default_factory=dict, repr=False)
    """By program counter, if `detailed`."""

    def __post_init__(self) -> None:
        self._patterns: dict[Hashable, Any] = {}

    def __getattr__(self, name: str) -> int:
        if name in MATRIX_UNITS:
            return self.matrix[name]
        raise AttributeError(f"unknown counter {name!r}")

    def count_products(self, unit: str, times: int, flops: int) -> None:
        """Count MMA instructions and their floating-point operations."""
        self.matrix[unit] += times
        self.tensor_flops += flops * times

    def count_access(
        self, pc: int, space: str, kind: str, size: int, lanes: np.ndarray, address: np.ndarray, raw: bytes = b""
    ) -> None:
        """Count a load or store of `size` bytes by these lanes; `raw`: see `resolve.Pattern`."""
        total = size * lanes.size
        if space.startswith("shared"):
            if kind == "load":
                self.shared_load_bytes += total
            else:
                self.shared_store_bytes += total
            if self.detailed:
                extra = self._by_pattern(bank_conflicts, BANK_COUNT * BANK_WIDTH, lanes, address, raw, size)
                self.bank_conflicts += extra
                site = self._site(pc)
                site.requests += -(-lanes.size // 32)
                site.conflicts += extra
                site.bytes += total
        elif space in ("global", "generic", "const"):
            if kind == "load":
                self.global_load_bytes += total
            else:
                self.global_store_bytes += total
            if self.detailed:
                requests, sectors = self._by_pattern(global_sectors, SECTOR, lanes, address, raw, size)
                self.global_requests += requests
                self.global_sectors += sectors
                site = self._site(pc)
                site.requests += requests
                site.sectors += sectors
                site.bytes += total
        elif space == "local":
            self.local_bytes += total

    def as_dict(self) -> dict[str, object]:
        """The counters as plain values, for JSON."""
        values = asdict(self)
        del values["sites"]
        return values.pop("matrix") | values

    def _by_pattern(
        self, count: Callable[[np.ndarray, np.ndarray, int], Any], period: int, lanes: np.ndarray, address: np.ndarray,
        raw: bytes, size: int,
    ) -> Any:  # fmt: skip
        """Apply a count to every occurrence of an address pattern that starts at a multiple of `period` bytes."""
        whole = int(lanes[-1]) + 1 == lanes.size  # the first lanes, without a gap
        raw = raw or (address - address[0]).tobytes()
        key = (count, size, int(address[0]) % period, raw, lanes.size if whole else lanes.tobytes())
        found = self._patterns.get(key)
        if found is None:
            if len(self._patterns) >= KEPT_PATTERNS:
                self._patterns.clear()
            found = self._patterns[key] = count(lanes, address, size)
        return found

    def _site(self, pc: int) -> Site:
        found = self.sites.get(pc)
        if found is None:
            found = self.sites[pc] = Site()
        return found


def bank_conflicts(lanes: np.ndarray, address: np.ndarray, size: int) -> int:
    """Extra passes of one shared-memory request of each warp: 32 banks of 4 bytes.

    Accesses of 8 bytes go in half-warps and of 16 in quarter-warps (performance guides; the count is the number of
    different 4-byte words in the most contended bank, minus one, over all groups).
    """
    steps = np.diff(address)
    if not np.count_nonzero(steps - size) or not np.count_nonzero(steps):
        return 0  # consecutive words, or all the same word
    groups = lanes // WARP_GROUPS.get(size, 32)
    words = address // BANK_WIDTH
    if size > BANK_WIDTH:
        parts = np.arange(size // BANK_WIDTH)
        groups, words = np.repeat(groups, parts.size), (words[:, None] + parts).reshape(-1)
    keys = (groups - groups[0]) << 40 | words
    keys.sort()
    keys = keys[_changes(keys)]
    counts = np.bincount((keys >> 40) * BANK_COUNT + keys % BANK_COUNT, minlength=BANK_COUNT)
    padded = np.zeros(-(-counts.size // BANK_COUNT) * BANK_COUNT, np.int64)
    padded[: counts.size] = counts
    fullest = padded.reshape(-1, BANK_COUNT).max(axis=1)
    return int(fullest.sum() - np.count_nonzero(fullest))


def _changes(ordered: np.ndarray) -> np.ndarray:
    """Where a sorted array has a value for the first time."""
    new = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return new


WARP_GROUPS = {8: 16, 16: 8}
"""Lanes that one pass of a wide shared access serves."""


def global_sectors(lanes: np.ndarray, address: np.ndarray, size: int) -> tuple[int, int]:
    """Requests (one for each warp) and the 32-byte sectors they touch."""
    if lanes.size % 32 == 0 and int(address[0]) % SECTOR == 0 and not np.count_nonzero(np.diff(address) - size):
        return lanes.size // 32, lanes.size * size // SECTOR  # consecutive addresses
    warps = lanes >> 5
    keys = warps << 48 | address // SECTOR
    if size > SECTOR or SECTOR % size or np.count_nonzero(address % size):  # an access may span two sectors
        keys = np.concatenate([keys, warps << 48 | (address + size - 1) // SECTOR])
    keys.sort()
    return int(np.count_nonzero(_changes(warps))), int(np.count_nonzero(_changes(keys)))
