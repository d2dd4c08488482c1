"""Accesses of the lanes of one warp that nothing orders, found by reading the warp's journal backwards.

Lanes are ordered by what they pass together: bar.warp.sync, a barrier, an mbarrier's phase, a strong store and a
strong load of one address. Going back over such an event, the lanes that waited learn what the arriving lanes know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .clocks import FULL
from .journal import WARP, Access, LaneSync, Noted, Sorted


@dataclass(frozen=True, eq=False)
class LaneConflict:
    """An earlier access that some lanes of a warp do not know of: granules, the lane of each, and who made the
    earlier access there."""

    entry: Access
    granules: np.ndarray
    lanes: np.ndarray
    owners: np.ndarray


def clashes(journal: Sequence[Noted], me: int, now: Access) -> Iterator[LaneConflict]:
    """The earlier accesses that an access of the warp `me` races with, the latest first."""
    mine, lanes = now.of(me)
    if not mine.size:
        return
    known = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
    """For each lane, the lanes whose accesses up to here happened before its current access."""
    waiting: dict[object, np.ndarray] = {}
    reach = np.zeros(WARP, np.int64)
    low, high = int(np.minimum.reduce(mine)), int(np.maximum.reduce(mine))
    passed: list[LaneSync] = []
    for entry in reversed(journal):
        if isinstance(entry, LaneSync):
            passed.append(entry)  # most journals have no access to these bytes further back
        elif entry.together and now.together:
            continue  # the warp makes both as one, in program order
        elif entry.strong and now.strong:
            continue
        elif entry.shadow is now.shadow and (entry.writes or now.writes):
            there = entry.by_granule(me)
            if there is None or there.high < low or high < there.low:
                continue
            for each in passed:
                _learn(known, waiting, reach, each)
            passed.clear()
            heard = np.where(reach >= entry.epochs[me - entry.first], np.uint32(FULL), known)
            clash = _apart(heard, lanes, now.together, entry, mine, there)
            if clash is not None:
                yield clash


def _apart(
    known: np.ndarray, lanes: np.ndarray, together: bool, entry: Access, mine: np.ndarray, there: Sorted
) -> LaneConflict | None:  # fmt: skip
    """The lanes that are not ordered with the entry's at common granules; None if all are."""
    owners = there.lanes
    low, high = there.granules.searchsorted(mine, "left"), there.granules.searchsorted(mine, "right")
    if not (low < high).any():
        return None
    everyone = np.bitwise_and.reduce(known[np.unique(lanes)]) if together else None
    all_owners = (
        np.bitwise_or.reduce(np.uint32(1) << owners.astype(np.uint32)) if entry.together and owners.size else None
    )
    found = []
    for depth in range(int((high - low).max(initial=0))):
        some = np.flatnonzero(low + depth < high)
        owner = owners[low[some] + depth]
        needed = np.uint32(1) << owner.astype(np.uint32) if all_owners is None else np.full(some.size, all_owners)
        has = known[lanes[some]] if everyone is None else np.full(some.size, everyone)
        wrong = np.flatnonzero((has & needed) != needed)
        if wrong.size:
            found.append((mine[some[wrong]], lanes[some[wrong]], owner[wrong]))
    return LaneConflict(entry, *map(np.concatenate, zip(*found, strict=True))) if found else None


def _learn(known: np.ndarray, waiting: dict[object, np.ndarray], reach: np.ndarray, passed: LaneSync) -> None:
    """One step back over an event that lanes passed: the waiting lanes learn what the arriving lanes know."""
    members = np.uint32(passed.lanes & FULL)
    if passed.by is None:  # all of them at once
        known[(known & members) != 0] |= members
        return
    if passed.arrives and passed.by in waiting:
        known[waiting[passed.by]] |= members
    if passed.waits:
        waiters = (known & members) != 0
        reach[waiters] = np.maximum(reach[waiters], passed.reach)
        if passed.in_turn:
            for lane in np.flatnonzero(waiters):
                known[lane] |= members & np.uint32((1 << int(known[lane] & members).bit_length()) - 1)
        waiting[passed.by] = waiters | waiting[passed.by] if passed.by in waiting else waiters
