"""Tensor maps in emulated memory: binding to an array, their 128 bytes, modification, checks before use.

The 128 bytes hold all fields in our own encoding, so that programs may copy a map, change it with tensormap.replace
and pass it from any memory. The fields of a tiled map are in the first 64 bytes, as on the chip: CuTe DSL's kernels
copy no more. PTX ISA 5.5.8 (tensor-map), 9.7.9.28 (tensormap.replace).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...errors import (
    ArgumentError,
    ArgumentTypeError,
    InvalidOperandError,
    MisalignedError,
    UnsupportedInstructionError,
)
from ...isa import dtypes
from ...isa.im2col import MODES, PixelBox
from ...isa.swizzle import Swizzle
from ...isa.tensor_elements import PACKED, element_of
from ...isa.tensor_map import INTERLEAVES, L2_PROMOTIONS, MAP_BYTES, OOB_FILLS, SWIZZLES, TensorMapSpec
from ..machine.frame import Issuer

_MAGIC = 0x70616D6C  # "lmap"
_HEAD = struct.Struct("<IQ5I")
"""The magic number, the address and the extents, followed by the strides and the fields in `_BITS`."""
_STRIDE_BYTES, _BITS_BYTES = 5, 12
_BITS = (4, 6, 4, 2, 2, 2, 10, 11, 9, 9, 9, *(4,) * 5, 2, 3)
"""Widths of rank, type, swizzle, interleave, fill, promotion, box, element strides, mode and atom."""
_CORNERS = struct.Struct("<6h")
_TILED_BYTES = 64
_ATOMS = (
    Swizzle.B128.value, Swizzle.B128_ATOM_32B.value, Swizzle.B128_ATOM_32B_FLIP_8B.value, Swizzle.B128_ATOM_64B.value
)  # fmt: skip
"""Swizzles of 128 bytes by tensormap.replace's .swizzle_atomicity (PTX ISA 9.7.9.28)."""
_WIDEST = SWIZZLES.index(Swizzle.B128.value)
_DTYPE_NAMES = (*dtypes.ALL, *PACKED)


@dataclass(frozen=True)
class TensorMapArgument:
    """A tensor map as a kernel's argument: the map and the array that it describes (stores update it in place).

    pads_to_16b: nothing else uses the memory after the array's rows, up to a multiple of 16 bytes; stores write it.
    """

    spec: TensorMapSpec
    array: np.ndarray
    pads_to_16b: bool = False


@dataclass(frozen=True)
class BoundMap:
    """A tensor map read from memory: its fields and the start of its tensor."""

    spec: TensorMapSpec
    address: int


# -- maps in memory ----------------------------------------------------------------------------------------------


def bind_tensor_map(argument: TensorMapArgument, base: int, maps: list[object]) -> np.ndarray:
    """The 128 bytes of a map whose array has the global address `base`; the map is added to `maps`.

    Raises ArgumentError for a map that violates TMA's limits or exceeds its array.
    """
    spec, array = argument.spec, argument.array
    spec.validate()
    if base % spec.address_alignment:
        raise ArgumentError(
            f"the tensor's address is not a multiple of {spec.address_alignment} bytes", got=f"address {base:#x}"
        )
    offset = _offset_in_base(array)
    if offset % spec.address_alignment:  # the emulator could continue; a GPU refuses such an offset into a buffer
        raise ArgumentError(
            "the array starts inside its buffer, at an offset that TMA cannot address",
            expected=f"a multiple of {spec.address_alignment} bytes",
            got=f"{offset} bytes",
        )
    need = _extent(spec)
    have = _span(array)
    if need > have:
        raise ArgumentError(
            f"the tensor map covers {need} bytes, but its array has {have}",
            expected=f"dims {spec.dims} (innermost first) inside the array of shape {array.shape}",
        )
    bound = BoundMap(spec, base)
    maps.append(bound)
    return np.frombuffer(encode(bound), np.uint8)


def encode(bound: BoundMap) -> bytes:
    """A map as 128 bytes in emulated memory."""
    spec = bound.spec
    rank = spec.rank
    steps = spec.element_strides or (1,) * rank
    return _pack(
        [
            bound.address,
            rank,
            _DTYPE_NAMES.index(spec.dtype.name),
            SWIZZLES.index(spec.swizzle),
            INTERLEAVES.index(spec.interleave),
            OOB_FILLS.index(spec.oob_fill),
            L2_PROMOTIONS.index(spec.l2_promotion),
            *_padded((extent - 1 for extent in spec.dims), 5),
            *_padded(spec.strides, 4),
            *_padded(spec.box, 5),
            *_padded(steps, 5),
            *_pixel_fields(spec.pixels),
            _ATOMS.index(spec.swizzle) if spec.swizzle in _ATOMS else 0,
        ]
    )


def _pack(fields: list[int]) -> bytes:
    """Raises struct.error, OverflowError or ValueError for a value that its field cannot hold."""
    address, *small = fields[:7]
    dims, strides, boxes, pixels, atom = fields[7:12], fields[12:16], fields[16:26], fields[26:33], fields[33]
    bits = 0
    for width, value in zip(reversed(_BITS), reversed([*small, *boxes, pixels[0], atom]), strict=True):
        if not 0 <= value < 1 << width:
            raise ValueError
        bits = bits << width | value
    packed = b"".join(stride.to_bytes(_STRIDE_BYTES, "little") for stride in strides)
    tiled = _HEAD.pack(_MAGIC, address, *dims) + packed + bits.to_bytes(_BITS_BYTES, "little")
    return (tiled + _CORNERS.pack(*pixels[1:])).ljust(MAP_BYTES, b"\0")


def _unpack(raw: bytes) -> list[int] | None:
    """The fields packed by `_pack`; None if these bytes are anything else."""
    magic, address, *dims = _HEAD.unpack_from(raw)
    if magic != _MAGIC:
        return None
    at = _HEAD.size
    strides = [
        int.from_bytes(raw[at + _STRIDE_BYTES * number : at + _STRIDE_BYTES * (number + 1)], "little")
        for number in range(4)
    ]
    bits, values = int.from_bytes(raw[_TILED_BYTES - _BITS_BYTES : _TILED_BYTES], "little"), []
    for width in _BITS:
        values.append(bits & (1 << width) - 1)
        bits >>= width
    *small, mode, atom = values
    corners = _CORNERS.unpack_from(raw, _TILED_BYTES) if mode else (0,) * 6
    return [address, *small[:6], *dims, *strides, *small[6:], mode, *corners, atom]


_ZERO_MAP = _pack([0, 1, _DTYPE_NAMES.index("u8"), *(0,) * 31])
"""A map of rank 1, extent 1 and box 0: rank and extents are stored minus one."""


@lru_cache(maxsize=1024)
def decode(raw: bytes) -> BoundMap | None:
    """The map in 128 bytes, or None if there is none."""
    fields = _unpack(raw)
    if fields is None or not 1 <= fields[1] <= 5:
        return None
    tables = (_DTYPE_NAMES, SWIZZLES, INTERLEAVES, OOB_FILLS, L2_PROMOTIONS)
    if any(code >= len(table) for code, table in zip(fields[2:7], tables, strict=True)):
        return None
    rank = fields[1]
    spec = TensorMapSpec(
        dtype=element_of(_DTYPE_NAMES[fields[2]]),
        dims=tuple(extent + 1 for extent in fields[7 : 7 + rank]),
        strides=tuple(fields[12 : 12 + rank - 1]),
        box=tuple(fields[16 : 16 + (2 if fields[26] else rank)]),
        element_strides=tuple(fields[21 : 21 + rank]),
        swizzle=SWIZZLES[fields[3]],
        interleave=INTERLEAVES[fields[4]],
        oob_fill=OOB_FILLS[fields[5]],
        l2_promotion=L2_PROMOTIONS[fields[6]],
        pixels=_pixel_box(fields[26:33], rank),
    )
    return BoundMap(spec, fields[0])


def replace_field(raw: bytes, field: str, index: int, value: int) -> bytes | None:
    """The map's bytes after tensormap.replace of one field; None if they hold no map, or the value is illegal.

    128 zero bytes are a map whose fields are all zero: kernels that build maps from scratch (Triton's) start this way.
    Only the single field is checked: a map may violate TMA's limits while it is being rewritten.
    """
    if raw.count(0) == MAP_BYTES:
        raw = _ZERO_MAP
    fields = _unpack(raw)
    if fields is None or decode(raw) is None:
        return None
    first = {"global_dim": 7, "global_stride": 12, "box_dim": 16, "element_stride": 21}
    if field == "global_address":
        fields[0] = value
    elif field == "rank":
        fields[1] = value + 1  # the field counts from zero
    elif field in first:
        if not 0 <= index < (4 if field == "global_stride" else 5):
            return None
        fields[first[field] + index] = value - 1 if field == "global_dim" else value
    elif field == "swizzle_mode" and value < 4:
        fields[3] = SWIZZLES.index(_ATOMS[fields[33]]) if value == _WIDEST else value
    elif field == "swizzle_atomicity":
        fields[33] = value
        if fields[3] >= _WIDEST:
            fields[3] = SWIZZLES.index(_ATOMS[value])
    elif field == "interleave_layout":
        fields[4] = value
    elif field == "fill_mode":
        fields[5] = value
    elif field == "elemtype":
        bound = decode(raw)
        fields[2] = _DTYPE_NAMES.index(bound.spec.with_mode(field, value).dtype.name)  # type: ignore[union-attr]
    else:
        return None
    try:
        return _pack(fields)
    except (struct.error, OverflowError, ValueError):
        return None


def _pixel_fields(pixels: PixelBox | None) -> tuple[int, ...]:
    """The mode, zero for tiles, and two corners."""
    if pixels is None:
        return (0,) * 7
    corners = (corner + (0,) * (3 - len(corner)) for corner in (pixels.lower, pixels.upper))
    return (1 + MODES.index(pixels.mode), *(at for corner in corners for at in corner))


def _pixel_box(fields: Sequence[int], rank: int) -> PixelBox | None:
    if not fields[0]:
        return None
    mode = MODES[fields[0] - 1]
    count = rank - 2 if mode == "im2col" else 1
    return PixelBox(tuple(fields[1 : 1 + count]), tuple(fields[4 : 4 + count]), mode)


def check(bound: BoundMap | None, rank: int, by: Issuer, mode: str = "tile") -> BoundMap:
    """Raise InvalidOperandError unless this is a map of that mode that TMA can use with that many coordinates."""
    if bound is None:
        by.error(
            InvalidOperandError,
            "there is no tensor map at this address",
            code="no-tensor-map",
            hint="pass the map as a .param .align 64 .b8 [128] and use its address (cvta.param for a generic one)",
        )
    spec = bound.spec
    if spec.rank != rank:
        by.error(
            InvalidOperandError,
            f"a {rank}d copy with a tensor map of rank {spec.rank}",
            expected=f"a .{spec.rank}d copy",
        )
    made_for = "tile" if spec.pixels is None else spec.pixels.mode
    if made_for != mode:
        by.error(
            InvalidOperandError,
            f"a copy of mode .{mode} with a tensor map of mode .{made_for}",
            expected=f".{made_for}",
        )
    problem = _problem(spec)
    if problem is not None:
        by.error(InvalidOperandError, f"the tensor map is invalid: {problem.what}", expected=problem.expected)
    if bound.address % spec.address_alignment:
        by.error(
            MisalignedError,
            f"the tensor map's global address {bound.address:#x} is misaligned",
            expected=f"a multiple of {spec.address_alignment}",
        )
    if spec.interleave != "NONE":
        by.error(UnsupportedInstructionError, "the emulator does not support interleaved layouts")
    return bound


@lru_cache(maxsize=1024)
def _problem(spec: TensorMapSpec) -> ArgumentError | ArgumentTypeError | None:
    """The error of `validate` for a map, cached: a map is checked at every use."""
    try:
        spec.validate()
    except (ArgumentError, ArgumentTypeError) as problem:
        return problem
    return None


def _padded(values: Iterable[int], count: int) -> list[int]:
    listed = list(values)
    return listed + [0] * (count - len(listed))


def _extent(spec: TensorMapSpec) -> int:
    """Bytes from the first to the last element, inclusive."""
    whole = spec.in_bytes
    last = sum((extent - 1) * stride for extent, stride in zip(whole.dims[1:], whole.strides, strict=True))
    return last + whole.dims[0] * whole.dtype.bytes


def _span(array: np.ndarray) -> int:
    if array.size == 0:
        return 0
    return sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize


def _offset_in_base(array: np.ndarray) -> int:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
