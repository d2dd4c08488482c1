"""Lanes of a warp that release separately: for themselves in shared memory, or for others in global memory.

In shared memory a release by some lanes (`LaneRelease`) covers their accesses, and the warp's before its lanes
synchronised.

In global memory a warp is one component of the clocks, and a thread that acquires a flag of it knows what all its lanes
did. That is correct only while the lanes run together (PTX ISA 8.9: lanes are separate threads). So each warp keeps
which lanes did what to global memory since they synchronised. What a lane raised a flag for on behalf of others is
definitely known only from the epoch in which they synchronised, or released it themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import numpy as np

PLACES = 64
"""Maximum number of a warp's instructions kept for shared memory accesses since its lanes synchronised."""
HEARD = 8
"""Maximum number of a warp's waits of this kind that are remembered."""
EVERY_LANE = 0xFFFFFFFF
FENCE = -1
"""Stands for the instruction of a fence.proxy.async where an access of global memory has its own (pc)."""
MOST = 256
"""Maximum number of a warp's accesses to keep; older ones are dropped."""
EVERYTHING = np.iinfo(np.int32).max
"""The epoch for everything in a launch that has finished."""

Fact = TypeVar("Fact")
Known: TypeAlias = "Callable[[int], int]"
Key = tuple[int, int]
"""Epoch and instruction of accesses."""


def nothing(epoch: int) -> int:
    """No lanes are known."""
    return 0


@dataclass(frozen=True)
class LaneRelease:
    """A release by some lanes of a warp.

    Attributes:
        lanes: the releasing lanes, as a mask; epoch: of the release; p: the carried part of the warp's own accesses.
        touched: accesses of the warp since its threads last synchronised: masks of lanes -> latest epoch.
        made: the same by instruction: pc -> mask; pc: the releasing instruction, -1 if there is none.
    """

    lanes: int
    epoch: int
    p: int
    touched: dict[int, int]
    made: dict[int, int] = field(default_factory=dict)
    pc: int = -1

    def covered(self, parts: Sequence[LaneRelease]) -> bool:
        """True if all threads that made these accesses have released since, each for itself."""
        for lanes, epoch in self.touched.items():
            for part in parts:
                if part.epoch >= epoch:
                    lanes &= ~part.lanes
            if lanes:
                return False
        return True


def record_access(accesses: dict[Key, int], lanes: int, epoch: int, pc: int) -> None:
    """Add an access by these lanes to the latest ones of a warp; of more than `MOST`, the oldest is dropped."""
    key = (epoch, pc)
    accesses[key] = accesses.get(key, 0) | lanes
    if len(accesses) > MOST:
        del accesses[next(iter(accesses))]


@dataclass(eq=False, slots=True)
class RecentLanes:
    """Which lanes (masks) made a warp's latest accesses of shared memory, or its latest writes of global memory.

    A meeting or a fence in an epoch follows the accesses in it; no two of them share one.

    Attributes:
        accessed: by epoch and instruction.
        fenced: which executed a fence.proxy.async, by epoch, and the epoch in which all had synchronised before.
        met: which synchronised although others of the warp did not, by epoch.
        told: which have learned what the warp did up to an epoch, through an mbarrier or the like: the epoch in which
            they did, the lanes, and that epoch.
    """

    accessed: dict[Key, int] = field(default_factory=dict)
    fenced: dict[int, tuple[int, int]] = field(default_factory=dict)
    met: dict[int, int] = field(default_factory=dict)
    told: list[tuple[int, int, int]] = field(default_factory=list)

    def fence(self, lanes: int, epoch: int, floor: int) -> None:
        _keep(self.fenced, epoch, (lanes, floor))

    def meet(self, lanes: int, epoch: int) -> None:
        _keep(self.met, epoch, lanes)

    def hear(self, lanes: int, epoch: int, reach: int) -> None:
        self.told.append((epoch, lanes, reach))
        del self.told[:-HEARD]

    def told_to(self, lanes: int, least: int) -> int:
        """The epoch up to which some of these lanes have learned what their warp did, if it is later than `least`."""
        return max((reach for _, mask, reach in self.told if mask & lanes), default=least)

    def heard_by(self, lanes: int, since: int, until: int) -> int:
        """The lanes whose accesses in the epoch `since` precede what these lanes do after the epoch `until`."""
        for epoch in reversed(self.met):
            if since <= epoch <= until and self.met[epoch] & lanes:
                lanes |= self.met[epoch]
        if any(epoch <= until and reach >= since and mask & lanes for epoch, mask, reach in self.told):
            return EVERY_LANE
        return lanes

    def carried(self, lanes: int, epoch: int, followed: Known) -> bool:
        """True if each of these lanes, or one that it synchronised with, executed a fence.proxy.async after the
        accesses in an epoch. followed: by a fence's epoch, the lanes that the later access knows to have executed it.
        """
        for at, (fenced, floor) in self.fenced.items():
            if at >= epoch and (known := fenced & followed(at)):
                lanes &= 0 if epoch < floor else ~self.heard_by(known, epoch, at)
        return not lanes


def _keep(latest: dict[int, Fact], epoch: int, what: Fact) -> None:
    latest[epoch] = what
    if len(latest) > PLACES:
        del latest[next(iter(latest))]


LaneReleases: TypeAlias = "Mapping[int, tuple[LaneRelease, ...]]"
"""By the warp's component; only warps whose threads released separately. Never modified in place."""
WHOLE: LaneReleases = MappingProxyType({})


@dataclass(eq=False, slots=True)
class SpokenFor:
    """Accesses by lanes for which another lane has signalled.

    Attributes:
        by: the lanes that signalled; silent: those of the accesses of which they did not know.
        pc: the instruction that signalled.
        kept: True if something kept the silent lanes together with those that signalled until then (`kept_lanes`).
        partly: True if the others of these lanes had synchronised with those that signalled.
        covered: the epoch in which the silent lanes released the accesses themselves, or synchronised.
    """

    by: int
    silent: int
    pc: int
    kept: bool
    partly: bool
    covered: int | None = None


@dataclass(eq=False, slots=True)
class DivergentLanes:
    """The state of one warp.

    Attributes:
        left: accesses since the lanes synchronised -> the lanes (a mask) that made them and have not released since.
        spoken_for: those for which another lane has signalled; spoken: the epoch up to which one did last.
    """

    left: dict[Key, int] = field(default_factory=dict)
    spoken_for: dict[Key, SpokenFor] = field(default_factory=dict)
    spoken: int = 0

    def cover(self, lanes: int, epoch: int) -> None:
        """These lanes release their accesses, or all lanes synchronise."""
        for key, left in list(self.left.items()):
            if left & ~lanes:
                self.left[key] = left & ~lanes
                continue
            del self.left[key]
            if key in self.spoken_for:
                self.spoken_for[key].covered = epoch

    def meet(self, lanes: int, epoch: int) -> None:
        """These lanes synchronise with each other: what one of them has signalled, it may now signal for all."""
        for one in self.spoken_for.values():
            if one.covered is None and one.by & lanes:
                one.silent &= ~lanes
                one.partly = True
                if not one.silent:
                    one.covered = epoch

    def speak(self, lanes: int, until: int, pc: int, known: Known = nothing, kept: Known = nothing) -> bool:
        """These lanes signal (at `pc`) everything up to an epoch. True if they also signal for other lanes.

        known, kept: by epoch, the lanes whose accesses in it they know of, or were kept together with.
        """
        others = []
        for key in reversed(self.left):
            if key[0] <= self.spoken:
                break
            if key[0] <= until:
                others.append(key)
        self.spoken = max(self.spoken, until)
        speaks = False
        for key in reversed(others):
            left = self.left[key] & ~lanes
            silent = left & ~known(key[0])
            if not silent:
                continue
            speaks = True
            self.spoken_for[key] = SpokenFor(lanes, silent, pc, not silent & ~kept(key[0]), silent != left)
            if len(self.spoken_for) > MOST:
                del self.spoken_for[next(iter(self.spoken_for))]
        return speaks

    def uncovered(self, epoch: int, pc: int, known: int, lanes: int = 0) -> bool:
        """True if a thread that knows the warp up to an epoch knows of an access only through another lane. lanes: that
        made it; 0 if that is not known."""
        one = self.spoken_for.get((epoch, pc))
        if known == EVERYTHING or one is None or (not one.silent & lanes if lanes else one.partly):
            return False
        return one.covered is None or known < one.covered
