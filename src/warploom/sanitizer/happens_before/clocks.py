"""Vector clocks: what each warp of a cluster knows to have happened.

A warp has its own component, which grows at every release and fence; an asynchronous operation has two bits
instead, "its reads are complete" and "it is complete". A warp's clock has these fronts (PTX ISA 8.9.5):

    c   generic accesses that happen before what the warp does next (base causality)
    p   the part of c that a fence.proxy.async has carried to the async proxy
    q   likewise for global memory (a fence may name one of the two spaces)
    weak    what would be ordered if scopes and lanes of a warp did not matter; it never permits anything, but shows
            which edge is missing
    warps   what would be ordered if lanes did not matter; in global memory it counts, with `divergent_lanes`
    near    the part of p that signals and waits without a scope carry between CTAs; permits nothing either

They are the rows of one array, so that a join is one operation. For asynchronous operations, `known` corresponds to c
and `carried` to p, for those of the generic side (cp.async).

A fence.sc orders more than its own thread's writes. Of two such fences, the first is the one after which a write is
observed before the other, also by a thread synchronised with since: the order of all fences.sc cannot contradict
causality (8.9.3, 8.9.4, 8.10.2). So a clock also knows what such fences covered (`fences`), and passes it on. It also
knows which fences preceded an observed write (`pending_fences`), since a later fence.sc comes after them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...isa.launch import WARP
from .divergent_lanes import FENCE, PLACES, DivergentLanes, Key, LaneRelease, RecentLanes, record_access
from .known_clusters import NOBODY, ClusterKnowledge, Front, join_far
from .released import NO_FENCES, WEAK, WHOLE_WARPS, C, Fences, HasFronts, Released, join_fences
from .scopes import LEVELS

FULL = 0xFFFFFFFF
OWN = [C, WEAK, WHOLE_WARPS]
"""The fronts in which a warp's own component is its epoch."""
EVIDENT = slice(WEAK, WHOLE_WARPS + 1, WHOLE_WARPS - WEAK)
"""The fronts that show how far other warps have got, without an order."""
ORDERED = (LEVELS["gpu"], LEVELS["sys"])
"""Scopes of fences.sc that are tracked: for narrower scopes the threads can use barriers."""


class WarpClock(HasFronts):
    """The clock of one warp.

    Attributes:
        me: its component; epoch: its value there.
        lanes: lanes that accessed memory since the warp's threads last synchronised; floor: the epoch of that.
        touched: these accesses: masks of lanes -> latest epoch; made: the same by instruction.
        mates: meetings of some of its lanes since, each as a release by them.
        in_turn: lanes that last passed one address by an atomic, in lane order, and the epoch before it.
        fenced: lanes that executed a fence.proxy.async (for shared memory) and have accessed nothing since.
        used: the epoch of its latest access.
        parts: what lanes of other warps released separately, as far as this one has acquired it.
        fresh: True if the warp accessed memory since its last proxy fence; carriers: lanes that executed one since.
        version: increases with every change.
        apart: what its lanes did to global memory since they synchronised.
        heard: how often it has learned something from other warps.
        recent: which lanes accessed shared memory, and which executed a fence.proxy.async; written: which lanes wrote
            global memory, and which executed such a fence for it.
        open: lanes that wrote global memory since the warp's threads last synchronised, and have not fenced since.
    """

    __slots__ = (
        "after_grid", "apart", "carried", "carriers", "epoch", "far", "fenced", "fences", "floor", "fresh", "fronts",
        "heard", "in_turn", "known", "lanes", "made", "mates", "me", "open", "parts", "pending", "pending_fences",
        "published", "published_scope", "recent", "settled", "touched", "used", "version", "written",
    )  # fmt: skip

    def __init__(self, me: int, warps: int) -> None:
        self.me = me
        self.fronts = np.zeros((6, warps), np.int32)
        self.epoch = 1
        self.fronts[OWN, me] = 1
        self.far = NOBODY
        self.known = self.carried = self.lanes = 0
        self.touched: dict[int, int] = {}
        self.made: dict[int, int] = {}
        self.mates: list[LaneRelease] = []
        self.in_turn = (0, 0)
        self.fenced = self.used = 0
        self.recent = RecentLanes()
        self.written = RecentLanes(met=self.recent.met)
        self.open = self.carriers = 0
        self.floor = 1
        self.fresh = False
        self.version = 0
        self.published: Released | None = None
        """What the last release fence covered: later relaxed stores and atomics publish it."""
        self.published_scope = ""
        self.pending: dict[int, Released] = {}
        """What relaxed loads and atomics have seen, by the level that a fence needs to make it known."""
        self.fences: Fences = NO_FENCES
        self.pending_fences: Fences = NO_FENCES
        """Fences.sc before what strong accesses have seen, by the level that a fence.sc here needs."""
        self.after_grid = False
        """True if it is known that a griddepcontrol.wait has passed."""
        self.parts: dict[int, tuple[LaneRelease, ...]] = {}
        self.apart = DivergentLanes()
        self.heard = 0
        self.settled: set[int] = set()
        """Accesses of global memory that are known to happen before the warp's next access."""

    def touch(self, lanes: int, pc: int) -> None:
        """These lanes access memory, with the instruction at `pc`."""
        self.lanes |= lanes
        self.made[pc] = self.made.pop(pc, 0) | lanes
        if len(self.made) > PLACES:
            del self.made[next(iter(self.made))]
        self.touched[lanes] = self.used = self.epoch
        record_access(self.recent.accessed, lanes, self.epoch, pc)
        self.fenced &= ~lanes
        self.fresh = True

    def touch_global(self, lanes: int = 0, pc: int = 0, strong: bool = False, writes: bool = False) -> None:
        """These lanes access global memory, with the instruction at `pc`."""
        self.used = self.epoch
        self.fresh = True
        if lanes and not strong:
            record_access(self.apart.left, lanes, self.epoch, pc)
        if lanes and writes:
            record_access(self.written.accessed, lanes, self.epoch, pc)
            self.open |= lanes

    def last_write(self, pc: int) -> Key:
        """The last write of global memory in front of the one that the instruction at `pc` has just made."""
        here = self.epoch - 1, pc  # that of a flag has ended its epoch
        return next((key for key in reversed(self.written.accessed) if key != here), (0, 0))

    def meet(self) -> None:
        """All threads of the warp have synchronised: each one's accesses happen before the others' next ones."""
        if self.lanes or self.apart.left or self.open:
            self._step()
            self.lanes = self.fenced = self.open = 0
            self.touched, self.made, self.mates = {}, {}, []
            self.recent.told, self.written.told = [], []
            self.apart.cover(FULL, self.epoch)
        self.floor = self.epoch

    def meet_some(self, lanes: int) -> None:
        """Only these threads of the warp have synchronised: `mates` has what each of them knows by that."""
        if self.lanes:
            self.mates.append(LaneRelease(lanes, self.epoch, int(self.p[self.me]), dict(self.touched), dict(self.made)))
            del self.mates[:-WARP]
        if self.lanes or self.apart.left or self.open:
            self.recent.meet(lanes, self.epoch)
            self._step()
            self.apart.meet(lanes, self.epoch)

    def hear(self, lanes: int, released: Released) -> None:
        """These lanes are about to acquire what a release carried, perhaps one of their own warp."""
        if released.weak[self.me] >= self.floor:  # an arrival of its own warp
            self.recent.hear(lanes, self.epoch, int(released.c[self.me]))
            self.written.hear(lanes, self.epoch, int(released.warps[self.me]))

    def snapshot(self, lanes: int, pc: int = -1) -> Released:
        """What a release by these lanes (at `pc`) carries, without accesses of other lanes since they synchronised."""
        me, epoch = self.me, self.epoch
        fences, ahead = self.fences, self.pending_fences
        released = Released(self.fronts.copy(), self.known, self.carried, self.far, fences=fences, ahead=ahead)
        released.weak[me] = released.warps[me] = epoch
        told = self._told(lanes)
        if lanes != FULL and self.lanes:
            part = LaneRelease(lanes, epoch, int(self.p[me]), dict(self.touched), dict(self.made), pc)
            released.parts = {me: (*told, part)}
        if self.lanes & ~lanes:
            reached = self._reached(lanes)
            for met in told:
                if met.covered((met,)):
                    reached = max(reached, met.epoch)
            released.c[me] = reached
            released.p[me] = min(released.p[me], reached)
        return released

    def _told(self, lanes: int) -> list[LaneRelease]:
        """What these lanes know of others by meetings of some of the warp's lanes, the latest first."""
        found = []
        for met in reversed(self.mates):
            if met.lanes & lanes:
                lanes |= met.lanes
                found.append(replace(met, lanes=lanes))
        return found

    def _reached(self, lanes: int) -> int:
        """The epoch up to which these lanes know what the warp's other lanes did."""
        passed, epoch = self.in_turn
        heard = lanes | passed & (1 << (lanes & passed).bit_length()) - 1
        told = self.recent.told_to(lanes, self.floor - 1)
        return told if self.lanes & ~heard else max(epoch, told)

    def release(self, lanes: int, pc: int = -1) -> Released:
        """Take a snapshot and begin a new epoch."""
        released = self.snapshot(lanes, pc)
        if self.apart.left:
            self.apart.cover(lanes, self.epoch)
        self._step()
        return released

    def acquire(self, released: Released) -> None:
        """Add what a release carried."""
        self.heard += 1
        self.fronts = np.maximum(self.fronts, released.fronts)
        self.fronts[OWN, self.me] = self.epoch
        if released.far:
            self.far = join_far(self.far, released.far)
        self.fences = join_fences(self.fences, released.fences)
        self.pending_fences = join_fences(self.pending_fences, released.ahead)
        if released.parts:
            self.parts = {**self.parts, **released.parts}
        self.known |= released.known
        self.carried |= released.carried
        self.version += 1

    def remember_fences(self, level: int, released: Released) -> None:
        """A strong access has seen a write that follows fences.sc; a later fence.sc of this level here follows them."""
        self.pending_fences = join_fences(self.pending_fences, {level: released})

    def remember(self, released: Released, level: int = 0) -> None:
        """A relaxed access has seen what a release carried; a later fence of at least this level acquires it."""
        if level in self.pending:
            self.pending[level].add(released)
        else:
            self.pending[level] = released.copy()

    def fence(self, lanes: int, scope: str = "", total: bool = False) -> None:
        """fence.acq_rel or stronger: relaxed accesses before it acquire, those after it release.

        total: True for a fence.sc.
        """
        for level in sorted(self.pending):
            if level <= LEVELS[scope]:
                self.acquire(self.pending.pop(level))
        levels = [level for level in ORDERED if total and level <= LEVELS[scope]]
        for level in levels:
            if level in self.pending_fences:
                self.acquire(self.pending_fences[level])
        if levels:
            self.pending_fences = {level: one for level, one in self.pending_fences.items() if level not in levels}
        self.published = self.release(lanes)
        self.published_scope = scope
        self.fences = join_fences(self.fences, dict.fromkeys(levels, self.published.without_fences()))

    def carry(self, lanes: int, space: str = "all", whole: bool = True) -> None:
        """fence.proxy.async by these lanes (`whole`: all lanes of the warp), for one state space, or all."""
        reached = self.snapshot(lanes)
        if space != "global":
            self.recent.fence(lanes, self.epoch, self.floor)
            self.fenced |= lanes
            if not self.lanes & ~self.fenced:  # each lane has fenced for itself
                reached.c[self.me] = self.epoch
            np.maximum(self.p, reached.c, out=self.p)
            self.carried |= self.known
            self.carriers = lanes if self.fresh else self.carriers | lanes
            self.fresh = False
        if space != "shared":
            self.open &= ~lanes
            if not whole:  # the others do not know of the fence, nor may it know of what they wrote
                self.written.fence(lanes, self.epoch, self.floor)
                record_access(self.apart.left, lanes, self.epoch, FENCE)
                reached.warps[self.me] = self.q[self.me]
            np.maximum(self.q, reached.warps, out=self.q)
            self.far = {cluster: ClusterKnowledge(far.c, far.c, far.known) for cluster, far in self.far.items()}
        self._step()

    def has_news(self, lanes: int) -> bool:
        """True if a proxy fence by these lanes would carry anything: an access of the warp itself that none of their
        own has carried, or what it learned from others."""
        if self.fresh or lanes & ~self.carriers or self.known & ~self.carried:
            return True
        ahead = self.c > self.p
        ahead[self.me] = False
        return bool(ahead.any())

    def learn(self, operations: int) -> None:
        """Record that these asynchronous operations (or their reads) are complete."""
        self.known |= operations
        self.version += 1

    def mark(self) -> Front:
        """What has happened so far, without regard to lanes; later accesses are distinguished from it."""
        weak = self.weak.copy()
        if self.used == self.epoch:
            self._step()
        else:
            weak[self.me] = self.epoch - 1  # nothing happened in this epoch yet
        return weak

    def begin_epoch(self) -> None:
        """Distinguish later accesses from earlier ones."""
        self._step()

    def suspect(self, weak: Front) -> None:
        """Record evidence that other warps got this far, without an order for their accesses."""
        self.heard += 1
        np.maximum(self.fronts[EVIDENT], weak, out=self.fronts[EVIDENT])
        self.fronts[OWN, self.me] = self.epoch
        self.version += 1

    def _step(self) -> None:
        self.epoch += 1
        self.fronts[OWN, self.me] = self.epoch
        self.version += 1
