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
from typing import TypeAlias

import numpy as np

PLACES = 64
"""Maximum number of a warp's instructions kept for shared memory accesses since its lanes synchronised."""
MOST = 256
"""Maximum number of a warp's accesses to keep; older ones are dropped."""
EVERYTHING = np.iinfo(np.int32).max
"""The epoch for everything in a launch that has finished."""

Key = tuple[int, int]
"""Epoch and instruction of accesses."""


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
    """Which lanes (masks) made a warp's latest accesses of shared memory, by epoch and instruction, which executed its
    latest fences.proxy.async, by epoch, and which synchronised although others of the warp did not, by epoch.

    A meeting or a fence in an epoch follows the accesses in it; no two of them share one.
    """

    accessed: dict[Key, int] = field(default_factory=dict)
    fenced: dict[int, int] = field(default_factory=dict)
    met: dict[int, int] = field(default_factory=dict)

    def fence(self, lanes: int, epoch: int) -> None:
        _keep(self.fenced, lanes, epoch)

    def meet(self, lanes: int, epoch: int) -> None:
        _keep(self.met, lanes, epoch)

    def heard_by(self, lanes: int, since: int, until: int) -> int:
        """The lanes whose accesses in the epoch `since` precede what these lanes do after the epoch `until`."""
        for epoch in reversed(self.met):
            if since <= epoch <= until and self.met[epoch] & lanes:
                lanes |= self.met[epoch]
        return lanes


def _keep(latest: dict[int, int], lanes: int, epoch: int) -> None:
    latest[epoch] = lanes
    if len(latest) > PLACES:
        del latest[next(iter(latest))]


LaneReleases: TypeAlias = "Mapping[int, tuple[LaneRelease, ...]]"
"""By the warp's component; only warps whose threads released separately. Never modified in place."""
WHOLE: LaneReleases = MappingProxyType({})


@dataclass(eq=False, slots=True)
class DivergentLanes:
    """The state of one warp.

    Attributes:
        left: accesses since the lanes synchronised -> the lanes (a mask) that made them and have not released since.
        spoken_for: accesses by lanes for which another lane raised a flag -> the epoch in which they were covered.
        raised: the instruction (pc) that raised it; kept: those accesses whose lanes something kept together with that
            lane until then (`kept_lanes`).
    """

    left: dict[Key, int] = field(default_factory=dict)
    spoken_for: dict[Key, int | None] = field(default_factory=dict)
    raised: dict[Key, int] = field(default_factory=dict)
    kept: set[Key] = field(default_factory=set)

    def cover(self, lanes: int, epoch: int) -> None:
        """These lanes release their accesses, or synchronise with each other."""
        for key, left in list(self.left.items()):
            if left & ~lanes:
                self.left[key] = left & ~lanes
                continue
            del self.left[key]
            if key in self.spoken_for:
                self.spoken_for[key] = epoch

    def speak(self, until: int, pc: int, kept: Callable[[int], int] | None = None) -> bool:
        """A lane raises a flag (at `pc`) for everything up to an epoch. True if it also signals for other lanes.

        kept: the lanes that something has kept together with that lane since an epoch.
        """
        others = [key for key in self.left if key[0] <= until]
        for key in others:
            if key in self.spoken_for:
                continue
            self.spoken_for[key], self.raised[key] = None, pc
            if kept is not None and not self.left[key] & ~kept(key[0]):
                self.kept.add(key)
            if len(self.spoken_for) > MOST:
                oldest = next(iter(self.spoken_for))
                del self.spoken_for[oldest], self.raised[oldest]
                self.kept.discard(oldest)
        return bool(others)

    def uncovered(self, epoch: int, pc: int, known: int) -> bool:
        """True if a thread that knows the warp up to an epoch knows of an access only through another lane."""
        if known == EVERYTHING or (epoch, pc) not in self.spoken_for:
            return False
        covered = self.spoken_for[epoch, pc]
        return covered is None or known < covered
