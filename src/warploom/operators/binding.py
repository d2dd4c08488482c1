"""The arguments of a launch: arrays, numbers, and the work left after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..runtime.arrays import ArrayView


@dataclass(frozen=True)
class Binding:
    """The arguments of one launch.

    Attributes:
        arrays: in the order of the program's arrays.
        names: the call's argument of which each array is a view; None for memory of the library.
        numbers: scalars by name.
        finish: work to do after the launch.
    """

    arrays: tuple[ArrayView, ...]
    names: tuple[str | None, ...]
    numbers: dict[str, float]
    finish: Callable[[], None] | None = None
