"""The record of waits that were given up (`bounded_wait`), as the host creates and reads it. Nothing is traced here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PATIENCE = 1
"""Index of the word with the patience."""
HOST = 2
"""Index of the first of two words with the address of the record that the host reads."""
RECORD, RECORD_WORDS = 4, 4
"""Index of the first warp's record, and the words of each: index, seen, target, 1."""
NANOSECONDS = 1_000_000
"""Nanoseconds per millisecond, the unit of patience."""


@dataclass(frozen=True)
class GivenUp:
    """A wait that did not end: counter `index` was at `seen` and should have reached `target`."""

    index: int
    seen: int
    target: int


def words(warps: int) -> int:
    """The number of words of a record for a grid with `warps` warps."""
    return RECORD + RECORD_WORDS * warps


def given_up(record: Sequence[int]) -> list[GivenUp]:
    """The waits that a record reports as given up; empty if all waits ended by themselves."""
    if not record[0]:
        return []
    whole = [int(word) for word in record]
    noted = range(RECORD, len(whole) - RECORD_WORDS + 1, RECORD_WORDS)
    return [GivenUp(*whole[at : at + 3]) for at in noted if whole[at + 3]]
