"""What some lanes of a warp have waited for and the others have not.

The clock of a warp holds what any of its lanes has acquired. Lanes are separate threads (PTX ISA 8.9), so a lane that
bypasses a wait knows what was waited for only after it has synchronised with a lane that waited.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clocks import WarpClock
from .known_clusters import Front, KnownClusters
from .released import Released

if TYPE_CHECKING:
    from ...emulator.machine.operation import Operation

MOST = 16
"""Maximum number of a warp's waits kept between two synchronisations of its lanes; older ones are dropped."""


@dataclass(eq=False, slots=True)
class LaneWait:
    """A wait by some lanes, or a load of theirs that acquires a flag in global memory: the mask of lanes that passed
    it, what the warp knew before (`far`: of other clusters), and what it learned."""

    lanes: int
    phase: tuple[object, int]
    code: Operation
    c: Front
    known: int
    told: Released
    far: KnownClusters

    def told_of(self, me: int, epoch: int, bit: int) -> bool:
        """True if the wait covered an operation (its bit), or a warp up to an epoch."""
        return bool(self.told.known & bit if bit else epoch <= self.told.c[me])

    def news(self, me: int, epoch: int, bit: int) -> bool:
        """True if the warp did not know of that before."""
        return bool(not self.known & bit if bit else self.c[me] < epoch)

    def told_far(self, cluster: int, me: int, epoch: int) -> bool:
        """True if it covered a warp of another cluster up to an epoch."""
        reach = self.told.far.get(cluster)
        return reach is not None and bool(epoch <= reach.c[me])

    def news_far(self, cluster: int, me: int, epoch: int) -> bool:
        """True if the warp did not know of that before."""
        reach = self.far.get(cluster)
        return reach is None or bool(reach.c[me] < epoch)


@dataclass(eq=False)
class PartialWaits:
    """The state of one cluster: by warp, the waits by some of its lanes since they synchronised."""

    ahead: dict[int, list[LaneWait]] = field(default_factory=dict)

    def waited(
        self, clock: WarpClock, lanes: int, alive: int, phase: tuple[object, int], code: Operation, told: Released
    ) -> None:
        """These lanes, of those alive, are about to acquire what a phase carries."""
        some = self.ahead.get(clock.me)
        if some is not None:
            for one in some:
                if one.phase == phase:
                    one.lanes |= lanes
                    return
        if some is not None or alive & ~lanes:
            kept = self.ahead.setdefault(clock.me, [])
            kept.append(LaneWait(lanes, phase, code, clock.c.copy(), clock.known, told, clock.far))
            del kept[:-MOST]

    def met(self, clock: WarpClock, lanes: int | None = None) -> None:
        """All lanes of a warp, or only these, have synchronised."""
        if lanes is None:
            self.ahead.pop(clock.me, None)
            return
        for one in self.ahead.get(clock.me, ()):
            if one.lanes & lanes:
                one.lanes |= lanes

    def heard(self, clock: WarpClock, lanes: int) -> None:
        """These lanes have learned something in another way: perhaps all that the others know."""
        for one in self.ahead.get(clock.me, ()):
            one.lanes |= lanes

    def untold(self, me: int, lanes: int, warp: int, epoch: int, bit: int) -> LaneWait | None:
        """The wait that these lanes of a warp bypassed although it covered an access by `warp`."""
        some = [one for one in self.ahead.get(me, ()) if one.told_of(warp, epoch, bit)]
        for one in some:
            lanes &= ~one.lanes
        return some[0] if some and lanes and some[0].news(warp, epoch, bit) else None

    def untold_far(self, me: int, lanes: int, cluster: int, warp: int, epoch: int) -> LaneWait | None:
        """Like `untold`, for an access by a warp of another cluster."""
        some = [one for one in self.ahead.get(me, ()) if one.told_far(cluster, warp, epoch)]
        for one in some:
            lanes &= ~one.lanes
        return some[0] if some and lanes and some[0].news_far(cluster, warp, epoch) else None
