"""The ring of store boxes: no box is rewritten while its last store may still be read, whatever the counts."""

from __future__ import annotations

import pytest

from warploom.collective.epilogue.tma_store import TmaStore


@pytest.mark.parametrize("epi_stages", range(1, 6))
@pytest.mark.parametrize("total", range(1, 8))
def test_a_box_waits_for_the_store_that_used_it_last(epi_stages: int, total: int):
    ring = TmaStore.__new__(TmaStore)
    ring.epi_stages = epi_stages
    committed: list[int] = []  # slot of each store, oldest first
    for _ in range(3):
        for number in range(total):
            allowed = ring._newer_stores(number, total)
            slot = number % epi_stages
            pending = committed[len(committed) - allowed :] if allowed else []
            assert slot not in pending
            committed.append(slot)


@pytest.mark.parametrize("epi_stages", range(1, 6))
def test_tiles_of_different_numbers_of_boxes_may_follow_each_other(epi_stages: int):
    """A staggered consumer stores half a tile at a time, and a whole one at the end."""
    ring = TmaStore.__new__(TmaStore)
    ring.epi_stages, ring._totals = epi_stages, {3, 4, 6}
    committed: list[int] = []
    for total in (3, 3, 6, 4, 3, 4, 6, 6, 3, 4):
        for number in range(total):
            allowed, slot = ring._allowed(number, total), number % epi_stages
            assert slot not in (committed[len(committed) - allowed :] if allowed else [])
            committed.append(slot)
