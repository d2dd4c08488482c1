"""A prepared launch: everything the driver needs is laid out once, and enqueued repeatedly.

cuLaunchKernelEx is called in libcuda with C structures that are built once: by enqueue.c, or by ctypes where that was
not compiled. A launch never changes after it was built, except that its table of streams grows, so threads and streams
may share it. It neither allocates GPU memory nor waits, so it may be captured.

The driver takes most of the time of a call. On an H200 its share depends neither on the number and size of the
parameters (tensor maps too), nor on how they are passed, shared memory, the cluster or the stream; the attribute for
dependent launch makes it shorter. A graph of the one kernel would be shorter still, but launches do not overlap across
graphs: short kernels in a backlog would take the GPU longer than that saves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import DriverError
from .enqueue import NotCompiledError, compiled
from .library import INVALID_CONTEXT, INVALID_HANDLE, Library, load
from .module import LoadedKernel

_ALIGN = 64
_WORD = 8
"""Alignment of a parameter's bytes in host memory: of tensor maps and structures, and of the others."""
_CLUSTER_DIMENSION = 4
_PROGRAMMATIC_STREAM_SERIALIZATION = 6


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: an id and a 64-byte union, of which three 32-bit words are used here."""

    _fields_ = [
        ("id", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("value", ctypes.c_uint32 * 16),
    ]


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint32),
    ]


class PreparedLaunch:
    """One launch: a loaded kernel, its shape, and its parameters' bytes, which lie together.

    Args:
        values: the bytes of each parameter, in order.
        describe: the arguments in words, for an error.
        configs: those of a launch of the same shape, by stream, which the driver only reads.
    """

    __slots__ = (
        "_call",
        "_configs",
        "_parameters",
        "_places",
        "_room",
        "block",
        "calls",
        "cluster",
        "describe",
        "dynamic_smem",
        "grid",
        "kernel",
        "library",
        "pdl",
    )

    def __init__(
        self,
        kernel: LoadedKernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        cluster: tuple[int, int, int],
        dynamic_smem: int,
        values: Sequence[bytes],
        *,
        pdl: bool = False,
        describe: str = "",
        library: Library | None = None,
        configs: dict[int, Any] | None = None,
    ) -> None:
        self.kernel, self.grid, self.block, self.cluster = kernel, grid, block, cluster
        self.dynamic_smem, self.pdl, self.describe = dynamic_smem, pdl, describe
        self.library = library or load()
        self._configs: dict[int, Any] = {} if configs is None else configs
        starts, end = [], 0
        for value in values:
            end += -end % (_ALIGN if len(value) >= _ALIGN else _WORD)
            starts.append(end)
            end += len(value)
        self._room = ctypes.create_string_buffer(end + _ALIGN)
        first = ctypes.addressof(self._room)
        first += -first % _ALIGN
        self._places = tuple((first + start, len(value)) for start, value in zip(starts, values, strict=True))
        for (place, size), value in zip(self._places, values, strict=True):
            ctypes.memmove(place, value, size)
        self._parameters = (ctypes.c_void_p * max(len(values), 1))(*(place for place, _ in self._places))
        self.calls: dict[int, Callable[[], Any]] = {}
        self._call = self.library.native.cuLaunchKernelEx

    def __call__(self, stream: int) -> None:
        """Enqueue it on a raw stream. Raises DriverError, with CUDA's error name, if the driver rejects it."""
        call = self.calls.get(stream)
        status = call() if call is not None else self._ready(stream)()
        if status:
            self.check(status, stream)

    def with_values(self, changes: Mapping[int, bytes]) -> PreparedLaunch:
        """The same launch with other bytes for some parameters, by index."""
        values = [changes.get(number, value) for number, value in enumerate(self.values)]
        return PreparedLaunch(
            self.kernel, self.grid, self.block, self.cluster, self.dynamic_smem, values, pdl=self.pdl,
            describe=self.describe, library=self.library, configs=self._configs,
        )  # fmt: skip

    def _ready(self, stream: int) -> Callable[[], Any]:
        """The driver's call with all its arguments, cached for this stream."""
        return self.calls.setdefault(stream, self.call_with(ctypes.byref(self._parameters), stream))

    def call_with(self, parameters: Any, stream: int) -> Callable[[], int]:
        """The driver's call on a raw stream with other parameters: ctypes' reference to where their bytes are."""
        config, made = self.config(stream), compiled()
        if not isinstance(made, NotCompiledError):
            function = ctypes.cast(self._call, ctypes.c_void_p).value or 0
            places = ctypes.addressof(config._obj), int(self.kernel.function), ctypes.addressof(parameters._obj)
            return made(function, *places, (config, parameters))
        # in ctypes' own types: it would convert anything else at each call, which costs more than the call
        kernel = ctypes.c_void_p.from_param(self.kernel.function)
        return partial(self._call, config, kernel, parameters, None)

    @property
    def values(self) -> list[bytes]:
        """The bytes of each parameter."""
        return [ctypes.string_at(*place) for place in self._places]

    def place_of(self, parameter: int) -> int:
        """Where the bytes of a parameter are in host memory."""
        return self._places[parameter][0]

    @property
    def places(self) -> list[int]:
        """Where the bytes of each parameter are, as long as this launch lives."""
        return [place for place, _ in self._places]

    def config(self, stream: int) -> Any:
        """A pointer to the launch as the driver takes it, for ctypes; one for all launches of this shape."""
        known = self._configs.get(stream)
        return known if known is not None else self._configs.setdefault(stream, self._config(stream))

    def _config(self, stream: int) -> Any:
        attributes = self._attributes()
        config = LaunchConfig(
            (ctypes.c_uint32 * 3)(*self.grid),
            (ctypes.c_uint32 * 3)(*self.block),
            self.dynamic_smem,
            stream or None,
            ctypes.cast(attributes, ctypes.POINTER(LaunchAttribute)),
            len(attributes),
        )
        return ctypes.byref(config)

    def _attributes(self) -> ctypes.Array[LaunchAttribute]:
        wanted: list[tuple[int, tuple[int, ...]]] = []
        if self.cluster != (1, 1, 1):
            wanted.append((_CLUSTER_DIMENSION, self.cluster))
        if self.pdl:
            wanted.append((_PROGRAMMATIC_STREAM_SERIALIZATION, (1,)))
        attributes = (LaunchAttribute * len(wanted))()
        for attribute, (number, words) in zip(attributes, wanted, strict=True):
            attribute.id = number
            for at, word in enumerate(words):
                attribute.value[at] = word
        return attributes

    def check(self, status: int, stream: int, call: Callable[[], int] | None = None) -> None:
        """Raise DriverError if the driver rejected a call on this stream. status: its return value; call: to retry it,
        the prepared one of this launch by default."""
        if status == 0:
            return
        library, kernel = self.library, self.kernel
        if status in (INVALID_CONTEXT, INVALID_HANDLE) and library.current_context()[0] != kernel.context:
            # this thread has no context yet, or another GPU's: nothing was enqueued, so retry in the kernel's own
            with library.activated(kernel.device):
                status = (call or self.calls[stream])()
            if status == 0:
                return
        raise self._error(status, stream)

    def _error(self, status: int, stream: int) -> DriverError:
        shape = f"grid {self.grid}, block {self.block}, cluster {self.cluster}, {self.dynamic_smem} bytes of smem"
        used = self.kernel.resources
        return self.library.error(
            status,
            "cuLaunchKernelEx",
            f"kernel `{self.kernel.entry}` was not launched",
            got=f"{shape}, {used.registers} registers per thread, stream {stream:#x}"
            + (f"; arguments {self.describe}" if self.describe else ""),
        )
