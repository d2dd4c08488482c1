"""Schedules: the choices the hardware leaves open, made by a rule.

    eager    asynchronous operations complete at issue; warps run the lowest program counter first
    lazy     they complete only when nothing else can run (the default)
    random   warps, CTAs and operations in random order, by seed
    starve   one warp of each CTA or one operation is held back as long as anything else can run, chosen by seed

A policy decides among warps and CTAs; the engine asks it about operations. The same (schedule, seed) always makes
the same choices.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from ..errors import ArgumentError

if TYPE_CHECKING:
    from .machine import Fragment

Item = TypeVar("Item")
SCHEDULES = ("eager", "lazy", "random", "starve")


class Policy:
    """The rule of the lazy schedule, and the base of the others.

    Attributes:
        fuse: whether warps at the same place run together.
        start_all: whether all places are filled at once, or a cluster starts when nothing else can run.
        engine_first, engine_between: whether operations may complete while warps can still run.
    """

    name = "lazy"
    fuse = True
    start_all = False
    engine_first = False
    engine_between = False

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.random = random.Random(seed)

    def order(self, items: list[Item]) -> list[Item]:
        """In which order CTAs or clusters get their turn."""
        return items

    def choose(self, runnable: dict[int, Fragment]) -> int:
        """Which warp runs next, of those that can."""
        return min(runnable, key=lambda warp: (runnable[warp].pc, warp))

    def quantum(self, most: int) -> int:
        """How many instructions it may run in one go."""
        return most

    def yields_cta(self) -> bool:
        """Whether another CTA of the cluster gets its turn now."""
        return False

    def yields_cluster(self) -> bool:
        """Whether another cluster gets its turn now."""
        return False


class Eager(Policy):
    name = "eager"


class Random(Policy):
    name = "random"
    fuse = False
    start_all = True
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
    """Hold back one warp number of every CTA; the engine holds back one of its operations likewise."""

    name = "starve"
    start_all = True

    def choose(self, runnable: dict[int, Fragment]) -> int:
        others = [warp for warp in sorted(runnable) if warp != self.seed % 8]
        return others[0] if others else min(runnable)


def make_policy(schedule: str, seed: int) -> Policy:
    """The policy of a schedule's name. Raises ArgumentError for an unknown one."""
    for policy in (Policy, Eager, Random, Starve):
        if policy.name == schedule:
            return policy(seed)
    raise ArgumentError(f"there is no schedule {schedule!r}", expected=", ".join(SCHEDULES))
