"""Lanes of a warp that release apart: each for itself, in shared memory, or one for others that it has not met.

In shared memory a release by some lanes covers what they did, and what the warp did before its lanes met (`Part`).

In global memory a warp is one component of the clocks, and whoever acquires a flag of it knows what all its lanes did.
That is so only as long as the lanes run together (PTX ISA 8.9: lanes are threads of their own). So each warp keeps
which lanes did what to global memory since they met. What a lane raised a flag for on behalf of others is known in
earnest from the epoch on in which they met, or released it themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

PLACES = 64
"""Instructions of a warp that are kept of what its lanes did to shared memory since they met."""
MOST = 256
"""Accesses of a warp that are kept; what is older is forgotten."""
EVERYTHING = np.iinfo(np.int32).max
"""The epoch of what is known of a launch that is over."""

Key = tuple[int, int]
"""Of accesses: the epoch and the instruction."""


@dataclass(frozen=True)
class Part:
    """A release by some lanes of a warp.

    Attributes:
        lanes: who released, as a mask; epoch: in which; p: what was carried of the warp's own accesses.
        touched: accesses of the warp since its threads last met, as the masks of lanes that made them -> latest epoch.
        made: the same by their instructions: pc -> mask; pc: the instruction that releases, -1 where it is none.
    """

    lanes: int
    epoch: int
    p: int
    touched: dict[int, int]
    made: dict[int, int] = field(default_factory=dict)
    pc: int = -1

    def covered(self, parts: Sequence[Part]) -> bool:
        """Whether those who made these accesses have all released since, each for itself."""
        for lanes, epoch in self.touched.items():
            for part in parts:
                if part.epoch >= epoch:
                    lanes &= ~part.lanes
            if lanes:
                return False
        return True


Parts: TypeAlias = "Mapping[int, tuple[Part, ...]]"
"""By the component of the warp; only of warps whose threads released apart. Never changed in place."""
WHOLE: Parts = MappingProxyType({})


@dataclass(eq=False, slots=True)
class LanesApart:
    """Of one warp.

    Attributes:
        left: accesses since the lanes met -> the lanes (a mask) that made them and have released nothing since.
        spoken_for: accesses by lanes for which another one raised a flag -> the epoch in which they were covered.
        raised: the instruction (pc) that raised it.
    """

    left: dict[Key, int] = field(default_factory=dict)
    spoken_for: dict[Key, int | None] = field(default_factory=dict)
    raised: dict[Key, int] = field(default_factory=dict)

    def touch(self, lanes: int, epoch: int, pc: int) -> None:
        """These lanes access global memory."""
        key = (epoch, pc)
        self.left[key] = self.left.get(key, 0) | lanes
        if len(self.left) > MOST:
            del self.left[next(iter(self.left))]

    def cover(self, lanes: int, epoch: int) -> None:
        """These lanes release what they did, or meet each other."""
        for key, left in list(self.left.items()):
            if left & ~lanes:
                self.left[key] = left & ~lanes
                continue
            del self.left[key]
            if key in self.spoken_for:
                self.spoken_for[key] = epoch

    def speak(self, until: int, pc: int) -> bool:
        """A lane raises a flag (at `pc`) for all that was done up to an epoch. Whether it speaks for others."""
        others = [key for key in self.left if key[0] <= until]
        for key in others:
            self.spoken_for.setdefault(key, None)
            self.raised.setdefault(key, pc)
            if len(self.spoken_for) > MOST:
                oldest = next(iter(self.spoken_for))
                del self.spoken_for[oldest], self.raised[oldest]
        return bool(others)

    def uncovered(self, epoch: int, pc: int, known: int) -> bool:
        """Whether somebody who knows of the warp up to an epoch knows of an access by the word of another lane."""
        if known == EVERYTHING or (epoch, pc) not in self.spoken_for:
            return False
        covered = self.spoken_for[epoch, pc]
        return covered is None or known < covered
