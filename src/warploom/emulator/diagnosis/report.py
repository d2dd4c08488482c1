"""What an emulation gives back: counters, findings, outputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...errors import EmulationError, SourceLocation, WarploomError

if TYPE_CHECKING:
    from ..machine.frame import Frame
    from ..schedule.exhaustive import Interleavings

SECTOR = 32
BANK_COUNT = 32
BANK_WIDTH = 4


@dataclass
class Site:
    """What one instruction's memory accesses cost, over all warps."""

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
    """What the machine did. Instructions count once for each warp; bytes once for each thread's access.

    Attributes:
        detailed: whether sectors and bank conflicts are counted (they cost time; on where checking is on).
        global_sectors: 32-byte sectors that the warps' global requests touched.
        bank_conflicts: extra shared-memory passes beyond the fewest possible.
        tma_load_bytes, tma_fetch_bytes: what TMA loads brought to the receivers, and what they fetched for it: a
            multicast fetches once.
        mbarrier_arrivals: threads that arrived; completions by copies are not among them.
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
    wgmma: int = 0
    mma: int = 0
    tensor_flops: int = 0
    barrier_waits: int = 0
    mbarrier_waits: int = 0
    mbarrier_arrivals: int = 0
    ctas: int = 0
    sites: dict[int, Site] = field(default_factory=dict, repr=False)
    """By program counter, where `detailed`."""

    def count_access(
        self, frame: Frame, space: str, kind: str, size: int, lanes: np.ndarray, address: np.ndarray
    ) -> None:
        """Count a load or store of `size` bytes by these lanes."""
        total = size * lanes.size
        if space.startswith("shared"):
            if kind == "load":
                self.shared_load_bytes += total
            else:
                self.shared_store_bytes += total
            if self.detailed:
                extra = bank_conflicts(lanes, address, size)
                self.bank_conflicts += extra
                site = self._site(frame)
                site.requests += -(-lanes.size // 32)
                site.conflicts += extra
                site.bytes += total
        elif space in ("global", "generic", "const"):
            if kind == "load":
                self.global_load_bytes += total
            else:
                self.global_store_bytes += total
            if self.detailed:
                requests, sectors = global_sectors(lanes, address, size)
                self.global_requests += requests
                self.global_sectors += sectors
                site = self._site(frame)
                site.requests += requests
                site.sectors += sectors
                site.bytes += total
        elif space == "local":
            self.local_bytes += total

    def as_dict(self) -> dict[str, object]:
        """The counters as plain values, for JSON."""
        values = asdict(self)
        del values["sites"]
        return values

    def _site(self, frame: Frame) -> Site:
        pc = frame.operation.pc
        found = self.sites.get(pc)
        if found is None:
            found = self.sites[pc] = Site()
        return found


def bank_conflicts(lanes: np.ndarray, address: np.ndarray, size: int) -> int:
    """Extra passes of one shared-memory request of each warp: 32 banks of 4 bytes.

    Accesses of 8 bytes go in half-warps and of 16 in quarter-warps (performance guides; the count is the number of
    different 4-byte words that meet in the fullest bank, less one, over all groups).
    """
    steps = np.diff(address)
    if not np.count_nonzero(steps - size) or not np.count_nonzero(steps):
        return 0  # neighbours, or all the same word
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
        return lanes.size // 32, lanes.size * size // SECTOR  # neighbours
    warps = lanes >> 5
    keys = warps << 48 | address // SECTOR
    if size > SECTOR or SECTOR % size or np.count_nonzero(address % size):  # one access may touch two sectors
        keys = np.concatenate([keys, warps << 48 | (address + size - 1) // SECTOR])
    keys.sort()
    return int(np.count_nonzero(_changes(warps))), int(np.count_nonzero(_changes(keys)))


@dataclass(frozen=True)
class Side:
    """One of the accesses that a finding is about.

    Attributes:
        who: role, warp and CTA, or "" where it is about the instruction whoever runs it.
        what: a clause: "writes boxes[0], row 3, chunk 1"; "" where the finding's summary says it.
        text: the instruction as PTX; location: its place in the user's text.
    """

    who: str
    what: str
    text: str
    location: SourceLocation | None = None


@dataclass(frozen=True)
class Finding:
    """Something wrong, or slow, that was seen.

    Attributes:
        rule: id of the rule.
        severity: "error", "warning" or "performance".
        message: sentences for a person, with all of what follows.
        locations: the places in the user's text, most important first.
        summary: one sentence, without the fix.
        sides: the accesses it is about, the later one first.
        address: buffer, stage, row and chunk of the first byte in question, as far as the author's layout is known.
        missing: the edge that is not there, in words.
        history: what the barriers in question went through, a line for each phase.
        fix: what to do; count: how often it was met.
        notes: (label, text) of anything else there is to say.
    """

    rule: str
    message: str
    severity: str = "error"
    locations: tuple[SourceLocation | str, ...] = ()
    cta: tuple[int, int, int] | None = None
    warp: int | None = None
    summary: str = ""
    sides: tuple[Side, ...] = ()
    address: str = ""
    missing: str = ""
    history: tuple[str, ...] = ()
    fix: str = ""
    count: int = 1
    notes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_error(cls, error: WarploomError) -> Finding:
        """An error that ended a check, in the form of a finding; its rule is the error's name."""
        location = getattr(error, "location", None)
        where = error.where
        if isinstance(where, SourceLocation):
            location, text = where, ""
        else:
            text = (where or "").removeprefix(str(location) if location else "").strip()
        sides = tuple(
            Side(f"{wait.who} in {wait.where()}", wait.what(), wait.text, wait.location)
            for wait in getattr(error, "waits", ())
        )
        text, _, who = text.partition("\n")
        parts = (("expected", error.expected), ("got", error.got), ("otherwise", error.consequence))
        places = tuple(side.location for side in sides if side.location) or ((location,) if location else ())
        return cls(
            rule=type(error).__name__,
            message=str(error),
            locations=tuple(dict.fromkeys(places)),
            summary=error.what,
            sides=sides or (Side(who.strip(), "", text, location),) * bool(text or location),
            fix=error.hint or "",
            notes=tuple((label, str(part)) for label, part in parts if part is not None),
        )

    def __str__(self) -> str:
        return f"{self.severity}[{self.rule}]: {self.message}"


@dataclass
class Report:
    """The result of an emulation; printed, it is one line and a line for each finding.

    Attributes:
        outputs: the arrays passed as arguments, updated.
        findings: empty for a kernel that was clean under this schedule.
        schedule, seed: with which it ran; the same pair replays it.
        launch: grid, block, cluster.
        explored: the pairs that were run before this one was chosen, with schedule "explore".
        interleavings: what a search of all of them found, with schedule "exhaustive".
    """

    entry: str
    outputs: tuple[np.ndarray, ...] = field(default=(), repr=False)
    findings: list[Finding] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    schedule: str = "lazy"
    seed: int = 0
    seconds: float = 0.0
    launch: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    explored: tuple[tuple[str, int], ...] = ()
    error: EmulationError | None = None
    interleavings: Interleavings | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no finding of severity error."""
        return not any(finding.severity == "error" for finding in self.findings)

    def __str__(self) -> str:
        count = len(self.findings)
        found = f"{count} finding{'s' if count != 1 else ''}" if count else "no findings"
        ctas, instructions = self.counters.ctas, self.counters.instructions
        first = (
            f"{self.entry}: {found}; {ctas} CTA{'s' if ctas != 1 else ''}, {instructions} warp instructions, "
            f"schedule {self.schedule}, seed {self.seed}"
        )
        return "\n".join([first, *(f"  {finding}" for finding in self.findings)])

    def raise_on_findings(self) -> Report:
        """Raise the first error-level finding; give back the report where there is none."""
        if self.error is not None:
            raise self.error
        for finding in self.findings:
            if finding.severity == "error":
                raise EmulationError(str(finding), where=finding.locations[0] if finding.locations else None)
        return self
