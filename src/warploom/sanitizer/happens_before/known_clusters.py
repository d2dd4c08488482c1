"""What a warp knows to have happened in other clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from .divergent_lanes import EVERYTHING

Front: TypeAlias = np.ndarray
"""An epoch for each warp; int32."""


@dataclass(frozen=True, eq=False)
class ClusterKnowledge:
    """What is known of another cluster: the fronts of its warps, and its completed operations."""

    c: Front
    q: Front
    known: int

    @classmethod
    def everything(cls, warps: int) -> ClusterKnowledge:
        """Everything that a cluster ever did."""
        latest = np.full(warps, EVERYTHING, np.int32)
        return cls(latest, latest, -1)

    def join(self, other: ClusterKnowledge) -> ClusterKnowledge:
        return ClusterKnowledge(np.maximum(self.c, other.c), np.maximum(self.q, other.q), self.known | other.known)


KnownClusters = Mapping[int, ClusterKnowledge]
"""Clusters by number. Never modified in place, because it is shared."""
NOBODY: KnownClusters = MappingProxyType({})


def join_far(first: KnownClusters, second: KnownClusters) -> KnownClusters:
    """The union of what is known of other clusters."""
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
