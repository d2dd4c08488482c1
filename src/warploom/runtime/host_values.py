"""The arguments of an emulation: arrays as NumPy arrays, their copies, and the device that holds each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..errors import ArgumentError
from .arrays import ArrayView, view
from .bind import Bound, Value
from .devices import owners_of
from .multimem import Multimem
from .struct import Struct
from .tensor_map import TensorMap

Held: TypeAlias = "Sequence[Sequence[Any]]"
"""Arrays by the rank of the GPU that holds them."""
_wrong_device = partial(ArgumentError, code="wrong-device")


@dataclass(frozen=True)
class Values:
    """The emulator's arguments for each device, the device that holds each array, and the arrays, as `Bound.views`."""

    of_each: list[list[Any]]
    owners: dict[int, int]
    hosts: list[list[np.ndarray]]


def all_values(bounds: Sequence[Bound], copy: bool = False, held: Held = ()) -> Values:
    """The arguments of each device. copy: written arrays are copies; held: see `runtime.emulate`."""
    made: dict[tuple[object, ...], np.ndarray] = {}
    values, hosts = [], []
    for bound in bounds:
        mine, arrays = host_values(bound, copy, made)
        values.append(mine)
        hosts.append(arrays)
    if len(bounds) == 1:
        return Values(values, {}, hosts)
    together = [getattr(value, "arrays", ()) for value in values[0]]  # those of multimem addresses
    owners = owners_of([bound.program for bound in bounds], hosts, together)
    spans = [(view(array, "held").span, rank) for rank, arrays in enumerate(held) for array in arrays]
    for bound, arrays in zip(bounds, hosts, strict=True):
        for array, host in zip(bound.views, arrays, strict=True):
            low, high = array.span
            owners |= {id(host): rank for (start, end), rank in spans if start <= low and high <= end}
    return Values(values, owners, hosts)


def host_values(
    bound: Bound, copy: bool, made: dict[tuple[object, ...], np.ndarray]
) -> tuple[list[Any], list[np.ndarray]]:
    """The arguments of one device, and its arrays. An array is one object, however many parameters point to it."""
    from ..emulator.arguments import MultimemArgument, StructArgument
    from ..emulator.engines.tma import TensorMapArgument

    specs = {spec.name: spec for spec in bound.program.arrays}
    named = [(specs.get(name), array) for name, array in zip(bound.names, bound.views, strict=True)]
    written = {id(array.host) for spec, array in named if spec is None or spec.writes}
    padded = {id(array) for spec, array in named if spec is not None and spec.pads_to_16b}
    twins: list[tuple[int, int, np.ndarray]] = []

    def host(array: ArrayView) -> np.ndarray:
        key = (array.pointer, array.shape, array.strides, array.dtype.name)
        if key not in made:
            made[key] = _host(array, copy and id(array.host) in written, twins)
        return made[key]

    for array in sorted(bound.views, key=lambda array: array.span[0] - array.span[1]):
        host(array)  # the longest first: a view into another array becomes a view into its copy

    def convert(value: Value) -> Any:
        if isinstance(value, ArrayView):
            return host(value)
        if isinstance(value, TensorMap):
            return TensorMapArgument(value.spec, host(value.array), id(value.array) in padded)
        if isinstance(value, Multimem):
            return MultimemArgument(tuple(host(array) for array in value.arrays))
        if isinstance(value, Struct):
            parts = {offset: convert(part) for offset, part in value.at.items()}
            return StructArgument(value.whole, parts, value.names)
        return value

    return [convert(value) for value in bound.values], [host(array) for array in bound.views]


def _host(array: ArrayView, copy: bool, twins: list[tuple[int, int, np.ndarray]]) -> np.ndarray:
    """The array in host memory, or a copy. `twins`: first and last address of copied arrays, and the copies."""
    host = array.host
    if host is None:
        raise _wrong_device("the emulator needs arrays in host memory", got=array.describe())
    if host.ndim == 0:
        host = host.reshape(1)
    if not copy:
        return host
    from ..emulator.machine.memory import OVERHANG, room_behind

    low, high = array.span
    for start, end, raw in twins:
        if start <= low and high <= end:
            return np.ndarray(host.shape, host.dtype, raw, low - start, host.strides)
    room = min(room_behind(host), OVERHANG + 1)  # as far as it can matter
    raw = np.empty(high - low + room, np.uint8)  # same strides, so that address arithmetic is as in the original
    twin: np.ndarray = np.ndarray(host.shape, host.dtype, raw, 0, host.strides)
    twin[...] = host
    twins.append((low, high, raw))
    return twin
