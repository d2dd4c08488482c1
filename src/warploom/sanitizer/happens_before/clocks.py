"""Vector clocks: what each warp of a cluster knows to have happened.

A warp has a component of its own that grows at every release and fence; an asynchronous operation has two bits
instead, "its reads are done" and "all of it is done". A warp's clock has two fronts (PTX ISA 8.9.5):

    c   generic accesses that happen before what the warp does next (base causality)
    p   the part of c that a fence.proxy.async has carried to the async proxy
    q   likewise for global memory (a fence may name one of the two spaces)

and the same for asynchronous operations: `known`, and `carried` for those of the generic side (cp.async). Beside the
strict front there is a weak one: what would be ordered if scopes and lanes of a warp did not matter. It never
permits anything; it only tells which edge is missing.

Warps of other clusters are known too once something in global memory told of them (`far`): a cluster's fronts for each
cluster that was heard of. Most kernels hear of none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

FULL = 0xFFFFFFFF
LANES = 32


def later(first: list[int], second: list[int]) -> list[int]:
    """The join of two fronts."""
    return list(map(max, first, second))


def earlier(fronts: list[list[int]]) -> list[int]:
    """The meet: what all of them know."""
    return list(map(min, *fronts)) if len(fronts) > 1 else fronts[0]


@dataclass(frozen=True, eq=False)
class Reach:
    """What is known of another cluster: the fronts of its warps, and its operations that are done."""

    c: list[int]
    q: list[int]
    known: int

    def join(self, other: Reach) -> Reach:
        return Reach(later(self.c, other.c), later(self.q, other.q), self.known | other.known)


@dataclass(frozen=True)
class Part:
    """A release by some lanes of a warp.

    Attributes:
        lanes: who released, as a mask; epoch: in which; p: what was carried of the warp's own accesses.
        touched: accesses of the warp since its threads last met, as the masks of lanes that made them -> latest epoch.
    """

    lanes: int
    epoch: int
    p: int
    touched: dict[int, int]

    def covered(self, parts: Sequence[Part]) -> bool:
        """Whether those who made these accesses have all released since, each for itself."""
        for lanes, epoch in self.touched.items():
            for part in parts:
                if part.epoch >= epoch:
                    lanes &= ~part.lanes
            if lanes:
                return False
        return True


Parts: TypeAlias = "Mapping[int, tuple[Part, ...]]"
"""By the component of the warp; only of warps whose threads released apart. Never changed in place."""
WHOLE: Parts = MappingProxyType({})

Far = Mapping[int, Reach]
"""Clusters by number. Never changed in place: it is shared by all who know it."""
NOBODY: Far = MappingProxyType({})


def join_far(first: Far, second: Far) -> Far:
    """What is known of other clusters, together."""
    if not second or first is second:
        return first
    if not first:
        return second
    joined = dict(first)
    for cluster, reach in second.items():
        have = joined.get(cluster)
        if have is not reach:
            joined[cluster] = reach if have is None else have.join(reach)
    return joined


@dataclass(eq=False)
class Released:
    """What a release carries to whoever acquires it. Join with `add`.

    Attributes:
        c, p, q, known, carried, far: see the module's docstring.
        weak: as c, without regard to scope and lanes.
        parts: of warps whose threads released apart, what each of them did.
    """

    c: list[int]
    p: list[int]
    q: list[int]
    weak: list[int]
    known: int = 0
    carried: int = 0
    far: Far = field(default_factory=lambda: NOBODY)
    parts: Parts = field(default_factory=lambda: WHOLE)

    @classmethod
    def nothing(cls, warps: int) -> Released:
        return cls([0] * warps, [0] * warps, [0] * warps, [0] * warps)

    def add(self, other: Released) -> None:
        self.c = later(self.c, other.c)
        self.p = later(self.p, other.p)
        self.q = later(self.q, other.q)
        self.weak = later(self.weak, other.weak)
        self.known |= other.known
        self.carried |= other.carried
        self.far = join_far(self.far, other.far)
        if other.parts:
            self._put_together(other.parts)

    def _put_together(self, more: Parts) -> None:
        """Threads of a warp that released apart: where each has, all that the warp did is released."""
        parts = dict(self.parts)
        for me, theirs in more.items():
            parts[me] = (*parts.get(me, ()), *theirs)[-LANES:]
            for part in theirs:
                if part.covered(parts[me]):
                    self.c[me] = max(self.c[me], part.epoch)
                    self.p[me] = max(self.p[me], part.p)
        self.parts = parts

    def copy(self) -> Released:
        return Released(
            list(self.c), list(self.p), list(self.q), list(self.weak), self.known, self.carried, self.far, self.parts
        )  # fmt: skip

    def reach(self) -> Reach:
        """What another cluster learns of this one; in global memory lanes of a warp are not told apart."""
        return Reach(self.weak, self.q, self.known)

    def only_operations(self) -> Released:
        """What is left where scope or semantics carry no memory accesses: that asynchronous operations are done."""
        none = [0] * len(self.c)
        return Released(none, none, none, self.weak, self.known, self.carried)

    def relaxed(self) -> Released:
        """What a relaxed arrival on a barrier of its own CTA carries: operations, and no hint of anything else."""
        none = [0] * len(self.c)
        return Released(none, none, none, none, self.known, self.carried)


class WarpClock:
    """The clock of one warp.

    Attributes:
        me: its component.
        lanes: lanes that accessed memory since the warp's threads last met; floor: the epoch in which they met.
        touched: these accesses, as the masks of lanes that made them -> latest epoch.
        fenced: lanes that executed a fence.proxy.async (for shared memory) and have accessed nothing since.
        used: the epoch of its latest access.
        fresh: whether the warp accessed memory since its last proxy fence.
        version: grows with every change.
    """

    __slots__ = (
        "c",
        "after_grid",
        "carried",
        "far",
        "fenced",
        "floor",
        "fresh",
        "known",
        "lanes",
        "me",
        "p",
        "pending",
        "published",
        "published_scope",
        "q",
        "settled",
        "touched",
        "used",
        "version",
        "weak",
    )

    def __init__(self, me: int, warps: int) -> None:
        self.me = me
        self.c = [0] * warps
        self.c[me] = 1
        self.p = [0] * warps
        self.q = [0] * warps
        self.far = NOBODY
        self.weak = list(self.c)
        self.known = 0
        self.carried = 0
        self.lanes = 0
        self.touched: dict[int, int] = {}
        self.fenced = 0
        self.used = 0
        self.floor = 1
        self.fresh = False
        self.version = 0
        self.published: Released | None = None
        """What the last release fence covered: relaxed stores and atomics behind it publish that."""
        self.published_scope = ""
        self.pending: Released | None = None
        """What relaxed loads and atomics have seen: an acquire fence makes it known."""
        self.after_grid = False
        """Whether it is known that a griddepcontrol.wait has passed."""
        self.settled: set[int] = set()
        """Accesses of global memory that were found to happen before what the warp does now."""

    @property
    def epoch(self) -> int:
        return self.c[self.me]

    def touch(self, lanes: int) -> None:
        """These lanes access memory."""
        self.lanes |= lanes
        self.touched[lanes] = self.used = self.c[self.me]
        self.fenced &= ~lanes
        self.fresh = True

    def touch_global(self) -> None:
        """The warp accesses global memory, where its lanes are not told apart."""
        self.used = self.c[self.me]
        self.fresh = True

    def meet(self) -> None:
        """All threads of the warp have met: accesses of each happen before what the others do next."""
        if self.lanes:
            self._step()
            self.lanes = self.fenced = 0
            self.touched = {}
        self.floor = self.c[self.me]

    def snapshot(self, lanes: int) -> Released:
        """What a release by these lanes carries: not what the warp's other lanes did since they last met."""
        me, c, p = self.me, list(self.c), list(self.p)
        weak = list(self.weak)
        weak[me] = c[me]
        released = Released(c, p, list(self.q), weak, self.known, self.carried, self.far)
        if lanes != FULL and self.lanes:
            released.parts = {me: (Part(lanes, c[me], p[me], dict(self.touched)),)}
        if self.lanes & ~lanes:
            c[me] = self.floor - 1
            p[me] = min(p[me], c[me])
        return released

    def release(self, lanes: int) -> Released:
        """A snapshot, after which a new epoch begins."""
        released = self.snapshot(lanes)
        self._step()
        return released

    def acquire(self, released: Released) -> None:
        """Know what a release carried."""
        mine = self.c[self.me]
        self.c = later(self.c, released.c)
        self.p = later(self.p, released.p)
        self.q = later(self.q, released.q)
        self.far = join_far(self.far, released.far)
        self.weak = later(self.weak, released.weak)
        self.weak[self.me] = self.c[self.me] = mine
        self.known |= released.known
        self.carried |= released.carried
        self.version += 1

    def remember(self, released: Released) -> None:
        """A relaxed access has seen what a release carried; a fence will make it known."""
        if self.pending is None:
            self.pending = released.copy()
        else:
            self.pending.add(released)

    def fence(self, lanes: int, scope: str = "") -> None:
        """fence.acq_rel or stronger: relaxed accesses before it acquire, those behind it release."""
        if self.pending is not None:
            if scope in ("cta", "cluster"):
                self.pending.far = NOBODY
            self.acquire(self.pending)
            self.pending = None
        self.published = self.release(lanes)
        self.published_scope = scope

    def carry(self, lanes: int, space: str = "all") -> None:
        """fence.proxy.async by these lanes, for one state space, or all."""
        reached = self.snapshot(lanes)
        if space != "global":
            self.fenced |= lanes
            if not self.lanes & ~self.fenced:  # each lane for itself
                reached.c[self.me] = self.c[self.me]
            self.p = later(self.p, reached.c)
            self.carried |= self.known
            self.fresh = False
        if space != "shared":
            self.q = later(self.q, reached.weak)
            self.far = {cluster: Reach(far.c, far.c, far.known) for cluster, far in self.far.items()}
        self._step()

    def has_news(self) -> bool:
        """Whether a proxy fence would carry anything: an access of the warp itself, or what it learned of others."""
        if self.fresh or self.known & ~self.carried:
            return True
        return any(c > p for at, (c, p) in enumerate(zip(self.c, self.p, strict=True)) if at != self.me)

    def learn(self, operations: int) -> None:
        """These asynchronous operations (or their reads) are done."""
        self.known |= operations
        self.version += 1

    def mark(self) -> list[int]:
        """What has happened so far, without regard to lanes; what comes now is told apart from it."""
        weak = list(self.weak)
        if self.used == self.c[self.me]:
            self._step()
        else:
            weak[self.me] = self.c[self.me] - 1  # nothing happened in this epoch yet
        return weak

    def begin_epoch(self) -> None:
        """What comes now is told apart from what came before."""
        self._step()

    def suspect(self, weak: list[int]) -> None:
        """Something tells that others got so far, without ordering their accesses."""
        self.weak = later(self.weak, weak)
        self.weak[self.me] = self.c[self.me]
        self.version += 1

    def _step(self) -> None:
        self.c[self.me] += 1
        self.weak[self.me] = self.c[self.me]
        self.version += 1


@dataclass(eq=False)
class View:
    """The clock that an access is checked against: a warp's, or the meet of a warpgroup's for wgmma.

    `ordered`: numbers of accesses that were found to happen before this, for generic accesses. `rows`, `epochs`: for
    notes of reads, see `races`. A view is thrown away when the clocks move on.
    """

    c: list[int]
    p: list[int]
    weak: list[int]
    known: int
    carried: int
    ordered: set[int] = field(default_factory=set)
    rows: dict[object, np.ndarray] = field(default_factory=dict)
    epochs: np.ndarray | None = None

    @classmethod
    def of(cls, clock: WarpClock) -> View:
        return cls(list(clock.c), clock.p, clock.weak, clock.known, clock.carried)

    @classmethod
    def meet(cls, clocks: list[WarpClock]) -> View:
        known = carried = -1
        for clock in clocks:
            known &= clock.known
            carried &= clock.carried
        return cls(
            earlier([clock.c for clock in clocks]),
            earlier([clock.p for clock in clocks]),
            earlier([clock.weak for clock in clocks]),
            known,
            carried,
        )
