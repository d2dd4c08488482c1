"""What the warps of a few clusters did, as a replay needs it: steps in program order, operations, phases, meetings.

A warp's steps are tuples, `(kind, pc, payload)`:

    RUN          instructions between two other steps; payload: index into `runs`
    ISSUE        an asynchronous operation begins; payload: index into `operations`
    ARRIVE       the warp takes part in the completion of a phase; payload: index into `phases`
    WAIT         for a phase
    GROUP        for operations; payload: (their indices, whether until their sources are read only)
    MEET, PASS   the arrival at a meeting and the wait for it; payload: index into `meetings`
    FENCE        a fence; payload: its kind
    GRID         griddepcontrol.wait; RELEASE: griddepcontrol.launch_dependents
    HOLD         columns of tensor memory are taken; payload: how many, below 0 where they are given back
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any

from ..emulator.machine.units import LOADS

RUN, ISSUE, ARRIVE, WAIT, GROUP, MEET, PASS, FENCE, GRID, RELEASE, HOLD = range(11)
Step = tuple[int, int, Any]
Registers = tuple[frozenset[int], frozenset[int]]
"""That an instruction reads, and that it writes."""
REMOTE = "remote"
"""The space of an access to shared memory of another CTA of the cluster."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one instruction of one warp asks of the memory pipe.

    Attributes:
        space: "shared", REMOTE, "global" or "local"; writes: whether it stores (an update does both).
        updates: whether it does both, by an atomic; wavefronts: passes through the pipe.
        sectors: 32-byte sectors of global memory that it touches; missed: those not in the first-level cache.
        distant: sectors that this cluster touches for the first time; evicted: that it read so long ago that others'
            have taken their place in L2, if all of the launch's do not fit.
        common: number of a small array that it reads, which all CTAs may read; 0 for others.
        chance: how often it misses at all; its sectors are those of a mean one.
        paired: of a load from shared memory, each lane asks for what its neighbour, or the one after that, asks for.
    """

    space: str
    writes: bool
    wavefronts: float
    sectors: float = 0.0
    missed: float = 0.0
    distant: float = 0.0
    updates: bool = False
    evicted: float = 0.0
    paired: bool = False
    common: int = 0
    chance: float = 1.0

    @property
    def is_far(self) -> bool:
        """Whether it waits, as a rule, for what comes from outside of the SM."""
        if self.space == REMOTE:
            return True
        return self.space == "global" and (self.updates or bool(self.missed) and self.chance > 0.5)

    def joined(self, other: Access) -> Access:
        """Both, as one access of one instruction."""
        return Access(
            self.space, self.writes or other.writes, self.wavefronts + other.wavefronts, self.sectors + other.sectors,
            self.missed + other.missed, self.distant + other.distant, self.updates or other.updates,
            self.evicted + other.evicted, self.paired and other.paired,
            self.common if self.common == other.common else 0, max(self.chance, other.chance),
        )  # fmt: skip

    def kept(self, share: float, chance: float) -> Access:
        """The same access where the first-level cache has all but this share of what it asks for; chance: see above."""
        return replace(
            self,
            missed=self.missed * share,
            distant=self.distant * share,
            evicted=self.evicted * share,
            common=0,
            chance=chance,
        )


@dataclass(slots=True)
class Run:
    """Instructions that a warp issues one after the other: program counters, and the accesses of some of them.

    registers: that each reads and writes, where they stand in the machine code's order and not in the PTX's.
    """

    pcs: tuple[int, ...]
    accesses: tuple[Access | None, ...]
    registers: tuple[Registers, ...] = ()


@dataclass(slots=True)
class Operation:
    """An asynchronous operation.

    Attributes:
        engine: "warpgroup_mma", "tma", "cp_async", "remote", "umma"…; stores: whether it writes global memory.
        issuers: warps that issue it together.
        bytes: that arrive; fetched: that are asked of L2 for it (a multicast asks once); rows: of its box, of at most
            128 bytes each, or lines of 128 bytes that lanes copy; outside: those of them that are outside of the array.
        flops; n, k: of a matrix product; source: where A comes from, "shared", "registers" or "tensor"; dtype: of A.
        after: operations that are carried out before it, in order.
        phases: to whose completion it contributes.
        distant: bytes that this cluster fetches for the first time.
        target: what it fills, for people; group: of those that were committed together, the first; -1 for none.
        conflicts: passes through shared memory beyond those that its bytes need, of a copy by lanes.
    """

    engine: str
    pc: int
    cta: int
    warp: int
    stores: bool = False
    issuers: int = 1
    bytes: int = 0
    fetched: float = 0
    rows: int = 0
    outside: int = 0
    flops: int = 0
    n: int = 0
    k: int = 0
    source: str = "shared"
    dtype: str = ""
    after: tuple[int, ...] = ()
    phases: list[int] = field(default_factory=list)
    distant: float = 0
    target: str = ""
    text: str = ""
    group: int = -1
    conflicts: int = 0

    @property
    def is_copy(self) -> bool:
        """Whether a thread starts a load by TMA; the further receivers of a multicast come with the first."""
        return self.engine == LOADS.engine and not self.stores and bool(self.fetched or self.outside)


@dataclass(slots=True)
class Phase:
    """A phase of an mbarrier: it is complete when `contributions` (arrivals and copies) have been made."""

    name: str
    number: int
    cta: int
    stage: int = -1
    contributions: int = 0


@dataclass(slots=True)
class Meeting:
    """One use of a named barrier or of a cluster's barrier by `warps` warps."""

    kind: str
    name: str
    warps: int = 0


@dataclass
class Recording:
    """See the module's docstring.

    Attributes:
        steps: by (CTA in the grid, warp).
        ranks: of each recorded CTA, its cluster.
        roles: by warp.
        pcs: what is known of each instruction, by program counter (`instructions.Facts`).
        flops, fetched, received, stored, written: sums over the recorded CTAs: of matrix products; bytes asked of L2,
            received by SMs, sent to global memory in whole sectors, and of those what lanes and copies write.
        evicted: bytes that L2 may have lost when they are read again.
        dirty: bytes of the sectors that they write, each counted once; updates: lines that warps update by atomics.
        updated_bytes: of the arrays that they update; mixed: whether several words of a line are updated.
        turns: of CTAs that take number after number from a queue: how many operations there were before each.
        loops: backward branches, by program counter, with their targets.
        uncounted: why the machine's instructions are not known, so that those of the PTX are counted; "" if they are.
        marks: steps whose time somebody wants to know, by CTA and warp.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int = 0
    pdl: bool = False
    steps: dict[tuple[int, int], list[Step]] = field(default_factory=dict)
    clusters: dict[int, list[int]] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    meetings: list[Meeting] = field(default_factory=list)
    pcs: list[Any] = field(default_factory=list)
    flops: float = 0.0
    fetched: float = 0.0
    received: float = 0.0
    stored: float = 0.0
    written: float = 0.0
    dirty: float = 0.0
    evicted: float = 0.0
    updates: float = 0.0
    updated_bytes: float = 0.0
    mixed: bool = False
    distant: float = 0.0
    turns: dict[int, list[int]] = field(default_factory=dict)
    loops: dict[int, int] = field(default_factory=dict)
    uncounted: str = ""
    marks: dict[tuple[int, int], set[int]] = field(default_factory=dict)

    @property
    def ctas(self) -> int:
        """How many CTAs were recorded."""
        return sum(len(ctas) for ctas in self.clusters.values())

    @property
    def pace(self) -> float:
        """Work of a mean CTA, of that of the recorded ones, where they take their tiles from a queue.

        They have the first tile of each turn. What others get of a turn lies between it and the first of the next one:
        less, where a queue begins with its longest tiles.
        """
        shares = []
        for cta, marks in self.turns.items():
            loads = [0.0] * (len(marks) + 1)
            for index, one in enumerate(self.operations):
                if one.cta == cta and not one.stores:
                    loads[bisect_right(marks, index)] += one.fetched
            tiles = [bytes_ for bytes_ in loads if bytes_]
            if tiles:
                shares.append(1 - (tiles[0] - tiles[-1]) / (2 * sum(tiles)))
        return sum(shares) / len(shares) if shares else 1.0

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        x, y, z = self.block
        return -(-x * y * z // 32)

    @property
    def tiles(self) -> int:
        """Of the warp with most of them, how often it multiplies matrices and then writes to global memory."""
        writing = [any(one and one.writes and one.space == "global" for one in run.accesses) for run in self.runs]
        return max((self._tiles_of(steps, writing) for steps in self.steps.values()), default=0)

    def _tiles_of(self, steps: list[Step], writing: list[bool]) -> int:
        found, multiplied = 0, False
        for kind, _, payload in steps:
            if kind == RUN:
                writes = writing[payload]
                multiplied = multiplied or any(self.pcs[pc].flops for pc in self.runs[payload].pcs)
            elif kind == ISSUE:
                writes, multiplied = self.operations[payload].stores, multiplied or self.operations[payload].flops > 0
            else:
                continue
            if writes and multiplied:
                found, multiplied = found + 1, False
        return found
