"""Tensor maps in emulated memory, and the boxes that TMA moves between global and shared memory.

A map's 128 bytes hold all of its fields in an encoding of our own, so that programs may copy them, change them with
tensormap.replace and pass them from any memory. The valid part of a box is itself a box, so a copy is one strided
assignment; in shared memory rows are moved as 16-byte chunks at swizzled places. PTX ISA 5.5, 9.7.9.27.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..errors import (
    ArgumentError,
    InvalidOperandError,
    MisalignedError,
    OutOfBoundsError,
    UnsupportedInstructionError,
)
from ..isa import dtypes
from ..isa.swizzle import Swizzle
from ..isa.tensor_map import INTERLEAVES, L2_PROMOTIONS, MAP_BYTES, OOB_FILLS, SWIZZLES, TensorMapSpec
from . import shared
from .engine import Issuer

if TYPE_CHECKING:
    from .machine import Cta
    from .memory import Allocation, GlobalMemory, Region

CHUNK = 16
CHUNK_DTYPE = np.dtype(np.complex128)
"""Any 16-byte element type that NumPy gathers fast; the numbers are never looked at."""
POISON = 0xFF
TENSOR_ALIGNMENT = 128
"""Alignment of a box in shared memory in bytes (CUDA Programming Guide, tensor copies)."""

_MAGIC = 0x70616D5F6D6F6F6C  # "loom_map"
_LAYOUT = struct.Struct("<QQ6B2x5I4Q5H5B")
_DTYPE_NAMES = tuple(dtypes.ALL)
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "tf32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


@dataclass(frozen=True)
class TensorMapArgument:
    """A tensor map as a kernel's argument: the map and the array it lies over (updated in place by stores)."""

    spec: TensorMapSpec
    array: np.ndarray


@dataclass(frozen=True)
class BoundMap:
    """A tensor map read from memory: what it says and where its tensor begins."""

    spec: TensorMapSpec
    address: int


# -- maps in memory ----------------------------------------------------------------------------------------------


def bind_tensor_map(argument: TensorMapArgument, base: int, maps: list[object]) -> np.ndarray:
    """The 128 bytes of a map whose array was given the global address `base`; the map is noted in `maps`.

    Raises ArgumentError for a map that breaks TMA's limits or reaches beyond its array.
    """
    spec, array = argument.spec, argument.array
    spec.validate()
    if base % spec.address_alignment:
        raise ArgumentError(
            f"the tensor's address is no multiple of {spec.address_alignment} bytes", got=f"address {base:#x}"
        )
    if array.__array_interface__["data"][0] % spec.address_alignment and array.itemsize * array.size:
        # the emulator could go on; a GPU would refuse the same offset into a buffer
        offset = _offset_in_base(array)
        if offset % spec.address_alignment:
            raise ArgumentError(
                "the array starts in the middle of its buffer, at an offset TMA cannot address",
                expected=f"a multiple of {spec.address_alignment} bytes",
                got=f"{offset} bytes",
            )
    need = _extent(spec)
    have = _span(array)
    if need > have:
        raise ArgumentError(
            f"the tensor map reaches {need} bytes and its array has {have}",
            expected=f"dims {spec.dims} (innermost first) inside the array of shape {array.shape}",
        )
    bound = BoundMap(spec, base)
    maps.append(bound)
    return np.frombuffer(encode(bound), np.uint8)


def encode(bound: BoundMap) -> bytes:
    """A map as the 128 bytes that stand in emulated memory."""
    spec = bound.spec
    rank = spec.rank
    steps = spec.element_strides or (1,) * rank
    filled = _LAYOUT.pack(
        _MAGIC,
        bound.address,
        rank,
        _DTYPE_NAMES.index(spec.dtype.name),
        SWIZZLES.index(spec.swizzle),
        INTERLEAVES.index(spec.interleave),
        OOB_FILLS.index(spec.oob_fill),
        L2_PROMOTIONS.index(spec.l2_promotion),
        *_padded((extent - 1 for extent in spec.dims), 5, 0xFFFFFFFF),
        *_padded(spec.strides, 4, 0xFFFFFFFFFFFFFFFF),
        *_padded(spec.box, 5, 0xFFFF),
        *_padded(steps, 5, 0xFF),
    )
    return filled.ljust(MAP_BYTES, b"\0")


@lru_cache(maxsize=1024)
def decode(raw: bytes) -> BoundMap | None:
    """The map that 128 bytes hold, or None where they hold none."""
    fields = _LAYOUT.unpack_from(raw)
    if fields[0] != _MAGIC or not 1 <= fields[2] <= 5 or fields[3] >= len(_DTYPE_NAMES):
        return None
    rank = fields[2]
    spec = TensorMapSpec(
        dtype=dtypes.ALL[_DTYPE_NAMES[fields[3]]],
        dims=tuple(extent + 1 for extent in fields[8 : 8 + rank]),
        strides=tuple(fields[13 : 13 + rank - 1]),
        box=tuple(fields[17 : 17 + rank]),
        element_strides=tuple(fields[22 : 22 + rank]),
        swizzle=SWIZZLES[fields[4]],
        interleave=INTERLEAVES[fields[5]],
        oob_fill=OOB_FILLS[fields[6]],
        l2_promotion=L2_PROMOTIONS[fields[7]],
    )
    return BoundMap(spec, fields[1])


def replace_field(raw: bytes, field: str, index: int, value: int) -> bytes | None:
    """The map's bytes after tensormap.replace of one field; None where they hold no map, or the value is illegal.

    Nothing but the single field is checked: a map may break TMA's limits while it is being rewritten.
    """
    if decode(raw) is None:
        return None
    fields = list(_LAYOUT.unpack_from(raw))
    first = {"global_dim": 8, "global_stride": 13, "box_dim": 17, "element_stride": 22}
    if field == "global_address":
        fields[1] = value
    elif field == "rank":
        fields[2] = value + 1  # the field counts from zero
    elif field in first:
        if not 0 <= index < (4 if field == "global_stride" else 5):
            return None
        fields[first[field] + index] = value - 1 if field == "global_dim" else value
    elif field == "swizzle_mode" and value < 4:
        fields[4] = value
    elif field == "interleave_layout":
        fields[5] = value
    elif field == "fill_mode":
        fields[6] = value
    elif field == "elemtype":
        bound = decode(raw)
        fields[3] = _DTYPE_NAMES.index(bound.spec.with_mode(field, value).dtype.name)  # type: ignore[union-attr]
    else:
        return None
    try:
        return _LAYOUT.pack(*fields).ljust(MAP_BYTES, b"\0")
    except struct.error:
        return None


def check(bound: BoundMap | None, rank: int, by: Issuer) -> BoundMap:
    """Raise InvalidOperandError unless this is a map TMA can use with that many coordinates."""
    if bound is None:
        by.error(
            InvalidOperandError,
            "the address holds no tensor map",
            hint="pass the map as a .param .align 64 .b8 [128] and use its address (cvta.param for a generic one)",
        )
    spec = bound.spec
    if spec.rank != rank:
        by.error(
            InvalidOperandError, f"a {rank}d copy with a tensor map of rank {spec.rank}", expected=f"a .{spec.rank}d copy"
        )
    try:
        spec.validate()
    except ArgumentError as problem:
        by.error(InvalidOperandError, f"the tensor map is invalid: {problem.what}", expected=problem.expected)
    if bound.address % spec.address_alignment:
        by.error(
            MisalignedError,
            f"the tensor map's global address {bound.address:#x} is misaligned",
            expected=f"a multiple of {spec.address_alignment}",
        )
    if spec.interleave != "NONE" or spec.swizzle == Swizzle.B128_ATOM_32B_FLIP_8B.value:
        by.error(UnsupportedInstructionError, "the emulator does not know interleaved layouts and 8-byte flips")
    return bound


def _padded(values: object, count: int, limit: int) -> list[int]:
    listed = [int(value) & limit for value in values]  # type: ignore[attr-defined]
    return listed + [0] * (count - len(listed))


def _extent(spec: TensorMapSpec) -> int:
    """Bytes from the first to the last element, inclusive."""
    last = sum((extent - 1) * stride for extent, stride in zip(spec.dims[1:], spec.strides, strict=True))
    return last + spec.dims[0] * spec.dtype.bytes


def _span(array: np.ndarray) -> int:
    if array.size == 0:
        return 0
    return sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize


def _offset_in_base(array: np.ndarray) -> int:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return array.__array_interface__["data"][0] - root.__array_interface__["data"][0]


# -- boxes in global memory --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """One copy's box: the map and the coordinates of its first element, innermost first."""

    bound: BoundMap
    coordinates: tuple[int, ...]

    @property
    def spec(self) -> TensorMapSpec:
        return self.bound.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements moved along each dimension, outermost first."""
        return self.spec.counts[::-1]

    def valid(self) -> tuple[slice, ...] | None:
        """The part of the box inside the tensor, outermost first; None where there is none."""
        parts = []
        for extent, count, step, at in zip(
            self.spec.dims, self.spec.counts, self.spec.steps, self.coordinates, strict=True
        ):
            low = -(at // step) if at < 0 else 0
            high = min(count, -(-(extent - at) // step))
            if low >= high:
                return None
            parts.append(slice(low, high))
        return tuple(parts[::-1])

    def window(self, memory: GlobalMemory, by: Issuer, writes: bool) -> tuple[tuple[slice, ...], np.ndarray] | None:
        """The valid part and a strided view of it in global memory, as unsigned integers of the element's size.

        Raises OutOfBoundsError where the tensor is not in a buffer.
        """
        valid = self.valid()
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
        allocation = self._allocation(memory, start, last + size, by, writes)
        view: np.ndarray = np.ndarray(
            tuple(part.stop - part.start for part in valid),
            np.dtype(f"u{size}"),
            allocation.region.data,
            start - allocation.base,
            tuple(steps[::-1]),
        )
        return valid, view

    def _allocation(self, memory: GlobalMemory, start: int, size: int, by: Issuer, writes: bool) -> Allocation:
        allocation = memory.find(start)
        if allocation is None or start + size > allocation.end:
            by.error(
                OutOfBoundsError,
                f"the tensor map reaches global bytes {start:#x} to {start + size:#x}, which are in no buffer",
                got=f"box at {self.coordinates} of a tensor at {self.bound.address:#x} with dims {self.spec.dims}",
            )
        if writes and not allocation.writable:
            by.error(InvalidOperandError, f"{allocation.region.name} is read-only and is written here")
        return allocation

    def gather(self, memory: GlobalMemory, by: Issuer) -> np.ndarray:
        """The box's elements, `shape`, those outside the tensor filled."""
        element = np.dtype(f"u{self.spec.dtype.bytes}")
        found = self.window(memory, by, writes=False)
        if found is not None and found[1].shape == self.shape:
            return np.ascontiguousarray(found[1])
        fill = _NAN[self.spec.dtype.name] if self.spec.oob_fill == "NAN" else 0
        values = np.full(self.shape, fill, element)
        if found is not None:
            values[found[0]] = found[1]
        return values

    def describe(self) -> str:
        return f"box {self.spec.box} at {self.coordinates}"


# -- boxes in shared memory --------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _chunks(rows: int, row_bytes: int, pitch: int, swizzle: str, phase: int) -> np.ndarray:
    """Where each 16-byte chunk of a box lies, in chunks from the start of the pattern it begins in: (rows, chunks).

    `phase` is the box's start modulo the swizzle's repeat.
    """
    addresses = phase + np.arange(rows)[:, None] * pitch + np.arange(0, row_bytes, CHUNK)
    places = np.asarray(Swizzle(swizzle).apply(addresses)) // CHUNK
    places.flags.writeable = False
    return places


class SharedBox:
    """A box's place in a CTA's shared memory."""

    def __init__(self, spec: TensorMapSpec, cta: Cta, offset: int) -> None:
        self.spec = spec
        self.cta = cta
        self.offset = offset
        self.row_bytes = spec.inner_bytes
        self.rows = spec.box_bytes // spec.inner_bytes
        self.packed = spec.swizzle == "NONE"

    @property
    def region(self) -> Region:
        return self.cta.shared

    @property
    def name(self) -> str:
        return shared.name(self.cta, self.offset)

    def _places(self) -> np.ndarray:
        repeat = self.spec.swizzle_mode.repeat
        phase = self.offset % repeat
        relative = _chunks(self.rows, self.row_bytes, self.spec.pitch, self.spec.swizzle, phase)
        return relative + (self.offset - phase) // CHUNK

    def poison(self) -> None:
        """Fill with 0xFF: the copy is under way."""
        if self.packed or self.spec.pitch == self.row_bytes:
            self.region.data[self.offset : self.offset + self.rows * self.row_bytes] = POISON
        else:
            self.write(np.full(self.rows * self.row_bytes, POISON, np.uint8), 0, 1)

    def write(self, data: np.ndarray, part: int, parts: int) -> None:
        """Put the rows of one part in place; `data` is all bytes of the box, row by row."""
        low, high = self.rows * part // parts, self.rows * (part + 1) // parts
        if low == high:
            return
        raw = data.reshape(-1).view(np.uint8)[low * self.row_bytes : high * self.row_bytes]
        if self.packed:
            start = self.offset + low * self.row_bytes
            self.region.data[start : start + raw.size] = raw
        else:
            chunks = self.region.as_type(CHUNK_DTYPE)
            chunks[self._places()[low:high]] = raw.view(CHUNK_DTYPE).reshape(high - low, -1)

    def read(self, into: np.ndarray, part: int, parts: int) -> None:
        """Fetch the rows of one part into `into`, all bytes of the box, row by row."""
        low, high = self.rows * part // parts, self.rows * (part + 1) // parts
        if low == high:
            return
        raw = into.reshape(-1).view(np.uint8)[low * self.row_bytes : high * self.row_bytes]
        if self.packed:
            start = self.offset + low * self.row_bytes
            raw[...] = self.region.data[start : start + raw.size]
        else:
            chunks = self.region.as_type(CHUNK_DTYPE)
            raw.view(CHUNK_DTYPE).reshape(high - low, -1)[...] = chunks[self._places()[low:high]]
