"""Size limits of the kernels' 32-bit arithmetic: what is refused, and what is clamped.

Rows, keys and edges of windows are s32 in a kernel; a query's row, a tile and an edge are added up before they are
compared with the end. Blocks of queries and tiles of lists are u32. Addresses are u64 everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ArgumentError

LONGEST = (1 << 29) - 1
"""Most queries, or keys, of a launch: the sum of a row, its tile, both lengths' difference and a window fits s32."""
COUNTABLE = 1 << 32
"""Number of u32 values."""
ELEMENTS = (1 << 31) - 1
"""Most elements of an array that functions index: their integers are s32."""


def check_lengths(lengths: Mapping[str, int]) -> None:
    """Raise ArgumentError if an argument has more rows than a kernel can count."""
    for name, length in lengths.items():
        if length > LONGEST:
            raise ArgumentError(
                f"`{name}` is too long for one launch: kernels count its rows in 32 bits",
                expected=f"at most {LONGEST}", got=length, hint="divide it, and combine parts by their logarithms",
                code="wrong-shape",
            )  # fmt: skip


def check_countable(what: str, count: int, hint: str, most: int = COUNTABLE - 1) -> None:
    """Raise ArgumentError if a kernel cannot number `count` items."""
    if count > most:
        raise ArgumentError(
            f"there are too many {what} for one launch: kernels number them in 32 bits", expected=f"at most {most}",
            got=count, hint=hint, code="wrong-shape",
        )  # fmt: skip


def within(edge: int | None, rows: int) -> int | None:
    """Clamp a window edge to `rows`, beyond which it makes no difference."""
    return None if edge is None else min(edge, rows)
