"""What some lanes of a warp have waited for and the others have not.

The clock of a warp holds what any of its lanes has acquired. Lanes are threads of their own (PTX ISA 8.9), so a lane
that goes round a wait knows of what was waited for only when it has met one that waited.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clocks import Far, Front, Released, WarpClock

if TYPE_CHECKING:
    from ...emulator.machine.operation import Operation

MOST = 16
"""Waits of a warp that are kept between two meetings of its lanes; what is older is forgotten."""


@dataclass(eq=False, slots=True)
class Ahead:
    """A wait by some lanes, or a load of theirs that acquires a flag in global memory: the mask of lanes that have
    passed it, what the warp knew before (`far`: of other clusters), and what it told."""

    lanes: int
    phase: tuple[object, int]
    code: Operation
    c: Front
    known: int
    told: Released
    far: Far

    def told_of(self, me: int, epoch: int, bit: int) -> bool:
        """Whether the wait told of an operation (its bit), or of a warp up to an epoch."""
        return bool(self.told.known & bit if bit else epoch <= self.told.c[me])

    def news(self, me: int, epoch: int, bit: int) -> bool:
        """Whether the warp did not know of that before."""
        return bool(not self.known & bit if bit else self.c[me] < epoch)

    def told_far(self, cluster: int, me: int, epoch: int) -> bool:
        """Whether it told of a warp of another cluster up to an epoch."""
        reach = self.told.far.get(cluster)
        return reach is not None and bool(epoch <= reach.c[me])

    def news_far(self, cluster: int, me: int, epoch: int) -> bool:
        """Whether the warp did not know of that before."""
        reach = self.far.get(cluster)
        return reach is None or bool(reach.c[me] < epoch)


@dataclass(eq=False)
class LanesBehind:
    """Of one cluster: by warp, its waits by some of its lanes since they met."""

    ahead: dict[int, list[Ahead]] = field(default_factory=dict)

    def waited(
        self, clock: WarpClock, lanes: int, alive: int, phase: tuple[object, int], code: Operation, told: Released
    ) -> None:
        """These lanes, of those alive, are about to acquire what a phase tells."""
        some = self.ahead.get(clock.me)
        if some is not None:
            for one in some:
                if one.phase == phase:
                    one.lanes |= lanes
                    return
        if some is not None or alive & ~lanes:
            kept = self.ahead.setdefault(clock.me, [])
            kept.append(Ahead(lanes, phase, code, clock.c.copy(), clock.known, told, clock.far))
            del kept[:-MOST]

    def met(self, clock: WarpClock, lanes: int | None = None) -> None:
        """All lanes of a warp have met, or these of them."""
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

    def untold(self, me: int, lanes: int, warp: int, epoch: int, bit: int) -> Ahead | None:
        """The wait that these lanes of a warp have gone round although it told of an access by `warp`."""
        some = [one for one in self.ahead.get(me, ()) if one.told_of(warp, epoch, bit)]
        for one in some:
            lanes &= ~one.lanes
        return some[0] if some and lanes and some[0].news(warp, epoch, bit) else None

    def untold_far(self, me: int, lanes: int, cluster: int, warp: int, epoch: int) -> Ahead | None:
        """As `untold`, of an access by a warp of another cluster."""
        some = [one for one in self.ahead.get(me, ()) if one.told_far(cluster, warp, epoch)]
        for one in some:
            lanes &= ~one.lanes
        return some[0] if some and lanes and some[0].news_far(cluster, warp, epoch) else None
