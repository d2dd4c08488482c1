"""A recording of a few clusters for replay: warp steps in program order, operations, phases, meetings.

A warp's steps are tuples, `(kind, pc, payload)`:

    RUN          instructions between two other steps; payload: index into `runs`
    ISSUE        start of an asynchronous operation; payload: index into `operations`
    ARRIVE       a contribution to the completion of a phase; payload: index into `phases`
    WAIT         wait for a phase; payload: index into `phases`
    GROUP        wait for operations; payload: (their indices, True to wait only until their sources are read)
    MEET, PASS   arrival at a barrier, and the wait there; payload: index into `meetings`
    FENCE        a fence; payload: its kind
    GRID         griddepcontrol.wait; RELEASE: griddepcontrol.launch_dependents
    HOLD         allocation of tensor memory; payload: the number of columns, below 0 if they are freed
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..emulator.machine.units import LOADS
from .contention import Updates

RUN, ISSUE, ARRIVE, WAIT, GROUP, MEET, PASS, FENCE, GRID, RELEASE, HOLD = range(11)
Step = tuple[int, int, Any]
Registers = tuple[frozenset[int], frozenset[int]]
"""Registers that an instruction reads, and registers that it writes."""
REMOTE = "remote"
"""The space of an access to shared memory of another CTA of the cluster."""


@dataclass(frozen=True, slots=True)
class Access:
    """The memory pipe requests of one instruction of one warp.

    Attributes:
        space: "shared", REMOTE, "global" or "local"; writes: it stores, or updates by an atomic.
        updates: it is an atomic; wavefronts: passes through the pipe.
        sectors: 32-byte sectors of global memory that it touches; missed: sectors that miss L1.
        distant: sectors that this cluster touches for the first time; evicted: sectors read so long ago that others
            have replaced them in L2, if the launch's data do not fit there.
        common: number of a small array that it reads, which all CTAs may read; 0 for others.
        drawn: number of an array that it reads at addresses which the kernel has loaded; 0 for others.
        chance: probability that it misses at all; sector counts are means.
        rounds: rounds of its loop, for an update of shared memory that ptxas makes of a load and a compare-and-swap.
        paired: a shared-memory load in which each lane reads the address of the lane at XOR distance 1, or 2.
        parts: accesses that were joined into this one: those of a wmma fragment's elements.
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
    rounds: float = 0.0
    drawn: int = 0
    parts: int = 1

    @property
    def is_far(self) -> bool:
        """True if it usually waits for data from outside the SM."""
        if self.space == REMOTE:
            return True
        return self.space == "global" and (self.updates or bool(self.missed) and self.chance > 0.5)

    def joined(self, other: Access) -> Access:
        """Return both as one access of one instruction."""
        return Access(
            self.space, self.writes or other.writes, self.wavefronts + other.wavefronts, self.sectors + other.sectors,
            self.missed + other.missed, self.distant + other.distant, self.updates or other.updates,
            self.evicted + other.evicted, self.paired and other.paired,
            self.common if self.common == other.common else 0, max(self.chance, other.chance),
            max(self.rounds, other.rounds), self.drawn if self.drawn == other.drawn else 0, self.parts + other.parts,
        )  # fmt: skip

    def kept(self, share: float, chance: float) -> Access:
        """Return the same access with only this share missing L1; chance: see above."""
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
    """Instructions that a warp issues in sequence: program counters, and the accesses of some of them.

    registers: what each reads and writes, if the run is in machine order and not in PTX order.
    """

    pcs: tuple[int, ...]
    accesses: tuple[Access | None, ...]
    registers: tuple[Registers, ...] = ()


class BoxPlace(NamedTuple):
    """A box in an array of global memory: the array's address and extents, the box's first element and its extents,
    innermost first."""

    array: int
    first: tuple[int, ...]
    counts: tuple[int, ...]
    extents: tuple[int, ...]


@dataclass(slots=True)
class Operation:
    """An asynchronous operation.

    Attributes:
        engine: "warpgroup_mma", "tma", "cp_async", "remote", "umma"…; stores: it writes global memory.
        issuers: number of warps that issue it together.
        bytes: bytes that arrive; fetched: bytes requested from L2 (once for a multicast); rows: rows of its box, at
            most 128 bytes each, or 128-byte lines that lanes copy; outside: of these, the ones outside the array.
        flops, n, k: of a matrix product; source: where A is, "shared", "registers" or "tensor"; dtype: A's.
        after: operations that must finish before it, in order.
        phases: the phases to whose completion it contributes.
        distant: bytes that this cluster fetches for the first time.
        target: its destination, in words; group: the first operation committed with it, -1 for none.
        conflicts: extra passes through shared memory due to bank conflicts, for a copy by lanes.
        place: where its box is in global memory; None if it has none.
        moved: a product whose descriptors its warps first move into uniform registers; repeated: a TMA copy in a loop
            over the lanes.
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
    place: BoxPlace | None = None
    moved: bool = False
    repeated: bool = False

    @property
    def is_copy(self) -> bool:
        """True for a TMA load that a thread starts; the other receivers of a multicast are part of the first."""
        return self.engine == LOADS.engine and not self.stores and bool(self.fetched or self.outside)


@dataclass(slots=True)
class Phase:
    """A phase of an mbarrier, complete after `contributions` arrivals and copies."""

    name: str
    number: int
    cta: int
    stage: int = -1
    contributions: int = 0


@dataclass(slots=True)
class BarrierUse:
    """One use of a named barrier or of a cluster's barrier by `warps` warps."""

    kind: str
    name: str
    warps: int = 0


@dataclass
class Recording:
    """See the module's docstring.

    Attributes:
        steps: steps by (CTA in the grid, warp).
        ranks: the cluster of each recorded CTA.
        roles: role of each warp.
        pcs: facts about each instruction, by program counter (`instructions.Facts`).
        flops, fetched, received, stored, written: totals of the recorded CTAs: FLOP of matrix products; bytes requested
            from L2, received by SMs, sent to global memory in whole sectors, and actually written by lanes and copies.
        evicted: bytes that may have left L2 before they are read again.
        dirty: bytes of the written sectors, each counted once; updates: atomics on lines that differ between CTAs.
        shared_updates: atomics on the same lines in all CTAs.
        piled: additions of floats to one word of global memory, if the words of an array are hit evenly.
        turns: for CTAs that take tiles from a queue, the number of operations before each tile.
        pace: work of a mean CTA relative to the recorded ones, if they take their tiles from a queue.
        lanes_wrote: of the written bytes, those that lanes write to each array, by its name.
        last: another recording, of the CTA that arrives last where CTAs count their arrivals; None if they do not.
        arrivals: how many arrive there.
        loops: backward branches, by program counter, with their targets.
        uncounted: why PTX instructions are counted instead of machine instructions; "" if they are not.
        stands: for which clusters the recorded ones stand, if others may do more or less; "" if none do.
        left_out: what it would wait for on a GPU, which no prediction knows.
        marks: steps whose time is wanted, by CTA and warp.
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
    meetings: list[BarrierUse] = field(default_factory=list)
    pcs: list[Any] = field(default_factory=list)
    flops: float = 0.0
    fetched: float = 0.0
    received: float = 0.0
    stored: float = 0.0
    written: float = 0.0
    dirty: float = 0.0
    evicted: float = 0.0
    updates: Updates = field(default_factory=Updates)
    shared_updates: Updates = field(default_factory=Updates)
    piled: float = 0.0
    distant: float = 0.0
    turns: dict[int, list[int]] = field(default_factory=dict)
    pace: float = 1.0
    lanes_wrote: dict[str, float] = field(default_factory=dict)
    last: Recording | None = None
    arrivals: int = 1
    loops: dict[int, int] = field(default_factory=dict)
    uncounted: str = ""
    stands: str = ""
    left_out: list[str] = field(default_factory=list)
    marks: dict[tuple[int, int], set[int]] = field(default_factory=dict)

    @property
    def ctas(self) -> int:
        """Number of recorded CTAs."""
        return sum(len(ctas) for ctas in self.clusters.values())

    @property
    def taken(self) -> list[list[float]]:
        """Bytes that each recorded CTA loads for each tile that it takes from a queue."""
        found = []
        for cta, marks in self.turns.items():
            loads = [0.0] * (len(marks) + 1)
            for index, one in enumerate(self.operations):
                if one.cta == cta and not one.stores:
                    loads[bisect_right(marks, index)] += one.fetched
            found.append([bytes_ for bytes_ in loads if bytes_])
        return [tiles for tiles in found if tiles]

    @property
    def warps(self) -> int:
        """Number of warps per CTA."""
        x, y, z = self.block
        return -(-x * y * z // 32)

    @property
    def tiles(self) -> int:
        """Output tiles of the busiest warp: how often it multiplies matrices and then writes to global memory."""
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
