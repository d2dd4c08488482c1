"""A launch whose tensors may be elsewhere at each call: only addresses and tensor maps are replaced.

    words        the tensors' addresses
    parameters   for each parameter where its bytes are: a word, an encoded tensor map, or the bytes of the first launch

Both are in one piece of memory; what changes is at its beginning and is written at once.

The driver copies all of this before cuLaunchKernelEx returns, so a call uses it again. Calls in several threads each
take their own. Maps are kept by address, since a caching allocator returns the same ones.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..isa.tensor_map import MAP_BYTES, TensorMapSpec
from .launch import PreparedLaunch
from .tensor_map import Encoder

_WORD = 8
_MOST_MAPS = 1024
"""Encoded maps of one parameter, in each of two generations."""


@dataclass(frozen=True)
class Patch:
    """A parameter that depends on an address.

    Attributes:
        parameter: its index.
        tensor: the index of the call's tensor; outputs come last.
        offset: bytes from the tensor's first element.
        spec: for a tensor map; None for a pointer.
    """

    parameter: int
    tensor: int
    offset: int
    spec: TensorMapSpec | None


class _Maps:
    """The encoded maps of one parameter: where each is in host memory, by the address that it describes.

    Args:
        spec: what they share.
        places: those that exist.
    """

    def __init__(self, spec: TensorMapSpec, places: dict[int, int]) -> None:
        self.spec = spec
        self._encoder: Encoder | None = None
        self.places = places
        self._rooms: list[Any] = []
        self._before: list[Any] = []  # a launch in another thread may still read the previous generation

    def encode(self, address: int) -> int:
        """Encode one. Raises ArgumentError, DriverError."""
        if self._encoder is None:
            self._encoder = Encoder(self.spec)
        room = self._encoder(address)
        if len(self._rooms) >= _MOST_MAPS:
            self.places, self._before, self._rooms = {}, self._rooms, []
        self._rooms.append(room)
        place = self.places[address] = room.place
        return place


class MovingLaunch:
    """The launch for tensors at any addresses of the same alignment.

    Args:
        launch: the first one, which supplies everything else.
        patches: the parameters that move.
        count: number of tensors.
        pointers: the addresses of its tensors, if its maps are theirs.
    """

    def __init__(
        self, launch: PreparedLaunch, patches: Sequence[Patch], count: int, pointers: Sequence[int] = ()
    ) -> None:
        self.launch, self.patches, self._count = launch, patches, count
        self._shifted = tuple({(each.tensor, each.offset) for each in patches if each.offset and each.spec is None})
        self._words = {(each, 0): each for each in range(count)}
        self._words |= {which: count + at for at, which in enumerate(self._shifted)}
        self._maps = []
        for each in patches:
            if each.spec is not None:
                first = {pointers[each.tensor] + each.offset: launch.place_of(each.parameter)} if pointers else {}
                maps = _Maps(each.spec, first)
                self._maps.append((each.parameter, each.tensor, each.offset, maps))
        self._written = max((each[0] for each in self._maps), default=-1) + 1  # parameters, up to the last map
        self._write = struct.Struct(f"{len(self._words) + self._written}Q").pack_into
        self._free: list[tuple[Any, list[int], dict[int, Any]]] = []

    def __call__(self, pointers: Sequence[int], stream: int) -> None:
        """Enqueue it for tensors at these addresses. Raises DriverError if the driver rejects it, ArgumentError for an
        address that a tensor map cannot have."""
        try:
            room = self._free.pop()
        except IndexError:
            room = self._room()
        memory, places, calls = room
        if self._shifted:
            pointers = (*pointers, *[pointers[tensor] + offset for tensor, offset in self._shifted])
        for parameter, tensor, offset, maps in self._maps:
            address = pointers[tensor] + offset
            place = maps.places.get(address)
            places[parameter] = maps.encode(address) if place is None else place
        self._write(memory, 0, *pointers, *places)
        call = calls.get(stream)
        if call is None:
            call = calls[stream] = self.launch.call_with(ctypes.byref(memory, _WORD * len(self._words)), stream)
        status = call()
        if status:
            self.launch.check(status, stream, call)
        self._free.append(room)

    def at(self, pointers: Sequence[int]) -> PreparedLaunch:
        """The launch for tensors at these addresses alone."""
        changes = {each.parameter: (pointers[each.tensor] + each.offset).to_bytes(_WORD, "little")
                   for each in self.patches if each.spec is None}  # fmt: skip
        for parameter, tensor, offset, maps in self._maps:
            address = pointers[tensor] + offset
            changes[parameter] = ctypes.string_at(maps.places.get(address) or maps.encode(address), MAP_BYTES)
        return self.launch.with_values(changes)

    def changed(self, changes: Mapping[int, bytes], patches: Sequence[Patch]) -> MovingLaunch:
        """The same launch with other bytes for some parameters, by index, and other specs of maps."""
        return MovingLaunch(self.launch.with_values(changes), patches, self._count)

    def _room(self) -> tuple[Any, list[int], dict[int, Any]]:
        """New memory for the words and the parameters, the first of these, and the driver's calls with it by stream."""
        words, places = len(self._words), self.launch.places
        memory = (ctypes.c_uint64 * (words + len(places)))()
        start = ctypes.addressof(memory)
        for each in self.patches:
            if each.spec is None:
                places[each.parameter] = start + _WORD * self._words[each.tensor, each.offset]
        memory[words:] = [*places]
        return memory, places[: self._written], {}
