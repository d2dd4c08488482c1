"""Which clusters the SMs get that end last, in a grid whose clusters take different times.

Each place gets the next cluster of the grid when one of its own ends, so places do not get equal shares: a long cluster
that starts late ends alone. The work of clusters between the recorded ones is interpolated.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from .recording import Recording
from .sampling import differ, work


def last_lot(recording: Recording, places: int, residents: int) -> list[int]:
    """Indices of recorded clusters like those that the last place gets, in order; empty if all are alike, or if the
    recorded ones are the first of the grid, which represent it in turn."""
    grid = [every // part for every, part in zip(recording.grid, recording.cluster, strict=True)]
    numbers = [_number(members[0], recording, grid) for members in recording.clusters.values()]
    works = work(recording)
    if sorted(numbers) == list(range(len(numbers))) or not differ(works):
        return []
    every = np.arange(grid[0] * grid[1] * grid[2])
    along = _place(every, numbers, grid)
    order = np.argsort(along[numbers])
    known = along[numbers][order]
    lengths = np.interp(along, known, np.array(works)[order])
    nearest = order[np.abs(along[:, None] - known).argmin(1)]
    free = [(0.0, slot) for slot in range(places * residents)]
    begun: list[list[tuple[float, int]]] = [[] for _ in range(places)]
    for length, like in zip(lengths, nearest, strict=True):
        time, slot = free[0]
        begun[slot % places].append((time, int(like)))
        heapq.heapreplace(free, (time + float(length), slot))
    _, slot = max(free)
    return [like for _, like in begun[slot % places]]


def _number(cta: int, recording: Recording, grid: Sequence[int]) -> int:
    """The number of a CTA's cluster in the grid."""
    wide, high, _ = recording.grid
    x, y, z = (at // part for at, part in zip(
        (cta % wide, cta // wide % high, cta // (wide * high)), recording.cluster, strict=True
    ))  # fmt: skip
    return x + grid[0] * (y + grid[1] * z)


def _place(every: np.ndarray, numbers: Sequence[int], grid: Sequence[int]) -> np.ndarray:
    """The place of each cluster along the axis on which the recorded ones lie."""
    for apart, length in ((grid[0] * grid[1], grid[2]), (grid[0], grid[1]), (1, grid[0])):
        if all(number % apart == 0 and number // apart < length for number in numbers):
            return np.asarray(every // apart % length)
    return every
