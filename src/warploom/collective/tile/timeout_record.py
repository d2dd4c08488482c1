"""The record of waits that timed out (`bounded_wait`), as the host creates and reads it. Nothing is traced here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TIMEOUT = 1
"""Index of the word with the timeout."""
HOST = 2
"""Index of the first of two words with the address of the record that the host reads."""
RECORD, RECORD_WORDS = 4, 4
"""Index of the first warp's record, and the words of each: index, seen, target, 1."""
NANOSECONDS = 1_000_000
"""Nanoseconds per millisecond, the unit of the timeout."""


@dataclass(frozen=True)
class TimedOutWait:
    """A wait that did not end: counter `index` was at `seen` and should have reached `target`."""

    index: int
    seen: int
    target: int


def words(warps: int) -> int:
    """The number of words of a record for a grid with `warps` warps."""
    return RECORD + RECORD_WORDS * warps


def timed_out(record: Sequence[int]) -> list[TimedOutWait]:
    """The waits that a record lists; empty if none timed out."""
    if not record[0]:
        return []
    whole = [int(word) for word in record]
    noted = range(RECORD, len(whole) - RECORD_WORDS + 1, RECORD_WORDS)
    return [TimedOutWait(*whole[at : at + 3]) for at in noted if whole[at + 3]]
