"""A structure as an argument of a PTX text: bytes with addresses, tensor maps and numbers at some offsets.

    Struct(192, {0: TensorMap.tiled(a, box=(64, 64)), 128: c, 136: np.uint32(64)})

A parameter that is a block of bytes takes it by value; a pointer, in a parameter or in another structure, takes the
address of a copy in global memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..isa.tensor_map import MAP_BYTES
from ..plural import counted
from .arrays import ArrayView, is_array, view
from .tensor_map import TensorMap
from .validate import at_least

POINTER_BYTES = 8


@dataclass(frozen=True, eq=False)
class Struct:
    """See the module's docstring.

    Attributes:
        size: bytes.
        at: the part at a byte offset: an array (8 bytes: its address), a `TensorMap` (128 bytes), a NumPy scalar
            (its own bytes), or another Struct (8 bytes: the address of a copy in memory).
        data: the other bytes, starting at the first; zeros after its end.
        names: names of the arrays in messages, by offset.

    Raises ArgumentError for parts that overlap or do not fit, ArgumentTypeError for a part that is none of these.
    """

    size: int
    at: Mapping[int, Any]
    data: bytes = b""
    names: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, number in (("the size", self.size), *(("an offset", offset) for offset in self.at)):
            at_least(0, number, f"{what} of a structure")
        if len(self.data) > self.size:
            raise ArgumentError(
                "a structure has more data than bytes",
                expected=f"at most {self.size}",
                got=counted(len(self.data), "byte"),
            )
        end, before = 0, -1
        for offset in sorted(self.at):
            if offset < end:
                raise ArgumentError("two parts of a structure overlap", got=f"offsets {before} and {offset}")
            before, end = offset, offset + self._bytes(offset)
            if end > self.size:
                raise ArgumentError(
                    f"the part at offset {offset} does not fit into its structure",
                    expected=f"at most {counted(self.size, 'byte')}", got=f"bytes {offset} to {end}",
                )  # fmt: skip

    def _bytes(self, offset: int) -> int:
        part = self.at[offset]
        if isinstance(part, TensorMap):
            return MAP_BYTES
        if isinstance(part, (Struct, ArrayView)) or is_array(part):
            return POINTER_BYTES
        if isinstance(part, np.generic):
            return part.nbytes
        raise ArgumentTypeError(
            f"the part at offset {offset} of a structure has an invalid type",
            expected="an array, a TensorMap, a NumPy scalar or a Struct", got=type(part).__name__,
        )  # fmt: skip

    def name(self, offset: int, of: str) -> str:
        """The name in messages of the part at an offset of the structure `of`."""
        return self.names.get(offset) or f"{of}+{offset}"

    def arrays(self, of: str) -> Iterator[tuple[str, Any]]:
        """Names and arrays of all parts, including those of tensor maps and of structures behind pointers."""
        for offset, part in self.at.items():
            name = self.name(offset, of)
            if isinstance(part, Struct):
                yield from part.arrays(name)
            elif isinstance(part, TensorMap):
                yield name, part.array
            elif isinstance(part, ArrayView) or is_array(part):
                yield name, part

    def bound(self, name: str) -> Struct:
        """The structure with views of its arrays. Raises ArgumentError and ArgumentTypeError like `view`."""
        made = {offset: self._bound(offset, name) for offset in self.at}
        return Struct(self.size, made, self.data, {offset: self.name(offset, name) for offset in self.at})

    def _bound(self, offset: int, name: str) -> Any:
        part = self.at[offset]
        if isinstance(part, Struct):
            return part.bound(self.name(offset, name))
        if isinstance(part, (TensorMap, ArrayView, np.generic)):
            return part
        return view(part, self.name(offset, name))

    @property
    def whole(self) -> bytes:
        """All bytes, with zeros for the parts."""
        return self.data.ljust(self.size, b"\0")
