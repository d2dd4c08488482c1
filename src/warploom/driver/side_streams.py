"""Copies in side streams: they start after the caller's stream has reached a fork, and it waits for them at a join.

    caller's stream   ... | fork ............ kernel ............ join | ...
    side stream 0           [copy][copy] ...
    side stream 1           [copy][copy] ...

Copy engines do the copies without multiprocessors, so they continue while a kernel occupies all of these. Fork and join
are events, so a CUDA graph captured from the caller's stream contains the copies. The host does not wait, and nothing
is allocated.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .library import INVALID_CONTEXT, INVALID_HANDLE, Library, load

_NON_BLOCKING, _NO_TIMING = 1, 2
_UNIFIED = 4
"""CU_STREAM_NON_BLOCKING, CU_EVENT_DISABLE_TIMING, CU_MEMORYTYPE_UNIFIED."""
_KEPT, _WORD = 64, 4
"""Most sets of addresses whose driver calls are cached; bytes of a flag."""
Call = Callable[[], int]


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        ("source_x", ctypes.c_size_t), ("source_y", ctypes.c_size_t), ("source_kind", ctypes.c_int),
        ("source_host", ctypes.c_void_p), ("source", ctypes.c_uint64), ("source_array", ctypes.c_void_p),
        ("source_pitch", ctypes.c_size_t),
        ("target_x", ctypes.c_size_t), ("target_y", ctypes.c_size_t), ("target_kind", ctypes.c_int),
        ("target_host", ctypes.c_void_p), ("target", ctypes.c_uint64), ("target_array", ctypes.c_void_p),
        ("target_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
    ]  # fmt: skip


@dataclass(frozen=True)
class CopyOfRows:
    """A copy of rows of bytes, with `pitch` bytes from row to row in source and target.

    source: an address; if `of` is given, an offset in bytes from the address with that index in each call.
    """

    target: int
    source: int
    rows: int
    bytes: int
    pitch: int
    of: int | None = None


@dataclass(frozen=True)
class SetFlag:
    """A word at address `target` that becomes 1 when the copies before it in its stream are complete, for all GPUs.

    The stream itself writes it, which costs a fraction of a copy of four bytes. Where a driver has no such writes, and
    in the capture of a graph, it is copied from the word at address `one`.
    """

    target: int
    one: int


class SideStreams:
    """Side streams of one GPU and the copies in each; the calling thread must have a context of that GPU."""

    def __init__(
        self, device: int, copies: Sequence[Sequence[CopyOfRows | SetFlag]], library: Library | None = None
    ) -> None:
        self.device, self.copies = device, [list(each) for each in copies if each]
        self.library = library or load()
        native = self.library.native
        self._writes = bool(self.library.attribute(device, "CAN_USE_64_BIT_STREAM_MEM_OPS"))
        with self.library.activated(device):
            self._streams = [self._made(native.cuStreamCreateWithPriority, _NON_BLOCKING, -1) for _ in self.copies]
            self._events = [self._made(native.cuEventCreate, _NO_TIMING) for _ in range(1 + len(self.copies))]
        self._calls: dict[tuple[int, tuple[int, ...], bool], tuple[list[Call], list[Call]]] = {}

    def begin(self, stream: int, addresses: Sequence[int]) -> None:
        """Enqueue all copies after the work in a raw stream; `addresses`: the addresses that `CopyOfRows.of` indexes.

        Raises DriverError, like `end`.
        """
        writes = self._writes and not self.library.is_capturing(stream)
        for call in self._of(stream, tuple(addresses), writes)[0]:
            if status := call():
                self._again(call, status)

    def end(self, stream: int, addresses: Sequence[int]) -> None:
        """Make the stream wait for the copies of `begin`."""
        for call in self._of(stream, tuple(addresses), self._writes)[1]:
            if status := call():
                self._again(call, status)

    # -- the driver's calls ------------------------------------------------------------------------------------------

    def _of(self, stream: int, addresses: tuple[int, ...], writes: bool) -> tuple[list[Call], list[Call]]:
        known = self._calls.get((stream, addresses, writes))
        if known is None:
            if len(self._calls) >= _KEPT:
                self._calls.clear()
            known = self._calls[stream, addresses, writes] = self._laid_out(stream, addresses, writes)
        return known

    def _laid_out(self, stream: int, addresses: tuple[int, ...], writes: bool) -> tuple[list[Call], list[Call]]:
        """The driver calls of `begin` and `end`, with their ctypes arguments; writes: the streams write flags."""
        native, main = self.library.native, _handle(stream)
        fork, *joins = map(_handle, self._events)
        begin: list[Call] = [partial(native.cuEventRecord, fork, main)]
        sides = [_handle(side) for side in self._streams]
        begin += [partial(native.cuStreamWaitEvent, side, fork, 0) for side in sides]
        longest = max(map(len, self.copies), default=0)
        for at in range(longest):
            for side, copies in zip(sides, self.copies, strict=True):
                if at < len(copies):
                    begin.append(self._copy(copies[at], addresses, side, writes))
        end: list[Call] = []
        for side, join in zip(sides, joins, strict=True):
            begin.append(partial(native.cuEventRecord, join, side))
            end.append(partial(native.cuStreamWaitEvent, main, join, 0))
        return begin, end

    def _copy(self, copy: CopyOfRows | SetFlag, addresses: tuple[int, ...], side: Any, writes: bool) -> Call:
        if isinstance(copy, SetFlag) and not writes:
            copy = CopyOfRows(copy.target, copy.one, 1, _WORD, _WORD)
        if isinstance(copy, SetFlag):
            words = ctypes.c_uint64(copy.target), ctypes.c_uint32(1), ctypes.c_uint(0)
            return partial(self.library.native.cuStreamWriteValue32_v2, side, *words)
        source = copy.source + (addresses[copy.of] if copy.of is not None else 0)
        native = self.library.native
        if copy.rows == 1 or copy.bytes == copy.pitch:
            size = ctypes.c_size_t(copy.rows * copy.bytes)
            return partial(native.cuMemcpyAsync, ctypes.c_uint64(copy.target), ctypes.c_uint64(source), size, side)
        rows = Copy2D(
            source_kind=_UNIFIED, source=source, source_pitch=copy.pitch, target_kind=_UNIFIED, target=copy.target,
            target_pitch=copy.pitch, width=copy.bytes, height=copy.rows,
        )  # fmt: skip
        return partial(native.cuMemcpy2DAsync_v2, ctypes.byref(rows), side)

    def _again(self, call: Any, status: int) -> None:
        """Handle a failed call: if the thread has no context or another GPU's, repeat it in the right one."""
        if status in (INVALID_CONTEXT, INVALID_HANDLE) and self.library.current_context()[1] != self.device:
            with self.library.activated(self.device):
                status = call()
        if status:
            raise self.library.error(status, call.func.__name__, "copies next to a kernel were not enqueued")

    def _made(self, function: Any, *arguments: int) -> int:
        handle = ctypes.c_void_p()
        status = function(ctypes.byref(handle), *map(ctypes.c_int, arguments))
        if status:
            raise self.library.error(status, function.__name__, "making streams for copies")
        return handle.value or 0


def _handle(value: int) -> Any:
    return ctypes.c_void_p(value or None)
