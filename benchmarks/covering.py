"""Few members of a large space of options that hold every pair of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

Member = dict[str, Any]
Excluded = Mapping[str, Collection[Any]]
"""What no member has: one of these values on each of these axes."""


def cover(axes: Mapping[str, Sequence[Any]], excluded: Sequence[Excluded] = (), strength: int = 2) -> list[Member]:
    """Return members in which every combination of `strength` values occurs that occurs in any member at all.

    The first members hold the most: each is the one with the most combinations that none before it has. The result is
    the same in every run.
    """
    names, sizes = list(axes), [len(values) for values in axes.values()]
    grid = np.indices(sizes, dtype=np.uint8).reshape(len(sizes), -1)
    absent = np.zeros(grid.shape[1], bool)
    for rule in excluded:
        absent |= np.logical_and.reduce([
            np.isin(grid[names.index(name)], [at for at, value in enumerate(axes[name]) if value in values])
            for name, values in rule.items()
        ])  # fmt: skip
    grid = grid[:, ~absent]
    grid = grid[:, np.random.default_rng(0).permutation(grid.shape[1])]
    codes, left = [], []
    for chosen in combinations(range(len(sizes)), strength):
        of_each = [sizes[axis] for axis in chosen]
        code = np.ravel_multi_index(tuple(grid[list(chosen)]), of_each).astype(np.uint16)
        codes.append(code)
        left.append(np.bincount(code, minlength=prod(of_each)) > 0)
    brings = np.full(grid.shape[1], len(codes), np.int16)
    found = []
    while brings.size and brings[best := int(brings.argmax())]:
        found.append({name: axes[name][grid[at, best]] for at, name in enumerate(names)})
        for code, missing in zip(codes, left, strict=True):
            if missing[code[best]]:
                missing[code[best]] = False
                brings -= code == code[best]
    return found


def combined(members: Sequence[Member], strength: int = 2) -> set[tuple[tuple[str, Any], ...]]:
    """The combinations of `strength` values that occur in members."""
    return {part for member in members for part in combinations(member.items(), strength)}
