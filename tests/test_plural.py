"""Counts in messages."""

from __future__ import annotations

import pytest

from warploom.plural import counted


@pytest.mark.parametrize(
    "count, noun, words",
    [(1, "row", "1 row"), (0, "row", "0 rows"), (2, "entry", "2 entries"), (3, "byte", "3 bytes")],
)
def test_a_count_has_its_noun_in_the_right_number(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words
