"""The record of waits that were given up (`bounded_wait`), as the host makes and reads it. Nothing is traced here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PATIENCE = 1
"""The word of the patience."""
HOST = 2
"""The first of two words with the address of the record that the host reads."""
RECORD, RECORD_WORDS = 4, 4
"""Where the warps' records begin, and the words of each: index, seen, target, 1."""
NANOSECONDS = 1_000_000
"""Of a millisecond, in which patience is told."""


@dataclass(frozen=True)
class GivenUp:
    """A wait that did not end: counter `index` was at `seen` and should have come to `target`."""

    index: int
    seen: int
    target: int


def words(warps: int) -> int:
    """Of the record of a grid with that many warps."""
    return RECORD + RECORD_WORDS * warps


def given_up(record: Sequence[int]) -> list[GivenUp]:
    """What a record says; empty where all waits have ended by themselves."""
    if not record[0]:
        return []
    whole = [int(word) for word in record]
    noted = range(RECORD, len(whole) - RECORD_WORDS + 1, RECORD_WORDS)
    return [GivenUp(*whole[at : at + 3]) for at in noted if whole[at + 3]]
