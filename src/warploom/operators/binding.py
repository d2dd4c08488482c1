"""What a launch gets: arrays, numbers, and what is left to do after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..runtime.arrays import ArrayView


@dataclass(frozen=True)
class Binding:
    """The arguments of one launch.

    Attributes:
        arrays: in the order of the program's.
        names: the call's argument that each is a view of; None for memory of the library.
        numbers: scalars by name.
        finish: what is left to do after the launch.
    """

    arrays: tuple[ArrayView, ...]
    names: tuple[str | None, ...]
    numbers: dict[str, float]
    finish: Callable[[], None] | None = None
