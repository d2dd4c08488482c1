"""The units of an SM that perform asynchronous operations. A new unit is one more line here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Unit:
    """A queue of operations.

    Attributes:
        engine: as `Starts.engine` in the rows of the instruction table.
        seed: the seed of schedule "starve" that holds this unit back; unique for each unit. A unit added after
            seeds 0 to 4 were assigned takes one of 100 or more, so that earlier seeds keep their meaning.
        reads_apart: threads wait for its reads separately, so reading and writing are two steps.
    """

    name: str
    engine: str
    seed: int
    reads_apart: bool = False


WARPGROUP_MMA = Unit("warpgroup mma", "warpgroup_mma", 0)
CP_ASYNC = Unit("cp.async", "cp_async", 1)
LOADS = Unit("load", "tma", 2)
REMOTE = Unit("remote", "remote", 3)
STORES = Unit("store", "tma", 4, reads_apart=True)
TENSOR_MEMORY = Unit("tensor memory", "tensor_memory", 101)
UMMA = Unit("umma", "umma", 102)
LAUNCH = Unit("launch", "launch", 103)

UNITS = (WARPGROUP_MMA, TENSOR_MEMORY, UMMA, CP_ASYNC, LOADS, REMOTE, LAUNCH, STORES)
"""In the order in which schedule "lazy" prefers them. MMAs first: they then read what their operands held when a
missing wait let them start, and a stage released too early is already poisoned by the next load. Stores last: their
source can be overwritten for as long as the program allows."""

EVERY_THIRD = 5
"""The seed of "starve" that holds back every third operation, whatever its unit."""


def starved_seed(seed: int) -> int:
    """Map a seed of "starve": to itself if a unit has it, otherwise to one of the first six."""
    return seed if any(unit.seed == seed for unit in UNITS) else seed % (EVERY_THIRD + 1)
