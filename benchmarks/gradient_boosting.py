"""Boosted trees that rank the configurations of one product, in NumPy: `operators.families.trees` evaluates them.

    averaged(features, groups, targets, weights).values(features)

Each tree is fitted to the residuals (logarithms of times) of the trees before it, centred within each product, because
a factor common to all configurations of a product does not affect the choice. Trees are complete, with DEPTH levels; a
split is one of EDGES limits of a feature. Every tree sees a random subset of the features and of the products, drawn
with a fixed seed. The average of several such sums, with other seeds, depends less on what a tree happened to see.
"""

from __future__ import annotations

import numpy as np

from warploom.operators.families.trees import Trees

FORESTS = 4
"""Number of sums that are averaged."""
TREES, DEPTH, EDGES, RATE, SHARE, LEAST, RIDGE = 600, 6, 63, 0.12, 0.5, 3.0, 1.0
"""Number of trees of each, depth, limits per feature, learning rate, the share of features that a tree sees, the least
weight of a leaf, and the weight that shrinks leaves to zero."""
DRAWN = 0.7
"""The share of products that a tree sees."""


def edges(features: np.ndarray, count: int = EDGES) -> np.ndarray:
    """Limits of each feature (features, count), between its values; infinite after the last."""
    made = np.full((features.shape[1], count), np.inf)
    for place, column in enumerate(features.T):
        values = np.unique(column)
        middles = (values[1:] + values[:-1]) / 2
        if len(middles) > count:
            middles = np.unique(np.quantile(column, np.arange(1, count + 1) / (count + 1)))
        made[place, : len(middles)] = middles
    return np.vectorize(lambda limit: float(f"{limit:.6g}"))(made)


def centred(values: np.ndarray, groups: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values minus the weighted mean of their group."""
    return values - (np.bincount(groups, weights * values) / np.bincount(groups, weights))[groups]


def grown(
    features: np.ndarray, groups: np.ndarray, targets: np.ndarray, weights: np.ndarray, trees: int = TREES,
    seed: int = 0,
) -> Trees:  # fmt: skip
    """Fit trees to targets. groups: the product of each row."""
    limits = edges(features, EDGES)
    bins = np.stack([np.searchsorted(limits[f], features[:, f]) for f in range(features.shape[1])])
    random, made = np.random.default_rng(seed), Trees.empty(limits, trees, DEPTH)
    seen = max(1, round(SHARE * len(bins)))
    left = centred(targets, groups, weights)
    for tree in range(trees):
        chosen = random.permutation(len(bins))[:seen]
        drawn = weights * (random.random(groups.max() + 1) < DRAWN)[groups]
        place = _split(bins, chosen, left, drawn, made, tree)
        sums = np.bincount(place, drawn * left, 2**DEPTH)
        made.leaves[tree] = RATE * sums / (np.bincount(place, drawn, 2**DEPTH) + RIDGE)
        left = centred(left - made.leaves[tree][place], groups, weights)
    return made


def averaged(
    features: np.ndarray, groups: np.ndarray, targets: np.ndarray, weights: np.ndarray, trees: int = TREES
) -> Trees:
    """The average of `FORESTS` sums of trees."""
    each = [grown(features, groups, targets, weights, trees, seed) for seed in range(FORESTS)]
    nodes, edges, leaves = (
        np.concatenate([getattr(one, name) for one in each]) for name in ("features", "edges", "leaves")
    )
    return Trees(each[0].limits, nodes, edges, leaves / FORESTS)


def _split(
    bins: np.ndarray, chosen: np.ndarray, left: np.ndarray, weights: np.ndarray, made: Trees, tree: int
) -> np.ndarray:
    """Find the splits of a tree, and the leaf of each row."""
    rows, cells, size = bins.shape[1], EDGES + 1, len(chosen) * (EDGES + 1)
    place, sums = np.zeros(rows, dtype=np.int64), np.stack([weights, weights * left])
    offset = np.arange(len(chosen))[:, None] * cells + bins[chosen]
    last: np.ndarray = np.zeros((2, 1, len(chosen), cells))
    for level in range(DEPTH):
        nodes = 2**level
        counted = np.ones(1, dtype=bool)
        if level:  # only the smaller child of each node is summed; the other has the rest
            smaller = np.bincount(place, minlength=nodes).reshape(-1, 2).argmin(1)
            counted = (np.arange(2) == smaller[:, None]).ravel()
        picked = np.flatnonzero(counted[place])
        keys = (place[picked] * size + offset[:, picked]).ravel()
        counts = [np.bincount(keys, np.tile(each[picked], len(chosen)), nodes * size) for each in sums]
        here = np.stack(counts).reshape(2, nodes, len(chosen), cells)
        if level:
            others = np.flatnonzero(~counted)
            here[:, others] = last[:, others // 2] - here[:, others ^ 1]
        last, (weight, pull) = here, here.cumsum(3)
        whole, total = weight[:, :, -1:], pull[:, :, -1:]
        gain = pull**2 / (weight + RIDGE) + (total - pull) ** 2 / (whole - weight + RIDGE) - total**2 / (whole + RIDGE)
        gain[(weight < LEAST) | (whole - weight < LEAST)] = 0.0
        best = gain[:, :, :-1].reshape(nodes, -1).argmax(1)
        feature, edge = chosen[best // EDGES], best % EDGES
        edge = np.where(gain[:, :, :-1].reshape(nodes, -1).max(1) > 0, edge, EDGES)  # all go left
        made.features[tree, nodes - 1 : 2 * nodes - 1], made.edges[tree, nodes - 1 : 2 * nodes - 1] = feature, edge
        place = 2 * place + (bins[feature[place], np.arange(rows)] > edge[place])
    return place
