"""The locations that an access or an operation uses, as data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .memory import Region


@dataclass(eq=False, slots=True)
class Lanes:
    """Elements that lanes of a frame address individually: `count` of `size` bytes from element `index` of the region.

    For a tensor map that "changes", `index` is its first byte. `disjoint`: no two lanes access the same byte, as far as
    is known.
    """

    region: Region
    space: str
    index: np.ndarray
    size: int
    count: int
    lanes: np.ndarray
    disjoint: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Registers of every thread of a frame, as (bank, row)."""

    rows: frozenset[tuple[int, int]]
