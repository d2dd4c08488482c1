"""A launch whose tensors may have other addresses at each call: only addresses and tensor maps are replaced.

    parameters   for each parameter where its bytes are: a word, an encoded tensor map, or the bytes of the first launch
    words        the addresses that the kernel takes as pointers

Both are in one array. A call writes one element for each parameter that moves: the address of its map, or its word.

The driver copies the array before cuLaunchKernelEx returns, so the next call reuses it. Concurrent calls of several
threads each take an array of their own. Maps are cached by address, since a caching allocator returns the same ones.
"""

from __future__ import annotations

import ctypes
from array import array
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


class _Maps(dict[int, int]):
    """The encoded maps of one parameter: their host addresses by the address of the tensor. A missing one is encoded.

    Args:
        spec: what they share.
        offset: bytes from the tensor's first element to what a map describes.
    """

    def __init__(self, spec: TensorMapSpec, offset: int) -> None:
        super().__init__()
        self.spec, self.offset = spec, offset
        self._encoder: Encoder | None = None
        self._encoded: list[Any] = []
        self._before: list[Any] = []  # a launch in another thread may still read the previous generation

    def __missing__(self, address: int) -> int:
        """Encode one. Raises ArgumentError, DriverError."""
        if self._encoder is None:
            self._encoder = Encoder(self.spec)
        encoded = self._encoder(address + self.offset)
        if len(self._encoded) >= _MOST_MAPS:
            self.clear()
            self._before, self._encoded = self._encoded, []
        self._encoded.append(encoded)
        host_address: int = encoded.address
        self[address] = host_address
        return host_address


class MovingLaunch:
    """The launch for tensors at any addresses of the same alignment.

    Args:
        launch: the first one, which supplies everything else.
        patches: the parameters that move.
        count: number of tensors.
        pointers: the tensors' addresses in `launch`, whose encoded maps are then reused.
    """

    def __init__(
        self, launch: PreparedLaunch, patches: Sequence[Patch], count: int, pointers: Sequence[int] = ()
    ) -> None:
        self.launch, self.patches, self._count = launch, patches, count
        words = {(each.tensor, each.offset) for each in patches if each.spec is None}
        self._words = [(len(launch.places) + at, *which) for at, which in enumerate(sorted(words))]
        self._maps = []
        for each in patches:
            if each.spec is not None:
                maps = _Maps(each.spec, each.offset)
                if pointers:
                    maps[pointers[each.tensor]] = launch.place_of(each.parameter)
                self._maps.append((each.parameter, each.tensor, maps))
        self._free: list[tuple[Any, dict[int, Any]]] = []

    def run(self, pointers: Sequence[int], stream: int) -> None:
        """Enqueue it for tensors at these addresses. Raises DriverError if the driver rejects it, ArgumentError for an
        address that a tensor map cannot have."""
        try:
            parameters = self._free.pop()
        except IndexError:
            parameters = self._new_parameters()
        memory, calls = parameters
        for at, tensor, maps in self._maps:
            memory[at] = maps[pointers[tensor]]
        for at, tensor, offset in self._words:
            memory[at] = pointers[tensor] + offset
        call = calls.get(stream)
        if call is None:
            array_of = ctypes.c_uint64 * len(memory)
            call = calls[stream] = self.launch.call_with(ctypes.byref(array_of.from_buffer(memory)), stream)
        status = call()
        if status:
            self.launch.check(status, stream, call)
        self._free.append(parameters)

    def at(self, pointers: Sequence[int]) -> PreparedLaunch:
        """The launch for tensors at these addresses alone."""
        changes = {each.parameter: (pointers[each.tensor] + each.offset).to_bytes(_WORD, "little")
                   for each in self.patches if each.spec is None}  # fmt: skip
        for parameter, tensor, maps in self._maps:
            changes[parameter] = ctypes.string_at(maps[pointers[tensor]], MAP_BYTES)
        return self.launch.with_values(changes)

    def changed(self, changes: Mapping[int, bytes], patches: Sequence[Patch]) -> MovingLaunch:
        """The same launch with other bytes for some parameters, by index, and other specs of maps."""
        return MovingLaunch(self.launch.with_values(changes), patches, self._count)

    def _new_parameters(self) -> tuple[Any, dict[int, Any]]:
        """A new array of parameters and words, and the driver's calls that use it, by stream."""
        memory = array("Q", [*self.launch.places, *[0 for _ in self._words]])
        start, _ = memory.buffer_info()
        words = {(tensor, offset): start + _WORD * at for at, tensor, offset in self._words}
        for each in self.patches:
            if each.spec is None:
                memory[each.parameter] = words[each.tensor, each.offset]
        return memory, {}
