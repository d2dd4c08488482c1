"""The accesses of each warp to memory since all its lanes last synchronised, lane by lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...isa import effects
from ..shadow.global_shadow import GlobalShadow
from ..shadow.shadow import Shadow
from .clocks import WarpClock

if TYPE_CHECKING:
    from ...emulator.engines.bulk import Scattered
    from ...emulator.machine.operation import Operation
    from ...emulator.machine.places import Lanes

KEPT_ENTRIES = 256
"""Maximum number of entries of a journal; the older half is dropped."""
WARP = 32


@dataclass(frozen=True, eq=False, slots=True)
class Sorted:
    """What a warp accesses, by granule, and the lane of each; `low` and `high`: the first granule and the last."""

    granules: np.ndarray
    lanes: np.ndarray
    low: int
    high: int


class _Compared:
    """An access of warps that later ones are compared with."""

    __slots__ = ()
    compared: dict[int, Sorted | None]

    def of(self, me: int) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def by_granule(self, me: int) -> Sorted | None:
        """`of`, sorted; None if that is nothing. Computed once: a journal is read at many accesses."""
        if me not in self.compared:
            granules, lanes = self.of(me)
            order = np.argsort(granules, kind="stable")
            granules, lanes = granules[order], lanes[order]
            some = granules.size > 0
            self.compared[me] = Sorted(granules, lanes, int(granules[0]), int(granules[-1])) if some else None
        return self.compared[me]


@dataclass(frozen=True, eq=False)
class Entry(_Compared):
    """Accesses by lanes of a warp: granules, (parts, lanes) or (lanes,), and the lane of each; together: as one.

    `first`: the component of the frame's first warp, from which `lanes` count; `epochs`: of the frame's warps;
    `strong`: two such accesses do not race.
    """

    shadow: Shadow | GlobalShadow
    granules: np.ndarray
    lanes: np.ndarray
    first: int
    writes: bool
    together: bool
    code: Operation
    epochs: tuple[int, ...] = ()
    strong: bool = False
    compared: dict[int, Sorted | None] = field(default_factory=dict, repr=False)

    def of(self, me: int) -> tuple[np.ndarray, np.ndarray]:
        """Granules and lanes of one warp."""
        mine, lanes = (self.lanes >> 5) == me - self.first, self.lanes & 31
        if mine.shape != self.granules.shape:
            mine, lanes = (np.broadcast_to(each, self.granules.shape) for each in (mine, lanes))
        return self.granules[mine], lanes[mine]


@dataclass(eq=False, slots=True)
class GlobalEntry(_Compared):
    """As `Entry`, of global memory: most are never looked at, so only then the granules are computed."""

    shadow: GlobalShadow
    place: Lanes
    first: int
    writes: bool
    code: Operation
    epochs: tuple[int, ...]
    compared: dict[int, Sorted | None] = field(default_factory=dict, repr=False)

    @property
    def together(self) -> bool:
        row = effects.accesses(self.code.effects)
        return bool(row) and row[0].lanes == "any"

    @property
    def strong(self) -> bool:
        return self.code.order.strong

    def of(self, me: int) -> tuple[np.ndarray, np.ndarray]:
        place = self.place
        mine = place.lanes >> 5 == me - self.first
        granules = self.shadow.granules(place.index[mine], place.size, place.count)
        return granules.reshape(-1), np.broadcast_to(place.lanes[mine] & 31, granules.shape).reshape(-1)


@dataclass(frozen=True, eq=False)
class WaitedCopy(_Compared):
    """Lanes of a warp (a mask) have waited for their parts of a copy: each sees what it copied itself.

    `me`: the warp's component; `epoch`: of the wait; `at`: its index in the frame of the copy.
    """

    shadow: Shadow
    place: Scattered
    lanes: int
    me: int
    epoch: int
    at: int
    code: Operation
    writes: bool = True
    together: bool = False
    strong: bool = False
    compared: dict[int, Sorted | None] = field(default_factory=dict, repr=False)

    @property
    def first(self) -> int:
        return self.me

    @property
    def epochs(self) -> tuple[int, ...]:
        return (self.epoch,)

    def of(self, me: int) -> tuple[np.ndarray, np.ndarray]:
        """Like `Entry.of`."""
        lanes = self.place.lanes & 31
        mine = (self.place.lanes >> 5 == self.at) & ((self.lanes >> lanes & 1) != 0)
        granules = self.shadow.elements(self.place.index[mine], self.place.size, 1)
        return granules.reshape(-1), np.broadcast_to(lanes[mine], granules.shape).reshape(-1)


@dataclass(frozen=True, eq=False)
class LaneSync:
    """Lanes that signalled (`arrives`) or waited (`waits`) through one object; `in_turn`: one after the other, in lane
    order, by an atomic; `reach`: the epoch up to which the waiting lanes know all that the warp did."""

    by: object
    lanes: int
    arrives: bool
    waits: bool
    in_turn: bool = False
    reach: int = 0


Access: TypeAlias = "Entry | GlobalEntry | WaitedCopy"
Noted: TypeAlias = "Access | LaneSync"


@dataclass(eq=False)
class Journal:
    """The accesses of one warp since the epoch `floor`, in which all its lanes synchronised."""

    floor: int = 0
    entries: list[Noted] = field(default_factory=list)


@dataclass(eq=False)
class Journals:
    """The journals of a cluster, by the warp's component."""

    warps: dict[int, Journal] = field(default_factory=dict)

    def of(self, clock: WarpClock) -> list[Noted]:
        journal = self.warps.get(clock.me)
        if journal is None:
            journal = self.warps[clock.me] = Journal()
        if journal.floor != clock.floor:
            journal.floor = clock.floor
            journal.entries = []
        elif len(journal.entries) > KEPT_ENTRIES:
            del journal.entries[: KEPT_ENTRIES // 2]
        return journal.entries

    def writers(
        self, me: int, since: int, shadow: Shadow | GlobalShadow, granules: np.ndarray, reader: int = -1
    ) -> int:
        """The lanes of a warp that wrote granules last, as a mask, or read them with the instruction `reader` (pc); 0
        if one that did since that epoch was dropped."""
        journal = self.warps.get(me)
        if journal is None or journal.floor > since:
            return 0
        left, lanes = np.unique(granules), 0
        for entry in reversed(journal.entries):
            if isinstance(entry, LaneSync) or entry.shadow is not shadow or not left.size:
                continue
            if entry.writes if reader < 0 else entry.code.pc == reader:
                there, owners = entry.of(me)
                for owner in np.unique(owners[np.isin(there, left)]).tolist():
                    lanes |= 1 << owner
                left = np.setdiff1d(left, there)
        return 0 if left.size else lanes
