"""The handlers that XLA calls, for both platforms, and their remembered launches."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ...runtime.arrays import ArrayView, contiguous_strides
from ...runtime.launch_cache import bounded
from ...runtime.launch_template import Launched
from ..xla_ffi import Call, Memory, handler

if TYPE_CHECKING:
    from ...driver.moving_launch import MovingLaunch

ALIGNED = 16
"""Rows start at multiples of this many bytes."""


def seen(
    memory: Memory, name: str, device: str = "cuda", index: int = 0, writable: bool = False, stream: int | None = None
) -> ArrayView:
    """XLA's memory as a view."""
    host = _host(memory) if device == "cpu" else None
    strides = contiguous_strides(memory.shape, memory.dtype.bytes)
    return ArrayView(
        memory.pointer, memory.shape, strides, memory.dtype, device, index, writable, "xla", None, host, stream
    )  # fmt: skip


def varying(values: Any, like: Any = None) -> Any:
    """The arrays of a tree, said to differ along every axis of a `shard_map` along which any of them does.

    like: arrays whose axes count, too: a call of XLA's does not say of its results what its arguments vary along.
    """
    axes = frozenset[str]().union(*(_axes(each) for each in jax.tree.leaves((values, like))))
    return jax.tree.map(lambda each: _cast(each, axes - _axes(each)), values) if axes else values


def _axes(array: Any) -> frozenset[str]:
    kind = jax.typeof(array) if hasattr(jax, "typeof") else None  # of versions without it nothing varies
    found = getattr(kind, "manual_axis_type", None)
    axes: frozenset[str] = getattr(kind, "vma", frozenset()) if found is None else found.varying
    return axes


def _cast(array: Any, axes: frozenset[str]) -> Any:
    if not axes:
        return array
    pcast = getattr(jax.lax, "pcast", None)
    return jax.lax.pvary(array, tuple(axes)) if pcast is None else pcast(array, tuple(axes), to="varying")


def _host(memory: Memory) -> np.ndarray:
    size = int(np.prod(memory.shape)) * memory.dtype.bytes
    if not size:
        return np.empty(memory.shape, memory.dtype.numpy)
    raw: Any = (ctypes.c_uint8 * size).from_address(memory.pointer)
    return np.frombuffer(raw, dtype=memory.dtype.numpy).reshape(memory.shape)


class Handlers:
    """The handlers of one target. A subclass defines what a call computes.

    Args:
        target: the name under which XLA knows it.
    """

    def __init__(self, target: str) -> None:
        self._kept: list[Any] = []
        self._launches: dict[Any, tuple[MovingLaunch, ...]] = {}
        self._lock = threading.Lock()
        for platform, function in (("cpu", self.on_cpu), ("CUDA", self.on_gpu)):
            capsule, alive = handler(function)
            self._kept += [capsule, alive]
            jax.ffi.register_ffi_target(target, capsule, platform=platform)

    def compute(self, call: Call, device: str, index: int, stream: int | None) -> Sequence[Launched] | None:
        """Compute a call. Returns its launches if they alone repeat it."""
        raise NotImplementedError

    def names(self, call: Call) -> tuple[str, ...]:
        """The launches' names of its arguments and results, in their order."""
        raise NotImplementedError

    def on_cpu(self, call: Call) -> None:
        """One call in the emulator."""
        self.compute(call, "cpu", 0, None)

    def on_gpu(self, call: Call) -> None:
        """One call on XLA's stream. A call of a known kind only moves its launch to the new addresses."""
        stream = call.stream()
        memories = (*call.arguments, *call.results)
        pointers = tuple(memory.pointer for memory in memories)
        kind = call.text["call"], tuple((each.dtype.name, each.shape, each.pointer % ALIGNED) for each in memories)
        device = _device(pointers)
        launches = self._launches.get((kind, device))
        if launches is None:
            self._first(call, kind, device, pointers, stream)
            return
        for launch in launches:
            launch.run(pointers, stream)

    def _first(self, call: Call, kind: Any, device: int, pointers: tuple[int, ...], stream: int) -> None:
        """Run a call of a new kind, and remember its launches if they alone repeat it."""
        launched = self.compute(call, "cuda", device, stream)
        if launched and all(name is not None for each in launched for name in each.arrays):
            order = {name: at for at, name in enumerate(self.names(call))}
            with self._lock:
                moving = tuple(each.moving(order, pointers) for each in launched)
                bounded(self._launches)[kind, device] = moving


def _device(pointers: tuple[int, ...]) -> int:
    from ...driver import library

    return library.load().device_of_pointer(next(filter(None, pointers)))
