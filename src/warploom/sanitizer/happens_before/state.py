"""What the sanitizer knows of one cluster: its warps' clocks, its shared memory's shadows, its operations in flight.

Everything here dies with the cluster, so operations and accesses are numbered within it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..shadow.shadow import Access, Readers, Shadow
from .clocks import FULL, Released, View, WarpClock
from .copies import WarpCopies

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cluster, Cta
    from ...emulator.machine.memory import Region
    from ...emulator.program.code import Operation
    from .edges import BarrierClock

WARP = 32


@dataclass(eq=False)
class Flight:
    """An asynchronous operation as the clocks see it.

    Attributes:
        read, done: one bit each: "it has read its sources", "it is done" (which implies the first).
        phase: of the barrier it signals, when it was issued; -1 without one.
        weak: of a wgmma, what its four warps had done when they issued it.
    """

    read: int
    done: int
    operation: AsyncOperation
    cta: Cta
    warp: int
    phase: int = -1
    weak: list[int] = field(default_factory=list)

    @property
    def all(self) -> int:
        return self.read | self.done

    @property
    def number(self) -> int:
        """Counted from 0 within its cluster."""
        return (self.read.bit_length() - 1) // 2


@dataclass(eq=False)
class Groups:
    """Operations not yet committed, and committed groups that nobody has waited for, oldest first."""

    open: list[Flight] = field(default_factory=list)
    committed: list[list[Flight]] = field(default_factory=list)

    def commit(self) -> None:
        self.committed.append(self.open)
        self.open = []

    def wait(self, newest: int, keep: bool = False) -> list[Flight]:
        """The operations of all groups but the newest; these groups are forgotten unless they are to be kept."""
        count = max(0, len(self.committed) - newest)
        done = [flight for group in self.committed[:count] for flight in group]
        if not keep:
            del self.committed[:count]
        return done

    def pending(self) -> list[Flight]:
        return [flight for group in self.committed for flight in group] + self.open


@dataclass(frozen=True, eq=False)
class Waited:
    """The latest phase of a barrier that a warp saw complete (-1: none yet, it was fresh), where, and at which step."""

    phase: int
    code: Operation
    when: int = 0


class ClusterState:
    """See the module's docstring.

    Attributes:
        clocks: of all warps, CTA by CTA.
        accesses: by number; 0 is none.
        number: of the cluster, in the order in which clusters were first seen.
        exits: the clock of each warp when it exited.
        waits: (CTA, offset of a barrier, warp) -> what it waited for last.
        glances: warp -> the last wait it executed whose result nobody looks at.
        unfenced: barriers a warp has initialised since its last fence.mbarrier_init.
        remote: (target CTA's rank, warp) -> (epoch, instruction) of the latest access to another CTA.
    """

    def __init__(self, cluster: Cluster, granule: int, number: int = 0) -> None:
        self.cluster = cluster
        self.number = number
        self.per_cta = len(cluster.ctas[0].warps)
        self.count = self.per_cta * cluster.size
        self.clocks = [WarpClock(me, self.count) for me in range(self.count)]
        self.accesses: list[Access] = [None]  # type: ignore[list-item]
        self.readers = Readers()
        self.shadows: dict[Region, Shadow] = {cta.shared: Shadow(cta.shared, granule) for cta in cluster.ctas}
        self.owners: dict[Region, Cta] = {cta.shared: cta for cta in cluster.ctas}
        self.flights: list[Flight] = []
        self.bulk: dict[tuple[int, int], Groups] = {}
        self.owners_wait: set[Operation] = set()
        self.idle_waits: dict[tuple[Operation, frozenset[int]], tuple[int, int, Operation]] = {}
        self.copies: dict[int, WarpCopies] = {}
        self.copied: dict[int, int] = {}
        self.wgmma: dict[int, Groups] = {}
        self.waits: dict[tuple[Cta, int, int], Waited] = {}
        self.glances: dict[int, Operation] = {}
        self.exits: dict[int, Released] = {}
        self.remote: dict[tuple[int, int], tuple[int, Operation]] = {}
        self.waited_for_grid: dict[int, int] = {}
        """Warps that passed griddepcontrol.wait -> the epoch behind it."""
        self.remote_copies: list[tuple[int, Flight]] = []
        self.unfenced: dict[int, list[BarrierClock]] = {}
        self.places: dict[tuple[Region, int], Released] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._bits = 0
        self._views: dict[tuple[int, int], tuple[tuple[int, ...], View]] = {}

    def me(self, cta: Cta, warp: int) -> int:
        return cta.rank * self.per_cta + warp

    def of_frame(self, frame: Frame) -> list[WarpClock]:
        first = frame.cta.rank * self.per_cta + frame.first_warp
        return self.clocks[first : first + frame.warps]

    def view(self, frame: Frame) -> View:
        """What all warps of a frame know."""
        clocks = self.of_frame(frame)
        key, versions = (clocks[0].me, len(clocks)), tuple([clock.version for clock in clocks])
        found = self._views.get(key)
        if found is None or found[0] != versions:
            made = View.meet(clocks) if len(clocks) > 1 else View.of(clocks[0])
            found = self._views[key] = (versions, made)
        return found[1]

    # -- accesses --------------------------------------------------------------------------------------------------

    def generic(self, clock: WarpClock, cta: Cta, code: Operation, writes: bool, strong: bool, proxy: str) -> int:
        """The number of a warp's access in its present epoch."""
        key = (clock.me, clock.epoch, code.pc, writes, proxy)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.accesses)
            warp = clock.me - cta.rank * self.per_cta
            self.accesses.append(Access(proxy, writes, cta, warp, clock.me, clock.epoch, code, strong))
        return found

    def flight(self, operation: AsyncOperation, cta: Cta, warp: int) -> Flight:
        """A new operation's place in the clocks."""
        flight = Flight(1 << self._bits, 2 << self._bits, operation, cta, warp)
        self._bits += 2
        self.flights.append(flight)
        return flight

    def of_flight(self, flight: Flight, writes: bool, proxy: str) -> int:
        """The number of an operation's reads or writes."""
        number = len(self.accesses)
        bit = flight.done if writes else flight.read
        me = self.me(flight.cta, flight.warp)
        operation = flight.operation
        code, lane = operation.issuer.operation, operation.issuer.lane
        self.accesses.append(
            Access(proxy, writes, flight.cta, flight.warp, me, 0, code, False, bit, operation, lane)
        )  # fmt: skip
        return number

    def note_remote(self, clock: WarpClock, target: Cta, code: Operation) -> None:
        """A warp touched another CTA's shared memory."""
        self.remote[target.rank, clock.me] = (clock.epoch, code)


def lane_masks(frame: Frame, lanes: np.ndarray) -> list[int]:
    """The lanes of each warp of a frame, as 32-bit masks."""
    if lanes.size == frame.lanes:
        return [FULL] * frame.warps
    if frame.warps == 1:
        return [sum(1 << lane for lane in lanes.tolist())]
    masks = [0] * frame.warps
    for lane in lanes.tolist():
        masks[lane >> 5] |= 1 << (lane & 31)
    return masks
