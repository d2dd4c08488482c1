"""What an author calls the parts of shared memory, so that messages can say `ring.empty[3]`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SharedPart:
    """What an author calls `count` equal pieces of a shared variable: the barriers `full[0..3]` in `smem`.

    `offset` and `size` are in bytes, of all pieces together.
    """

    variable: str
    name: str
    offset: int
    size: int
    count: int = 1
