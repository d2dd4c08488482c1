"""Which registers depend on the results of some instructions."""

from __future__ import annotations

from collections.abc import Container, Sequence

from .instructions import Facts


def derived(facts: Sequence[Facts], sources: Container[int]) -> frozenset[int]:
    """The registers that the instructions with these program counters write, and all that are computed from them."""
    found: set[int] = set()
    grown = True
    while grown:
        grown = False
        for one in facts:
            if not one.writes <= found and (one.pc in sources or one.reads & found):
                found |= one.writes
                grown = True
    return frozenset(found)
