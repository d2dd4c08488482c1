"""A multimem address as an argument of a PTX text: it refers to the same location in the memory of several GPUs.

    Multimem([x_of_gpu_0, x_of_gpu_1])

The emulator creates it; on GPUs it is the address of a cuMulticastBindMem mapping, passed as a 64-bit number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..plural import counted
from .arrays import ArrayView, view


@dataclass(frozen=True, eq=False)
class Multimem:
    """See the module's docstring.

    Attributes:
        arrays: by rank, each on its GPU, all with the same number of bytes.

    Raises ArgumentError if there are none, or if their sizes differ.
    """

    arrays: Sequence[Any]

    def __post_init__(self) -> None:
        sizes = {array.span[1] - array.span[0] for array in self.bound("an array").arrays}
        if len(sizes) != 1:
            raise ArgumentError(
                "a multimem address needs arrays of one size",
                expected="one or more arrays, by rank, of the same number of bytes",
                got=f"{counted(len(self.arrays), 'array')} of {', '.join(map(str, sorted(sizes))) or 'no'} bytes",
            )

    def named(self, of: str) -> Iterator[tuple[str, Any]]:
        """Names for messages, and arrays."""
        for rank, array in enumerate(self.arrays):
            yield f"{of}[{rank}]", array

    def bound(self, of: str) -> Multimem:
        """The address with views of its arrays. Raises ArgumentError and ArgumentTypeError like `view`."""
        made = object.__new__(Multimem)  # skips the checks, which have passed
        views = [array if isinstance(array, ArrayView) else view(array, name) for name, array in self.named(of)]
        object.__setattr__(made, "arrays", tuple(views))
        return made
