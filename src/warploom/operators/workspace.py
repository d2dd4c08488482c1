"""Memory that the library owns: what split-K kernels add up in, and counters that are zero between calls."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..isa.dtypes import DType, f32, u32
from ..runtime import on_gpu
from ..runtime.arrays import ArrayView, view
from .views import new_array, to_array

NAMES = ("workspace", "counters")
"""What kernels call such arrays."""


class Workspaces:
    """The buffers of a process. Calls in different streams never share one."""

    def __init__(self) -> None:
        self._held: dict[Any, ArrayView] = {}
        self._lock = threading.Lock()

    def get(self, key: Any, shape: tuple[int, ...], dtype: DType, model: ArrayView) -> ArrayView:
        """A buffer of at least that shape, zeros when it is new."""
        with self._lock:
            held = self._held.get(key)
            if held is None or any(have < need for have, need in zip(held.shape, shape, strict=True)):
                held = replace(view(new_array(model, shape, dtype), "workspace"), writable=True)
                fill(held, number=0)
                self._held[key] = held
            return held


@lru_cache(maxsize=1)
def workspaces() -> Workspaces:
    """The process's buffers."""
    return Workspaces()


def workspace(name: str, needed: tuple[tuple[int, int], int], model: ArrayView, stream: Any) -> ArrayView:
    """The workspace or the counters of a launch next to `model`. needed: the configuration's `workspace(m, n, sms)`."""
    sums, counters = needed
    shape, dtype = (sums, f32) if name == "workspace" else ((counters,), u32)
    if model.device == "cpu":  # its threads have no streams, and an emulation may end half-way: nothing is shared
        return Workspaces().get(name, shape, dtype, model)
    handle = on_gpu.stream_handle(stream) if stream is not None else on_gpu.current_stream([model], model.index)
    return workspaces().get((name, shape[1:], model.device, model.index, handle), shape, dtype, model)


def fill(array: ArrayView, value: ArrayView | None = None, number: float = 1.0) -> None:
    """Set all elements to the one element of `value`, or to a number."""
    if array.host is not None:
        array.host[...] = number if value is None or value.host is None else value.host
    else:
        to_array(array)[...] = number if value is None else to_array(value)
