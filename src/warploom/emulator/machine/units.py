"""The units of an SM that carry out asynchronous operations. A new one is a line here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """A queue of operations.

    Attributes:
        engine: as `Starts.engine` in the rows of the instruction table.
        seed: of schedule "starve", that holds this unit back; no two units have the same. A unit that comes after
            those with seeds 0 to 4 takes one of 100 or more, so that the seeds known before mean what they meant.
        reads_apart: threads wait for its reads alone, so reading and writing are two steps.
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
"""In the order in which schedule "lazy" prefers them. Matrix units first: they then read what their operands held when
a missing wait let them start, and a stage given back too early is already poisoned by the next load. Stores last: their
source stays open to being overwritten for as long as the program allows."""

EVERY_THIRD = 5
"""The seed of "starve" that holds back every third operation, whatever its unit."""


def starved_seed(seed: int) -> int:
    """What a seed of "starve" means: itself where a unit has it, else one of the first six."""
    return seed if any(unit.seed == seed for unit in UNITS) else seed % (EVERY_THIRD + 1)
