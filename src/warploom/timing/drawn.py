"""Loads whose addresses the kernel has loaded itself, as a lookup in a table by given indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .dataflow import derived
from .instructions import facts_of

if TYPE_CHECKING:
    from ..emulator.machine.operation import Operation

LOADS = ("ld.global", "ld.volatile.global")


def loaded_addresses(operations: Sequence[Operation]) -> frozenset[int]:
    """The program counters of loads from global memory whose address follows from what such a load has read."""
    facts = [facts_of(one) for one in operations]
    loads = [one for one in facts if one.opcode.startswith(LOADS)]
    drawn = derived(facts, {one.pc for one in loads})
    return frozenset(one.pc for one in loads if not one.reads.isdisjoint(drawn))
