"""An L1 cache as a set of recently touched sectors.

Two generations approximate LRU: when the younger has grown to half of the capacity, it becomes the older.
"""

from __future__ import annotations


class Cache:
    """A cache of `capacity` sectors."""

    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._young: set[int] = set()
        self._old: set[int] = set()

    def missed(self, sectors: set[int]) -> int:
        """Add these sectors to the cache and return how many were missing."""
        found = len(sectors - self._young - self._old)
        self._young |= sectors
        if len(self._young) > self._half:
            self._old, self._young = self._young, set()
        return found
