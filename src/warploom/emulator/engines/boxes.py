"""The boxes that TMA moves: their part of a tensor in global memory, and their location in shared memory.

The part of a box inside its tensor is itself a box, so a copy is one strided assignment; in shared memory, rows
consist of 16-byte chunks at swizzled positions. PTX ISA 5.5 (tensors, swizzling), 9.7.9.27 (tensor copies).

Loads read exactly the tensor. Stores and reductions write rows in whole 16-byte chunks: if the innermost extent is
not a multiple of 16 bytes, they also write the rest of its last chunk. Outer dimensions are exact. This is not
documented; it was measured on an H200 (docs/measured-facts.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InvalidOperandError, OutOfBoundsError
from ...isa import dtypes
from ...isa.swizzle import CHUNK_BYTES as CHUNK
from ...isa.swizzle import Swizzle
from ...isa.tensor_map import TensorMapSpec
from ..machine import shared_address as shared
from ..machine.frame import Issuer
from .tma import BoundMap

if TYPE_CHECKING:
    from ..machine.machine import Cta
    from ..machine.memory import Allocation, GlobalMemory, Region

CHUNK_DTYPE = np.dtype(np.complex128)
"""Any 16-byte element type that NumPy gathers fast; its values are never inspected."""
POISON = 0xFF
_FLIPPED = Swizzle.B128_ATOM_32B_FLIP_8B.value
TENSOR_ALIGNMENT = 128
"""Alignment of a box in shared memory in bytes (CUDA Programming Guide, tensor copies)."""
ADDRESSES = 1 << 64
"""Addresses wrap: Triton's maps of ragged tensors have coordinates and strides whose products add up to 2**64."""
_NAN = 0x7FF7_7FF7_7FF7_7FF7
"""The value of elements outside the tensor with oob_fill "NAN": every 16 bits 0x7FF7, whatever the type. Recorded on an
H200 (tests/golden/conformance.npz); not documented."""


# -- boxes in global memory --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """One copy's box: the map and the coordinates of its first element, innermost first.

    `map_place`: region and offset of the map itself, if it is in global memory.
    """

    bound: BoundMap
    coordinates: tuple[int, ...]
    map_place: tuple[Region, int] | None = None
    _read: list[tuple[tuple[slice, ...], np.ndarray] | None] = field(default_factory=list, repr=False, compare=False)

    @property
    def spec(self) -> TensorMapSpec:
        return self.bound.spec

    @cached_property
    def in_bytes(self) -> Box:
        """The same box in global memory with elements of whole bytes: itself, or in bytes."""
        packing = self.spec.packing
        if packing is None:
            return self
        first = packing.bytes(self.coordinates[0])
        return Box(BoundMap(self.spec.in_bytes, self.bound.address), (first, *self.coordinates[1:]), self.map_place)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements moved along each dimension, outermost first; for packed elements, bytes of global memory."""
        return self.spec.in_bytes.counts[::-1]

    def valid(self, writes: bool = False) -> tuple[slice, ...] | None:
        """The part of the box inside the tensor, outermost first, in the units of `shape`; None if there is none.

        `writes`: the part that a store writes, whole 16-byte chunks of each row.
        """
        if self.in_bytes is not self:
            return self.in_bytes.valid(writes)
        parts = []
        dims = (whole_pieces(self.spec), *self.spec.dims[1:]) if writes else self.spec.dims
        for extent, count, step, at in zip(dims, self.spec.counts, self.spec.steps, self.coordinates, strict=True):
            low = -(at // step) if at < 0 else 0
            high = min(count, -(-(extent - at) // step))
            if low >= high:
                return None
            parts.append(slice(low, high))
        return tuple(parts[::-1])

    def window(self, memory: GlobalMemory, by: Issuer, writes: bool) -> tuple[tuple[slice, ...], np.ndarray] | None:
        """The valid part and a strided view of it in global memory, as unsigned integers of the element's size.

        `writes`: the part that a store writes. Raises OutOfBoundsError if the tensor, or what a store writes past
        its rows, is not in a buffer.
        """
        if self.in_bytes is not self:
            return self.in_bytes.window(memory, by, writes)
        if writes:
            return self._window(memory, by, writes)
        if not self._read:  # asked for when the copy is issued, when it is judged, and when it reads
            self._read.append(self._window(memory, by, writes))
        return self._read[0]

    def _window(self, memory: GlobalMemory, by: Issuer, writes: bool) -> tuple[tuple[slice, ...], np.ndarray] | None:
        valid = self.valid(writes)
        if valid is None:
            return None
        spec = self.spec
        size = spec.dtype.bytes
        strides = (size, *spec.strides)
        inner_first = valid[::-1]
        start = self.bound.address
        last = 0
        steps = []
        for part, at, step, stride in zip(inner_first, self.coordinates, spec.steps, strides, strict=True):
            start += (at + part.start * step) * stride
            last += (part.stop - part.start - 1) * step * stride
            steps.append(step * stride)
        start %= ADDRESSES
        allocation = self._allocation(memory, start, last + size, by, writes)
        view: np.ndarray = np.ndarray(
            tuple(part.stop - part.start for part in valid),
            np.dtype(f"u{size}"),
            allocation.bytes if writes and self.overhang() else allocation.region.data,
            start - allocation.base,
            tuple(steps[::-1]),
        )
        return valid, view

    def _allocation(self, memory: GlobalMemory, start: int, size: int, by: Issuer, writes: bool) -> Allocation:
        allocation = memory.find(start)
        behind = self.overhang() * self.spec.dtype.bytes if writes else 0
        if allocation is not None and start + size - behind <= allocation.end < start + size - allocation.room:
            by.error(
                OutOfBoundsError,
                f"the store writes {behind} bytes past the innermost extent, to the end of the last 16-byte chunk, but "
                f"the buffer `{allocation.region.name}` ends before them",
                expected="an innermost extent that is a multiple of 16 bytes, or memory after it",
                got=f"dims {self.spec.dims} of {self.spec.dtype}",
                consequence="a GPU overwrites the memory after the array",
                hint="docs/measured-facts.md describes the measurement",
            )
        if allocation is None or start + size - behind > allocation.end:
            by.error(
                OutOfBoundsError,
                f"the tensor map covers global bytes {start:#x} to {start + size:#x}, which are in no buffer",
                got=f"box at {self.coordinates} of a tensor at {self.bound.address:#x} with dims {self.spec.dims}",
            )
        if writes and not allocation.writable:
            by.error(InvalidOperandError, f"{allocation.region.name} is read-only and is written here")
        return allocation

    def overhang(self) -> int:
        """Elements of each row that a store of this box writes past the innermost extent."""
        if self.in_bytes is not self:
            return self.in_bytes.overhang()
        if whole_pieces(self.spec) == self.spec.dims[0]:
            return 0
        written, inside = self.valid(writes=True), self.valid()
        return written[-1].stop - inside[-1].stop if written is not None and inside is not None else 0

    def gather(self, memory: GlobalMemory, by: Issuer) -> np.ndarray:
        """The box's elements, `shape`, with fill for those outside the tensor; packed ones as rows of shared bytes."""
        packing = self.spec.packing
        if packing is not None:
            rows = self.in_bytes.gather(memory, by)
            return packing.spread_out(rows) if packing.spread else rows
        element = np.dtype(f"u{self.spec.dtype.bytes}")
        found = self.window(memory, by, writes=False)
        as_copied = _to_tf32 if self.spec.dtype is dtypes.tf32 else np.ascontiguousarray
        if found is not None and found[1].shape == self.shape:
            return as_copied(found[1])
        fill = _NAN & ((1 << 8 * element.itemsize) - 1) if self.spec.oob_fill == "NAN" else 0
        values = np.full(self.shape, fill, element)
        if found is not None:
            values[found[0]] = as_copied(found[1])
        return values

    def describe(self) -> str:
        return f"box {self.spec.box} at {self.coordinates}"


def _to_tf32(bits: np.ndarray) -> np.ndarray:
    """f32 as a load of tf32 leaves it: to the nearest of 10 bits of fraction, ties to even.

    CUTLASS relies on TMA to round and Triton's tests expect these bits; the ISA does not say it, nothing is recorded.
    """
    rounded = bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)
    return np.where(bits & np.uint32(0x7F800000) == 0x7F800000, bits, rounded)


def whole_pieces(spec: TensorMapSpec) -> int:
    """The innermost extent for stores: up to the end of its last 16-byte chunk."""
    size = spec.dtype.bytes
    return -(-spec.dims[0] * size // CHUNK) * CHUNK // size


# -- boxes in shared memory --------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _chunks(rows: int, row_bytes: int, pitch: int, swizzle: str, phase: int) -> np.ndarray:
    """The position of each 16-byte chunk of a box, in chunks from the start of its swizzle pattern: (rows, chunks).

    `phase` is the box's start modulo the swizzle's repeat.
    """
    addresses = phase + np.arange(rows)[:, None] * pitch + np.arange(0, row_bytes, CHUNK)
    places = np.asarray(Swizzle(swizzle).apply(addresses)) // CHUNK
    places.flags.writeable = False
    return places


def _flipped(chunks: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Chunks with their 8-byte halves swapped in odd lines of 128 bytes (PTX ISA 5.5.7)."""
    halves = np.ascontiguousarray(chunks).view(np.uint64).reshape(*chunks.shape, 2)
    odd = (places * CHUNK >> 7 & 1).astype(np.bool_)
    return np.where(odd[..., None], halves[..., ::-1], halves).view(CHUNK_DTYPE)[..., 0]


class SharedBox:
    """A box's location in a CTA's shared memory."""

    def __init__(self, spec: TensorMapSpec, cta: Cta, offset: int) -> None:
        self.spec = spec
        self.cta = cta
        self.offset = offset
        self.row_bytes = spec.inner_bytes
        self.rows = spec.box_elements // spec.counts[0]
        self.packed = spec.swizzle == "NONE"

    def __eq__(self, other: object) -> bool:
        """Equal locations identify lanes that issue the same copy."""
        if not isinstance(other, SharedBox):
            return NotImplemented
        return self.offset == other.offset and self.cta is other.cta and self.spec == other.spec

    def __hash__(self) -> int:
        return hash((id(self.cta), self.offset))

    @property
    def region(self) -> Region:
        return self.cta.shared

    @property
    def name(self) -> str:
        return shared.name(self.cta, self.offset)

    @property
    def contiguous(self) -> bool:
        """True if its bytes fill a contiguous range (in any order)."""
        return self.packed or self.spec.pitch == self.row_bytes

    def places(self) -> np.ndarray:
        """The chunk number in shared memory of each 16-byte chunk, (rows, chunks of a row)."""
        repeat = self.spec.swizzle_mode.repeat
        phase = self.offset % repeat
        relative = _chunks(self.rows, self.row_bytes, self.spec.pitch, self.spec.swizzle, phase)
        return relative + (self.offset - phase) // CHUNK

    def poison(self) -> None:
        """Fill with 0xFF: the copy is in flight."""
        if self.contiguous:
            self.region.data[self.offset : self.offset + self.rows * self.row_bytes] = POISON
        else:
            self.write(np.full(self.rows * self.row_bytes, POISON, np.uint8), 0, 1)

    def write(self, data: np.ndarray, part: int, parts: int) -> None:
        """Write the rows of one part; `data` is all bytes of the box, row by row."""
        low, high = self.rows * part // parts, self.rows * (part + 1) // parts
        if low == high:
            return
        raw = data.reshape(-1).view(np.uint8)[low * self.row_bytes : high * self.row_bytes]
        if self.packed:
            start = self.offset + low * self.row_bytes
            self.region.data[start : start + raw.size] = raw
        else:
            chunks, places = self.region.as_type(CHUNK_DTYPE), self.places()[low:high]
            new = raw.view(CHUNK_DTYPE).reshape(high - low, -1)
            chunks[places] = _flipped(new, places) if self.spec.swizzle == _FLIPPED else new

    def read(self, into: np.ndarray, part: int, parts: int) -> None:
        """Read the rows of one part into `into`, all bytes of the box, row by row."""
        low, high = self.rows * part // parts, self.rows * (part + 1) // parts
        if low == high:
            return
        raw = into.reshape(-1).view(np.uint8)[low * self.row_bytes : high * self.row_bytes]
        if self.packed:
            start = self.offset + low * self.row_bytes
            raw[...] = self.region.data[start : start + raw.size]
        else:
            chunks = self.region.as_type(CHUNK_DTYPE)
            raw.view(CHUNK_DTYPE).reshape(high - low, -1)[...] = chunks[self.places()[low:high]]
