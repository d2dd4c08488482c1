"""The author's names for parts of shared memory and warps, so that messages can say `ring.a[2]`, "consumer 0"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...isa.swizzle import CHUNK_BYTES as CHUNK


@dataclass(frozen=True)
class SharedPart:
    """The author's name for `count` equal pieces of a shared variable: the barriers `full[0..3]` in `smem`.

    `offset` and `size` are in bytes, of all pieces together. `row_bytes`, if a piece has rows; `rows`, if it is
    several panels of that many rows side by side; `swizzle`, of 16-byte chunks within 128-byte lines: 128, 64, 32 or 0.
    """

    variable: str
    name: str
    offset: int
    size: int
    count: int = 1
    row_bytes: int = 0
    rows: int = 0
    swizzle: int = 0

    def place(self, inside: int, size: int = 0) -> str:
        """Row and chunk of a byte of one piece, in words; "" if it has no rows."""
        if not self.row_bytes:
            return ""
        row = inside // self.row_bytes
        panel, row = (row // self.rows, row % self.rows) if self.rows else (0, row)
        chunk = inside % self.row_bytes // CHUNK
        where = f"row {row}, chunk {chunk}"
        if self.swizzle:
            moved = chunk ^ (inside >> 7 & (self.swizzle // CHUNK - 1))
            where = f"row {row}, chunk {moved}" + (f" (stored as chunk {chunk})" if moved != chunk else "")
        several = self.rows and self.size // self.count > self.rows * self.row_bytes
        return f"panel {panel}, {where}" if several else where


@dataclass(frozen=True)
class WarpRole:
    """The author's name for warps `first` to `last` of a CTA: "producer", "consumer 1"."""

    name: str
    first: int
    last: int


@dataclass(frozen=True)
class Names:
    """The author's names, for messages.

    Attributes:
        shared_parts: of shared variables.
        roles: of warps.
        buffers: a pointer parameter's name in the text -> the name of the array that it points to.
        guessed: the launch description whose values are still guesses; "" if there is none.
    """

    shared_parts: Sequence[SharedPart] = ()
    roles: Sequence[WarpRole] = ()
    buffers: Mapping[str, str] = field(default_factory=dict)
    guessed: str = ""


def role_of(roles: Iterable[WarpRole], warp: int) -> str:
    """The role of a warp; "" if it has none."""
    return next((role.name for role in roles if role.first <= warp <= role.last), "")


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: "0-3, 8"."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        parts.append(f"{ordered[at]}" if at == end else f"{ordered[at]}-{ordered[end]}")
        at = end + 1
    return ", ".join(parts)


def warps_named(numbers: Iterable[int]) -> str:
    """Warps as words: "warp 4", "warps 4-7"."""
    text = ranges(numbers)
    return f"warp {text}" if text.isdigit() else f"warps {text}"
