"""Which of the bytes that a grid copies are read by one CTA only, and how many CTAs copy from outside of an array."""

from __future__ import annotations

import math
from collections import defaultdict

from .recording import Operation, Recording

ALONE = 1.5
"""An array that the grid reads fewer times is read by one CTA at a time."""


def read_alone(recording: Recording, scale: float) -> float:
    """Share of the bytes copied by TMA that belong to arrays of which no two CTAs read the same lines.

    scale: CTAs of the grid over those recorded, by work.
    """
    reads: dict[int, list[Operation]] = defaultdict(list)
    for one in recording.operations:
        if one.place is not None and one.fetched and not one.stores:
            reads[one.place.array].append(one)
    requested = {array: sum(one.fetched for one in mine) for array, mine in reads.items()}
    alone = sum(requested[array] for array, mine in reads.items() if requested[array] * scale < ALONE * _bytes(mine[0]))
    return alone / sum(requested.values()) if requested else 0.0


def beyond(recording: Recording) -> float:
    """Share of the time in which a CTA copies boxes that reach outside of an array, of those with boxes of that array.

    A grid's CTAs are taken to do so evenly: all of them always if the array has fewer rows than a box.
    """
    boxes: dict[int, list[bool]] = defaultdict(list)
    for one in recording.operations:
        if one.place is not None and not one.stores:
            boxes[one.place.array].append(one.outside > 0)
    return max((sum(mine) / len(mine) for mine in boxes.values()), default=0.0)


def _bytes(read: Operation) -> float:
    """Size of the array that an operation reads a box of."""
    assert read.place is not None
    return read.fetched / math.prod(read.place.counts) * math.prod(read.place.extents)
