"""Memory that the library owns: split-K workspaces, and counters that are zero between calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from ..isa.dtypes import DType, f32, u32
from ..runtime import on_gpu
from ..runtime.arrays import ArrayView, view
from ..runtime.torch_graph_trees import outside_of_trees, stream_of_trees
from .views import new_array, to_array

NAMES = ("workspace", "counters")
"""Kernel names of such arrays."""


class Workspaces:
    """The buffers of a process. Calls in different streams never share one, nor do a captured graph and other calls.

    A buffer that has become too small is kept along with the larger one, because remembered launches still write to
    it. A captured graph gets its own buffers, which the graph zeroes each time it runs. Graphs of torch.compile, which
    run in one stream, share theirs, outside of torch's pool (`torch_graph_trees`).
    """

    def __init__(self) -> None:
        self._held: dict[Any, ArrayView] = {}
        self._outgrown: list[ArrayView] = []
        self._of_graph: dict[Any, tuple[int, ArrayView]] = {}
        self._lock = threading.Lock()

    def get(
        self,
        key: Any,
        shape: tuple[int, ...],
        dtype: DType,
        model: ArrayView,
        settle: Callable[[], None] = lambda: None,
        make: Callable[[tuple[int, ...]], ArrayView] | None = None,
    ) -> ArrayView:
        """A buffer of at least that shape, zeroed if new. settle: waits until a new buffer has been zeroed. make: makes
        one; by default next to `model`."""
        with self._lock:
            held = self._held.get(key)
            if held is None or not _covers(held, shape):
                if held is not None:
                    self._outgrown.append(held)
                    shape = (max(shape[0], 2 * held.shape[0]), *shape[1:])  # larger than all outgrown ones together
                held = self._held[key] = _zeros(shape, dtype, model) if make is None else make(shape)
                settle()
            return held

    def of_graph(
        self, key: Any, graph: int, shape: tuple[int, ...], dtype: DType, model: ArrayView,
        settle: Callable[[], None], *, pooled: bool,
    ) -> ArrayView:  # fmt: skip
        """Like `get`, for a graph being captured. pooled: new arrays come from memory that the graph keeps."""
        with self._lock:
            made_for, held = self._of_graph.get(key, (0, None))
            if held is None or made_for != graph or not _covers(held, shape):
                if held is not None and not pooled:
                    self._outgrown.append(held)
                held = _zeros(shape, dtype, model)
                settle()
                self._of_graph[key] = graph, held
            return held


def _covers(held: ArrayView, shape: tuple[int, ...]) -> bool:
    return all(have >= need for have, need in zip(held.shape, shape, strict=True))


def of_call(shape: tuple[int, ...], dtype: DType, model: ArrayView) -> ArrayView:
    """A buffer next to `model` that nobody keeps, not zeroed. Its memory is used again in the order of the stream. The
    pool of a graph of `torch.compile` may hold nothing that outlives a call."""
    return replace(view(new_array(model, shape, dtype), "workspace"), writable=True)


def _zeros(shape: tuple[int, ...], dtype: DType, model: ArrayView) -> ArrayView:
    made = of_call(shape, dtype, model)
    fill(made, number=0)
    return made


def _zeros_outside(dtype: DType, model: ArrayView, shape: tuple[int, ...]) -> ArrayView:
    return outside_of_trees(model.index, lambda: _zeros(shape, dtype, model))


@lru_cache(maxsize=1)
def workspaces() -> Workspaces:
    """The process's buffers."""
    return Workspaces()


def workspace(name: str, needed: tuple[tuple[int, int], int], model: ArrayView, stream: Any) -> ArrayView:
    """The workspace or the counters of a launch next to `model`. needed: the configuration's `workspace(m, n, sms)`."""
    sums, counters = needed
    shape, dtype = (sums, f32) if name == "workspace" else ((counters,), u32)
    return of_stream(name, shape, dtype, model, stream)


def of_stream(name: str, shape: tuple[int, ...], dtype: DType, model: ArrayView, stream: Any = None) -> ArrayView:
    """A buffer next to `model` for launches in a stream (None: the caller's current one), zeroed if new."""
    if model.device == "cpu":  # there are no streams, and an emulation may stop half-way: nothing is shared
        return Workspaces().get(name, shape, dtype, model)
    from ..driver import library

    driver, current = library.load(), on_gpu.current_stream([model], model.index)
    handle = current if stream is None else on_gpu.stream_handle(stream)
    key = name, shape[1:], model.framework, model.index, handle

    def settle() -> None:
        if handle != current and not driver.captured_graph(current):
            driver.synchronize(current)  # the stream in which arrays are zeroed

    if model.framework == "torch" and handle == current == stream_of_trees(model.index):
        make = partial(_zeros_outside, dtype, model)
        return workspaces().get(key, shape, dtype, model, make=make)
    graph = driver.captured_graph(handle)
    if not graph:
        return workspaces().get(key, shape, dtype, model, settle)
    pooled = model.framework == "torch" and handle == current
    return workspaces().of_graph(key, graph, shape, dtype, model, settle, pooled=pooled)


def fill(array: ArrayView, value: ArrayView | None = None, number: float = 1.0) -> None:
    """Set all elements to the one element of `value`, or to a number."""
    if array.host is not None:
        array.host[...] = number if value is None or value.host is None else value.host
    else:
        to_array(array)[...] = number if value is None else to_array(value)
