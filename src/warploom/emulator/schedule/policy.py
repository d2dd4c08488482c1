"""Schedules: the choices that the hardware leaves open, made by a rule.

    eager    asynchronous operations complete at issue; warps run the lowest program counter first
    lazy     they complete only when nothing else can run (the default)
    random   warps, CTAs and operations in random order, by seed
    pct      warps by random priorities that change at a few random moments; half of the operations held back
    starve   one warp of each CTA or one operation is held back as long as anything else can run, chosen by the seed;
             so is one of several GPUs, until it does what another may wait for: the others run launches ahead
    abreast  as lazy, but threads that can only exit do so first, so that what is left of their warps runs together: for
             a recording, whose caches see what warps share as they would side by side

A policy decides among warps and CTAs; the engine consults it about operations. The same (schedule, seed) always makes
the same choices.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from ...errors import ArgumentError

if TYPE_CHECKING:
    from ..machine.machine import Fragment

Item = TypeVar("Item")
SCHEDULES = ("eager", "lazy", "random", "starve", "pct")
ABREAST = "abreast"
"""The schedule of `timing`'s recordings. No caller is offered it: it is for what caches see, not for finding errors."""
SEARCHES = ("explore", "exhaustive")
"""Names that a caller may give instead of a schedule: `runtime.emulate` makes many runs for them."""


class Policy:
    """The rule of the lazy schedule, and the base of the others.

    Attributes:
        fuse: True if warps at the same instruction run together.
        leave_first: True if threads that can only exit do so before others run.
        start_all: True if all slots are filled at once, False if a cluster starts when nothing else can run.
        takes_turns: True if clusters give way where others can observe them (`turns`).
        engine_first, engine_between: True if operations may complete while warps can still run.
    """

    name = "lazy"
    fuse = True
    leave_first = False
    start_all = False
    engine_first = False
    engine_between = False
    takes_turns = True

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.random = random.Random(seed)

    def order(self, items: list[Item]) -> list[Item]:
        """The order in which CTAs or clusters get their turn."""
        return items

    def held_back(self, devices: int) -> int:
        """The GPU whose clusters run only if nothing else can; -1 for none."""
        return -1

    def choose(self, runnable: dict[int, Fragment]) -> int:
        """The runnable warp that runs next."""
        return min(runnable, key=lambda warp: (runnable[warp].pc, warp))

    def quantum(self, most: int) -> int:
        """Number of instructions it may run in one turn."""
        return most

    def yields_cta(self) -> bool:
        """True if another CTA of the cluster gets its turn now."""
        return False

    def yields_cluster(self) -> bool:
        """True if another cluster gets its turn now."""
        return False


class Abreast(Policy):
    """Threads that can only exit do so first; everything else, also what engines do, is as in the lazy schedule."""

    leave_first = True


class Eager(Policy):
    """Asynchronous operations complete as soon as they are issued."""

    name = "eager"
    takes_turns = False


class Random(Policy):
    """Warps, engines and the parts of a copy take turns by the seed."""

    name = "random"
    fuse = False
    start_all = True
    takes_turns = False
    engine_between = True

    def order(self, items: list[Item]) -> list[Item]:
        return self.random.sample(items, len(items))

    def choose(self, runnable: dict[int, Fragment]) -> int:
        return self.random.choice(sorted(runnable))

    def quantum(self, most: int) -> int:
        return self.random.choice((1, 4, 16, 64, 256))

    def yields_cta(self) -> bool:
        return self.random.random() < 0.5

    def yields_cluster(self) -> bool:
        return self.random.random() < 0.25


class Starve(Policy):
    """Hold back one warp index of every CTA, and one of several GPUs; the engine holds back one of its operations."""

    name = "starve"
    start_all = True
    takes_turns = False

    def held_back(self, devices: int) -> int:
        return self.seed % devices if devices > 1 else -1

    def choose(self, runnable: dict[int, Fragment]) -> int:
        others = [warp for warp in sorted(runnable) if warp != self.seed % 8]
        return others[0] if others else min(runnable)


class Pct(Policy):
    """Probabilistic concurrency testing: Burckhardt et al., ASPLOS 2010.

    The warp of highest priority runs whenever it can; at CHANGES random moments the running one drops to the end. An
    ordering bug that needs few orderings is found with a probability that has a lower bound.
    """

    name = "pct"
    fuse = False
    start_all = True
    takes_turns = False

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._priority: dict[object, float] = {}
        self._changes = {self.random.randrange(HORIZON) for _ in range(CHANGES)}
        self._step = 0

    def _of(self, key: object) -> float:
        found = self._priority.get(key)
        if found is None:
            found = self._priority[key] = self.random.random()
        return found

    def order(self, items: list[Item]) -> list[Item]:
        return sorted(items, key=self._of)

    def choose(self, runnable: dict[int, Fragment]) -> int:
        chosen = max(sorted(runnable), key=self._of)
        self._step += 1
        if self._step in self._changes:
            self._priority[chosen] = -self._step
            chosen = max(sorted(runnable), key=self._of)
        return chosen

    def quantum(self, most: int) -> int:
        return 64


CHANGES = 3
HORIZON = 2000
"""Number of priority changes, and the number of decisions among which they are drawn."""


def make_policy(schedule: str, seed: int) -> Policy:
    """The policy of a schedule's name. Raises ArgumentError for an unknown one."""
    if schedule == ABREAST:
        return Abreast(seed)
    for policy in (Policy, Eager, Random, Starve, Pct):
        if policy.name == schedule:
            return policy(seed)
    raise unknown_schedule(schedule)


def unknown_schedule(schedule: str) -> ArgumentError:
    """The error for an unknown schedule."""
    return ArgumentError(f"unknown schedule {schedule!r}", expected=f"one of {', '.join(SCHEDULES + SEARCHES)}")
