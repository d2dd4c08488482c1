"""Weak writes under strong ones: an atomic of a store's own thread does not hide the store from others' atomics.

The shadow keeps the last write of a granule. Two strong accesses do not race (PTX ISA 8.7.1), so if a strong write
overwrites a weak one, the weak one is kept below it for later strong accesses.
"""

from __future__ import annotations

import numpy as np

from ..happens_before.access import GENERIC
from ..happens_before.gaps import gap
from ..happens_before.state import ClusterState
from ..happens_before.view import View
from .shadow import Granules, Shadow, distinct


def weak_below(state: ClusterState, shadow: Shadow, granules: np.ndarray) -> np.ndarray | None:
    """The weak writes that a strong one covers, directly or indirectly; None if there is none."""
    last = shadow.last[granules]
    found = np.zeros_like(last) if shadow.under is None else shadow.under[granules]
    for number in filter(None, distinct(last)):
        access = state.accesses[number]
        if access.proxy == GENERIC and not access.strong:
            found[last == number] = number
    return found if found.any() else None


def unordered_below(
    state: ClusterState, shadow: Shadow, granules: Granules, view: View, by_async: bool
) -> list[tuple[int, str]]:
    """Weak writes below that did not happen before an access with this clock, each with what is missing."""
    assert shadow.under is not None
    pairs = (
        (number, gap(state.accesses[number], view, by_async)) for number in distinct(shadow.under[granules]) if number
    )
    return [(number, missing) for number, missing in pairs if missing]
