"""What a release carries to the thread that acquires it: the fronts of a clock (`clocks`), and what goes with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ...isa.launch import WARP
from .divergent_lanes import WHOLE, LaneReleases
from .known_clusters import NOBODY, ClusterKnowledge, Front, KnownClusters, join_far

Fronts: TypeAlias = np.ndarray
"""The six fronts, (6, warps)."""
C, P, Q, WEAK, NEAR, WHOLE_WARPS = range(6)

Fences: TypeAlias = "Mapping[int, Released]"
"""What fences.sc covered, by the level of their scope. Never modified in place."""
NO_FENCES: Fences = MappingProxyType({})


def join_fences(first: Fences, second: Fences) -> Fences:
    """What the fences of either covered."""
    if not second or first is second:
        return first
    joined = dict(first)
    for level, released in second.items():
        both = joined[level].copy() if level in joined else Released.nothing(released.fronts.shape[1])
        both.add(released)
        joined[level] = both
    return joined


class HasFronts:
    """The rows of `fronts` by name."""

    __slots__ = ()
    fronts: Fronts

    @property
    def c(self) -> Front:
        return self.fronts[C]

    @property
    def p(self) -> Front:
        return self.fronts[P]

    @property
    def q(self) -> Front:
        return self.fronts[Q]

    @property
    def weak(self) -> Front:
        return self.fronts[WEAK]

    @property
    def warps(self) -> Front:
        return self.fronts[WHOLE_WARPS]


@dataclass(eq=False)
class Released(HasFronts):
    """What a release carries to the thread that acquires it. Join with `add`.

    Attributes:
        fronts, known, carried, far: see `clocks`.
        parts: for warps whose threads released separately, what each of them did.
        fences: what fences.sc before the release covered; ahead: those before writes that were observed earlier.
    """

    fronts: Fronts
    known: int = 0
    carried: int = 0
    far: KnownClusters = field(default_factory=lambda: NOBODY)
    parts: LaneReleases = field(default_factory=lambda: WHOLE)
    fences: Fences = field(default_factory=lambda: NO_FENCES)
    ahead: Fences = field(default_factory=lambda: NO_FENCES)

    @classmethod
    def nothing(cls, warps: int) -> Released:
        return cls(np.zeros((6, warps), np.int32))

    def add(self, other: Released) -> None:
        self.fronts = np.maximum(self.fronts, other.fronts)
        self.known |= other.known
        self.carried |= other.carried
        self.far = join_far(self.far, other.far)
        self.fences, self.ahead = join_fences(self.fences, other.fences), join_fences(self.ahead, other.ahead)
        if other.parts:
            self._put_together(other.parts)

    def _put_together(self, more: LaneReleases) -> None:
        """If threads of a warp released separately and all have released, all that the warp did is released."""
        parts = dict(self.parts)
        for me, theirs in more.items():
            parts[me] = (*parts.get(me, ()), *theirs)[-WARP:]
            for part in theirs:
                if part.covered(parts[me]):
                    self.c[me] = max(self.c[me], part.epoch)
                    self.p[me] = max(self.p[me], part.p)
        self.parts = parts

    def copy(self) -> Released:
        return Released(self.fronts.copy(), self.known, self.carried, self.far, self.parts, self.fences, self.ahead)

    def without_fences(self) -> Released:
        return Released(self.fronts, self.known, self.carried, self.far, self.parts)

    def reach(self) -> ClusterKnowledge:
        """What another cluster learns of this one; `divergent_lanes` handles lanes of a warp in global memory."""
        return ClusterKnowledge(self.warps, self.q, self.known)

    def only_operations(self, unscoped: bool = False) -> Released:
        """What remains if scope or semantics do not cover memory accesses: completed asynchronous operations."""
        fronts = np.zeros_like(self.fronts)
        fronts[WEAK] = self.weak
        if unscoped:
            fronts[NEAR] = np.maximum(self.p, self.fronts[NEAR])
        return Released(fronts, self.known)

    def relaxed(self) -> Released:
        """What a relaxed arrival on a barrier of its own CTA carries: operations, and no hint of anything else."""
        return Released(np.zeros_like(self.fronts), self.known, self.carried)
