"""Counts in messages: "1 row", "2 rows"."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """The count and the noun, in the plural unless the count is 1: "1 byte", "16 bytes", "0 entries"."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("ry") else f"{count} {noun}s"
