"""A first-level cache, as a set of sectors: what was touched lately is there.

Two generations stand for least-recently-used: when the younger has grown to half of the capacity, it becomes the older.
"""

from __future__ import annotations


class Cache:
    """`capacity` in sectors."""

    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._young: set[int] = set()
        self._old: set[int] = set()

    def missed(self, sectors: set[int]) -> int:
        """How many of these sectors are not there; they are now."""
        found = len(sectors - self._young - self._old)
        self._young |= sectors
        if len(self._young) > self._half:
            self._old, self._young = self._young, set()
        return found
