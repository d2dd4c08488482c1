"""The clock that an access is checked against, as plain numbers: of a warp, or the meet of a warpgroup's clocks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .access import Access
from .clocks import FULL, WarpClock
from .divergent_lanes import LaneRelease


@dataclass(eq=False)
class View:
    """The clock that an access is checked against: a warp's, or the meet of a warpgroup's.

    `ordered`: numbers of accesses that are known to happen before this, for generic accesses. `rows`, `epochs`: for
    records of reads, see `shared_memory`. `mark`: what the warps have done, see
    `WarpClock.mark`. A view is discarded when the clocks move.
    """

    c: list[int]
    p: list[int]
    weak: list[int]
    near: list[int]
    known: int
    carried: int
    ordered: set[int] = field(default_factory=set)
    rows: dict[object, np.ndarray] = field(default_factory=dict)
    epochs: np.ndarray | None = None
    mark: np.ndarray | None = None
    parts: dict[int, tuple[LaneRelease, ...]] = field(default_factory=dict)

    def has_from(self, me: int, lanes: int, epoch: int) -> bool:
        """True if each of these lanes of a warp has itself released its accesses up to an epoch."""
        for part in self.parts.get(me, ()):
            if part.epoch >= epoch:
                lanes &= ~part.lanes
        return not lanes

    def heard_of(self, me: int, epoch: int) -> bool:
        """True if all lanes of a warp that accessed memory in an epoch have released for themselves since."""
        for part in self.parts.get(me, ()):
            if part.epoch >= epoch:
                made = [lanes for lanes, latest in part.touched.items() if latest >= epoch]
                return bool(made) and all(self.has_from(me, lanes, epoch) for lanes in made)
        return False

    def fenced(self, clock: WarpClock, lanes: int, epoch: int, now: Access) -> bool:
        """True if each of these lanes of a warp, or one that it synchronised with, executed a fence.proxy.async after
        the accesses in an epoch, and `now`, an asynchronous access, is known to follow that fence."""
        recent = clock.recent

        def followed(at: int) -> int:
            if now.me != clock.me:
                known = FULL if self.c[clock.me] > at else 0
            elif at < clock.floor:  # the lane that issues it knows what preceded a meeting
                known = FULL
            else:
                known = recent.heard_by(1 << now.lane, at, clock.epoch) if now.lane is not None else 0
            for part in self.parts.get(clock.me, ()):
                if part.epoch > at:
                    known |= part.lanes
            return known

        return recent.carried(lanes, epoch, followed)

    @classmethod
    def of(cls, clock: WarpClock) -> View:
        c, p, _, weak, near, _ = clock.fronts.tolist()
        return cls(c, p, weak, near, clock.known, clock.carried, parts=clock.parts)

    @classmethod
    def meet(cls, clocks: list[WarpClock]) -> View:
        """What all of them know."""
        known = carried = -1
        for clock in clocks:
            known &= clock.known
            carried &= clock.carried
        c, p, _, weak, near, _ = np.min([clock.fronts for clock in clocks], axis=0).tolist()
        return cls(c, p, weak, near, known, carried)
