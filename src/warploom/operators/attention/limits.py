"""Sizes at which the kernels' arithmetic of 32 bits would end: what is refused there, and what is made small enough.

Rows, keys and edges of windows are s32 in a kernel; a query's row, a tile and an edge are added up before they are
compared with the end. Blocks of queries and tiles of lists are u32. Addresses are u64 everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ArgumentError

LONGEST = (1 << 29) - 1
"""Queries, or keys, of a launch: a row, its tile, the difference of both lengths and a window of both fit s32."""
COUNTABLE = 1 << 32
"""Numbers of u32."""
ELEMENTS = (1 << 31) - 1
"""Of an array that functions index: their integers are s32."""


def check_lengths(lengths: Mapping[str, int]) -> None:
    """Raise ArgumentError where a kernel could not count an argument's rows."""
    for name, length in lengths.items():
        if length > LONGEST:
            raise ArgumentError(
                f"`{name}` is too long for one launch: kernels count its rows in 32 bits",
                expected=f"at most {LONGEST}", got=length, hint="divide it, and combine parts by their logarithms",
                code="wrong-shape",
            )  # fmt: skip


def check_countable(what: str, count: int, hint: str, most: int = COUNTABLE - 1) -> None:
    """Raise ArgumentError where a kernel could not number so many of something."""
    if count > most:
        raise ArgumentError(
            f"there are too many {what} for one launch: kernels number them in 32 bits", expected=f"at most {most}",
            got=count, hint=hint, code="wrong-shape",
        )  # fmt: skip


def within(edge: int | None, rows: int) -> int | None:
    """Keys before or after its own that a query sees, not more than make a difference where there are `rows` in all."""
    return None if edge is None else min(edge, rows)
