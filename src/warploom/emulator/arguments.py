"""Arguments of a kernel as parameter bytes: buffers become addresses, maps and structures their contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, Union

import numpy as np

from ..asm.nodes import Function
from ..errors import ArgumentError, ArgumentTypeError
from .engines.tma import TensorMapArgument, bind_tensor_map
from .machine.memory import Allocation, GlobalMemory, Region, byte_view
from .machine.scopes import DeclaredVariable
from .program.code import Code

Argument: TypeAlias = Union[np.ndarray, np.generic, TensorMapArgument, "StructArgument", "MultimemArgument"]


@dataclass(frozen=True, eq=False)
class StructArgument:
    """A structure as a kernel's argument: by value or, if the parameter is a pointer, in separate memory.

    at: the part at a byte offset: an array's address, a tensor map, a number, the address of another structure.
    names: names of these parts, by offset, for messages.
    """

    data: bytes
    at: Mapping[int, Argument]
    names: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MultimemArgument:
    """A multimem address as a kernel's argument, a pointer: for arrays of one size, by rank."""

    arrays: tuple[np.ndarray, ...]


class Binder:
    """Writes arguments to parameters, and gives each array one address, however often it is passed.

    Attributes:
        arrays: the passed arrays, device by device, in order; maps: the tensor maps.
    """

    def __init__(
        self,
        code: Code,
        function: Function,
        memory: GlobalMemory,
        names: Mapping[str, str],
        owners: Mapping[int, int],
        several: bool,
    ) -> None:
        self.code, self.function, self.memory, self.several = code, function, memory, several
        self.names, self.owners = names, owners
        self.arrays: list[np.ndarray] = []
        self.maps: list[object] = []
        self._reached: dict[Region, set[int]] = {}
        self._placed: list[tuple[int, int, Allocation]] = []
        self._structures: list[np.ndarray] = []

    def place_own(self, arguments: Sequence[Argument], device: int) -> None:
        """Place the arrays that this device holds, so that messages use its names for them."""
        for parameter, argument in zip(self.code.parameters, arguments, strict=False):
            for name, array in _arrays(argument, self._name(parameter)):
                if self.owners.get(id(array)) == device:
                    self._place(array, name, device)

    @property
    def shared(self) -> list[Region]:
        """The buffers that were passed to several GPUs."""
        return [region for region, devices in self._reached.items() if len(devices) > 1]

    def find(self, array: np.ndarray) -> tuple[Region, int]:
        """The buffer that an array is in, and where it begins there; one that was not passed gets its own."""
        span = byte_view(array)
        low = int(span.__array_interface__["data"][0])
        for start, end, placed in self._placed:
            if start <= low and low + span.size <= end:
                return placed.region, low - start
        placed = self.memory.allocate(array, "an array of copies")
        self._placed.append((low, low + span.size, placed))
        self._reached[placed.region] = set()
        return placed.region, 0

    def _name(self, parameter: DeclaredVariable) -> str:
        return self.names.get(parameter.node.name, parameter.node.name)

    def bind(self, arguments: Sequence[Argument], device: int) -> Region:
        """The parameter bytes of one device."""
        code, function = self.code, self.function
        parameters = Region(np.zeros(max(code.parameter_bytes, 1), np.uint8), "the parameters")
        if len(arguments) != len(code.parameters):
            wanted = ", ".join(parameter.node.name for parameter in code.parameters)
            raise ArgumentError(
                f"{function.name} takes {len(code.parameters)} arguments ({wanted})", got=f"{len(arguments)} arguments"
            )
        for parameter, argument in zip(code.parameters, arguments, strict=True):
            name = self._name(parameter)
            raw = self._bytes(argument, name, device, by_value=bool(parameter.node.dims))
            if raw.size != parameter.size:
                raise ArgumentTypeError(
                    f"argument {name} of {function.name} has the wrong size",
                    expected=f"{parameter.size} bytes ({parameter.node.type} in the text)",
                    got=f"{raw.size} bytes",
                )
            parameters.data[parameter.offset : parameter.offset + parameter.size] = raw
        return parameters

    def _bytes(self, argument: Argument, name: str, device: int, by_value: bool = False) -> np.ndarray:
        """The parameter bytes for an argument. by_value: the structure itself, not its address."""
        if isinstance(argument, TensorMapArgument):
            placed, address = self._place(argument.array, name, device)
            self.arrays.append(argument.array)
            placed.pads_to_16b |= argument.pads_to_16b
            return bind_tensor_map(argument, address, self.maps)
        if isinstance(argument, MultimemArgument):
            return _pointer(self._multimem(argument, name, device))
        if isinstance(argument, StructArgument):
            raw = self._structure(argument, name, device)
            if by_value:
                return raw
            self._structures.append(raw)  # keeps its memory alive
            return _pointer(self._place(raw, name, device)[1])
        if isinstance(argument, np.ndarray) and argument.ndim > 0:
            self.arrays.append(argument)
            return _pointer(self._place(argument, name, device)[1])
        if isinstance(argument, (np.generic, np.ndarray)):
            return np.frombuffer(np.asarray(argument).tobytes(), np.uint8)
        raise ArgumentTypeError(
            f"argument {name} of {self.function.name} is a {type(argument).__name__}",
            expected="a NumPy array (a buffer), a NumPy scalar (by value), a tensor map or a structure",
            hint=f"np.uint32({argument!r})" if isinstance(argument, int) else None,
        )

    def _multimem(self, argument: MultimemArgument, name: str, device: int) -> int:
        sizes = {byte_view(array).size for array in argument.arrays}
        if len(sizes) != 1:
            raise ArgumentError(
                f"the buffers of the multimem address {name} are of different sizes",
                expected="one or more arrays of one size", got=f"{sorted(sizes)} bytes",
            )  # fmt: skip
        self.arrays += argument.arrays
        members = tuple(self._place(array, f"{name}[{at}]", device)[1] for at, array in enumerate(argument.arrays))
        return self.memory.together(members, *sizes).base

    def _structure(self, argument: StructArgument, name: str, device: int) -> np.ndarray:
        raw = np.frombuffer(argument.data, np.uint8).copy()
        for offset, part in argument.at.items():
            inside = self._bytes(part, argument.names.get(offset) or f"{name}+{offset}", device)
            raw[offset : offset + inside.size] = inside
        return raw

    def _place(self, array: np.ndarray, name: str, device: int) -> tuple[Allocation, int]:
        """The allocation of an array, and its address: a view into an already placed array shares its memory."""
        caller, device = device, self.owners.get(id(array), device)
        span = byte_view(array)
        low = int(span.__array_interface__["data"][0])
        high = low + span.size
        for start, end, placed in self._placed:
            if start <= low and high <= end and placed.device == device:
                placed.writable |= array.flags.writeable
                self._reached[placed.region].add(caller)
                return placed, placed.base + low - start
        name = f"{name} of GPU {device}" if self.several else name
        placed = self.memory.allocate(array, name, array.flags.writeable)
        placed.device, self._reached[placed.region] = device, {caller}
        self._placed.append((low, high, placed))
        return placed, placed.base


def _arrays(argument: Argument, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays that an argument refers to, and their names in messages."""
    if isinstance(argument, StructArgument):
        for offset, part in argument.at.items():
            yield from _arrays(part, argument.names.get(offset) or f"{name}+{offset}")
    elif isinstance(argument, MultimemArgument):
        yield from ((name, array) for array in argument.arrays)
    elif isinstance(argument, TensorMapArgument):
        yield name, argument.array
    elif isinstance(argument, np.ndarray):
        yield name, argument


def _pointer(address: int) -> np.ndarray:
    return np.array([address], np.uint64).view(np.uint8)
