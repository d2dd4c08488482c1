"""Addresses and bytes: global allocations, windows of the generic address space, and checked access by lanes.

The emulated address space (PTX ISA 5.1; the numbers are ours, nothing may depend on them):

    0x7F00_0000_0000 …   global allocations, 512-byte aligned, with gaps of at least 64 KiB between them
    0x7E00_0000_0000     shared window: + (CTA rank in its cluster << 24) + offset
    0x7D00_0000_0000     local window: + offset in the thread's own local memory
    0x7C00_0000_0000     parameter window: + offset in the kernel's parameters
    0x7B00_0000_0000 …   multimem addresses: each refers to one location in several buffers

A shared address is 32 bits, (rank << 24) | offset. `shared::cta` addresses are those of the CTA's own rank.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import numpy as np

GLOBAL_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
PARAM_WINDOW = 0x7C00_0000_0000
MULTIMEM_BASE = 0x7B00_0000_0000
WINDOW_SIZE = 1 << 32
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
OVERHANG = 15
"""Maximum bytes that a tensor store writes past the end of a row (`boxes`)."""
_GUARD = 64 * 1024
_ALIGN = 512


class Region:
    """Bytes that can be viewed as elements of any size."""

    def __init__(self, data: np.ndarray, name: str) -> None:
        self.data = data
        self.name = name
        self.size = int(data.size)
        self._views: dict[np.dtype, np.ndarray] = {}

    def as_type(self, dtype: np.dtype) -> np.ndarray:
        """The bytes as an array of `dtype`; a tail too short for one element is omitted."""
        view = self._views.get(dtype)
        if view is None:
            whole = self.size // dtype.itemsize * dtype.itemsize
            view = self.data[:whole].view(dtype)
            self._views[dtype] = view
        return view


@dataclass
class Allocation:
    """A buffer in global memory.

    Attributes:
        region: what the array spans.
        room: bytes after it that belong to the array of which it is a view. They are not addressable, but a tensor
        store
            may write the first few (`boxes`).
        pads_to_16b: True if the caller says that nothing else uses the memory after its rows, up to a multiple of 16
        bytes.
        device: the GPU whose memory holds it.
    """

    base: int
    region: Region
    writable: bool = True
    room: int = 0
    pads_to_16b: bool = False
    device: int = 0

    @property
    def end(self) -> int:
        return self.base + self.region.size

    @property
    def bytes(self) -> np.ndarray:
        """The region's bytes, and those of `room` that a tensor store can write."""
        length = self.region.size + min(self.room, OVERHANG)
        return np.lib.stride_tricks.as_strided(self.region.data, (length,), (1,))


@dataclass(frozen=True)
class Multimem:
    """Addresses that each refer to one location in several buffers. members: addresses of the buffers' first bytes."""

    base: int
    size: int
    members: tuple[int, ...]


@dataclass
class GlobalMemory:
    """All global buffers of a launch, by address, and their multimem addresses."""

    allocations: list[Allocation] = field(default_factory=list)
    multimems: list[Multimem] = field(default_factory=list)
    _bases: list[int] = field(default_factory=list)
    _next: int = GLOBAL_BASE

    def allocate(self, data: np.ndarray, name: str, writable: bool = True) -> Allocation:
        """Give a buffer (any array whose bytes are contiguous in memory, strided views by their span) an address."""
        allocation = Allocation(self._next, Region(byte_view(data), name), writable, room_behind(data))
        self.allocations.append(allocation)
        self._bases.append(allocation.base)
        span = allocation.region.size + _GUARD
        self._next += (span + _ALIGN - 1) // _ALIGN * _ALIGN
        return allocation

    def give_back(self, allocation: Allocation) -> None:
        """Free a buffer; its addresses are not reused."""
        at = self._bases.index(allocation.base)
        del self.allocations[at], self._bases[at]

    def find(self, address: int) -> Allocation | None:
        """The buffer that contains an address, or None."""
        at = bisect.bisect_right(self._bases, address) - 1
        if at < 0 or address >= self.allocations[at].end:
            return None
        return self.allocations[at]

    def together(self, members: tuple[int, ...], size: int) -> Multimem:
        """The multimem addresses for these locations of `size` bytes; equal for equal locations."""
        for found in self.multimems:
            if (found.members, found.size) == (members, size):
                return found
        last = self.multimems[-1] if self.multimems else Multimem(MULTIMEM_BASE, 0, ())
        base = last.base + (last.size + _GUARD + _ALIGN - 1) // _ALIGN * _ALIGN
        self.multimems.append(Multimem(base, size, members))
        return self.multimems[-1]

    def multimem(self, address: int) -> Multimem | None:
        """The buffers that a multimem address refers to, or None for any other address."""
        return next((found for found in self.multimems if found.base <= address < found.base + found.size), None)

    def nearest(self, address: int) -> Allocation | None:
        """The last buffer that begins before an address, for messages."""
        at = bisect.bisect_right(self._bases, address) - 1
        return self.allocations[at] if at >= 0 else None


def byte_view(array: np.ndarray) -> np.ndarray:
    """The bytes an array spans in memory, (n,) uint8, sharing memory with it."""
    if array.size == 0:
        return np.empty(0, np.uint8)
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8)
    low = high = 0
    for length, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (length - 1) * stride
        else:
            high += (length - 1) * stride
    if low:
        raise ValueError("an array with negative strides has no address of its own")
    span = high + array.itemsize
    return np.lib.stride_tricks.as_strided(
        array.view(np.uint8) if array.ndim == 0 else _first_bytes(array), (span,), (1,)
    )


def _first_bytes(array: np.ndarray) -> np.ndarray:
    """A uint8 array that starts where `array` starts and keeps it alive; only its address is used."""
    first = array[(slice(0, 1),) * array.ndim].view(f"V{array.itemsize}")  # as_strided lacks some float types
    return np.lib.stride_tricks.as_strided(first, (1,), (array.itemsize,)).view(np.uint8)


def room_behind(array: np.ndarray) -> int:
    """Bytes after an array's last element that belong to its base: an array, or a tensor's storage."""
    if array.size == 0:
        return 0
    root: np.ndarray = array
    while True:
        base = getattr(root, "base", None)
        held = base if isinstance(base, np.ndarray) else getattr(base, "base", None)  # as_strided inserts an object
        if not isinstance(held, np.ndarray):
            break
        root = held
    end = _behind(root)
    storage = getattr(root.base, "untyped_storage", None)  # of a CPU tensor of PyTorch
    if storage is not None:
        end = max(end, storage().data_ptr() + storage().nbytes())
    return max(end - _behind(array), 0)


def _behind(array: np.ndarray) -> int:
    """The address after an array's last byte."""
    reach = sum((length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True) if stride > 0)
    return int(array.__array_interface__["data"][0]) + reach + array.itemsize
