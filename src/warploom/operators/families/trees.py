"""Sums of regression trees, evaluated for all candidates at once.

    value(y) = the sum over trees of leaves[tree, the leaf that y falls into]

A tree is complete: node i's children are 2 i + 1 and 2 i + 2, and y goes to the second if its feature exceeds the
node's limit. Limits are stored once for each feature; nodes refer to them by index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

SCALE = 1e-5
"""Leaves are stored as multiples of this."""
BLOCK = 16
"""Rows that descend together: what they need stays in the CPU's cache."""


@dataclass
class Trees:
    """Attributes:
    limits: (features, count) for each feature, ascending, padded with infinity.
    features, edges: (trees, 2^depth - 1) for each node: its feature, and the index of its limit. If the index is
        `count`, everything goes to the first child.
    leaves: (trees, 2^depth).
    """

    limits: np.ndarray
    features: np.ndarray
    edges: np.ndarray
    leaves: np.ndarray

    @classmethod
    def empty(cls, limits: np.ndarray, trees: int, depth: int) -> Trees:
        """Trees of zeros."""
        nodes = np.zeros((trees, 2**depth - 1), dtype=np.int64)
        return cls(limits, nodes, nodes.copy(), np.zeros((trees, 2**depth)))

    @classmethod
    def of(cls, kept: Mapping[str, Any], names: Sequence[str]) -> Trees:
        """From `kept`, with the given features. Raises ValueError if the features differ, or the numbers are
        inconsistent."""
        if list(kept["limits"]) != list(names):
            raise ValueError("its features differ")
        count = max(map(len, kept["limits"].values()))
        limits = np.full((len(names), count), np.inf)
        for feature, values in enumerate(kept["limits"].values()):
            limits[feature, : len(values)] = values
        columns = zip(*kept["trees"], strict=True)
        features, edges, leaves = (np.array(each, dtype=np.int64) for each in columns)
        fits = (
            features.shape == edges.shape == (len(leaves), leaves.shape[1] - 1) and leaves.shape[1] & -leaves.shape[1]
        )
        if not fits or fits != leaves.shape[1] or not len(leaves):
            raise ValueError("trees are not complete")
        if features.min() < 0 or features.max() >= len(names) or edges.min() < 0 or edges.max() > count:
            raise ValueError("a node has an unknown feature or limit")
        return cls(limits, features, edges, leaves * SCALE)

    def kept(self, names: Sequence[str]) -> dict[str, Any]:
        """As stored in a file; leaves are rounded to SCALE."""
        finite = np.isfinite(self.limits).sum(1)
        limits = {name: row[:count].tolist() for name, row, count in zip(names, self.limits, finite, strict=True)}
        edges = np.minimum(self.edges, finite[self.features])  # all limits after the last finite one are equivalent
        leaves = np.rint(self.leaves / SCALE).astype(int)
        each = zip(self.features.tolist(), edges.tolist(), leaves.tolist(), strict=True)
        return {"limits": limits, "trees": [list(tree) for tree in each]}

    def values(self, y: np.ndarray) -> np.ndarray:
        """The value of each row of y (rows, features)."""
        trees, width = len(self.leaves), self.leaves.shape[1]
        found, leaf = np.empty(len(y)), np.arange(trees, dtype=np.int32) * width
        for first in range(0, len(y), BLOCK):
            some = y[first : first + BLOCK]
            row = (np.arange(len(some), dtype=np.int32) * y.shape[1])[:, None]
            numbers, node = some.ravel(), np.zeros((len(some), trees), dtype=np.int32)
            for start, features, bounds in self.levels:
                place = start + node
                node = 2 * node + (numbers.take(row + features.take(place)) > bounds.take(place))
            found[first : first + BLOCK] = self.leaves.ravel().take(leaf + node).sum(1)
        return found

    @cached_property
    def levels(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each level: where each tree's nodes start, and the feature and limit of the nodes of all trees."""
        trees, nodes = self.features.shape
        made, width = [], 1
        while width <= nodes:
            level = slice(width - 1, 2 * width - 1)
            start = np.arange(trees, dtype=np.int32) * width
            made.append((start, self.features[:, level].astype(np.int32).ravel(), self.bounds[:, level].ravel()))
            width *= 2
        return made

    @cached_property
    def bounds(self) -> np.ndarray:
        """(trees, 2^depth - 1): the limit of each node."""
        behind = np.full((len(self.limits), 1), np.inf)
        found: np.ndarray = np.concatenate([self.limits, behind], 1)[self.features, self.edges]
        return found
