"""Tensor maps in emulated memory: binding one to an array, its 128 bytes, changing them, checking them before use.

The 128 bytes hold all fields in an encoding of our own, so that programs may copy a map, change it with
tensormap.replace and pass it from any memory. PTX ISA 5.5.8 (tensor-map), 9.7.9.28 (tensormap.replace).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
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

_MAGIC = 0x70616D5F6D6F6F6C  # "loom_map"
_LAYOUT = struct.Struct("<QQ6B2x5I4Q5H5B4x1B3h3hB")
_ATOMS = (
    Swizzle.B128.value, Swizzle.B128_ATOM_32B.value, Swizzle.B128_ATOM_32B_FLIP_8B.value, Swizzle.B128_ATOM_64B.value
)  # fmt: skip
"""Swizzles of 128 bytes by tensormap.replace's .swizzle_atomicity (PTX ISA 9.7.9.28)."""
_WIDEST = SWIZZLES.index(Swizzle.B128.value)
_DTYPE_NAMES = (*dtypes.ALL, *PACKED)


@dataclass(frozen=True)
class TensorMapArgument:
    """A tensor map as a kernel's argument: the map and the array that it describes (updated in place by stores).

    overhang: nobody else uses what follows the array's rows, up to whole 16 bytes; stores write it.
    """

    spec: TensorMapSpec
    array: np.ndarray
    overhang: bool = False


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
            f"the tensor's address is not a multiple of {spec.address_alignment} bytes", got=f"address {base:#x}"
        )
    offset = _offset_in_base(array)
    if offset % spec.address_alignment:  # the emulator could go on; a GPU refuses the same offset into a buffer
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
        *_pixel_fields(spec.pixels),
        _ATOMS.index(spec.swizzle) if spec.swizzle in _ATOMS else 0,
    )
    return filled.ljust(MAP_BYTES, b"\0")


_ZERO_MAP = _LAYOUT.pack(_MAGIC, 0, 1, _DTYPE_NAMES.index("u8"), *(0,) * 31).ljust(MAP_BYTES, b"\0")
"""A map of rank 1, extent 1 and box 0: rank and extents are held less one."""


@lru_cache(maxsize=1024)
def decode(raw: bytes) -> BoundMap | None:
    """The map that 128 bytes hold, or None where they hold none."""
    fields = _LAYOUT.unpack_from(raw)
    if fields[0] != _MAGIC or not 1 <= fields[2] <= 5 or fields[3] >= len(_DTYPE_NAMES):
        return None
    rank = fields[2]
    spec = TensorMapSpec(
        dtype=element_of(_DTYPE_NAMES[fields[3]]),
        dims=tuple(extent + 1 for extent in fields[8 : 8 + rank]),
        strides=tuple(fields[13 : 13 + rank - 1]),
        box=tuple(fields[17 : 17 + (2 if fields[27] else rank)]),
        element_strides=tuple(fields[22 : 22 + rank]),
        swizzle=SWIZZLES[fields[4]],
        interleave=INTERLEAVES[fields[5]],
        oob_fill=OOB_FILLS[fields[6]],
        l2_promotion=L2_PROMOTIONS[fields[7]],
        pixels=_pixel_box(fields[27:34], rank),
    )
    return BoundMap(spec, fields[1])


def replace_field(raw: bytes, field: str, index: int, value: int) -> bytes | None:
    """The map's bytes after tensormap.replace of one field; None where they hold no map, or the value is illegal.

    128 zero bytes are a map whose fields are all zero: kernels that build maps from nothing (Triton's) start this way.
    Nothing but the single field is checked: a map may break TMA's limits while it is being rewritten.
    """
    if raw.count(0) == MAP_BYTES:
        raw = _ZERO_MAP
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
        fields[4] = SWIZZLES.index(_ATOMS[fields[34]]) if value == _WIDEST else value
    elif field == "swizzle_atomicity":
        fields[34] = value
        if fields[4] >= _WIDEST:
            fields[4] = SWIZZLES.index(_ATOMS[value])
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
            "the address holds no tensor map",
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
        by.error(UnsupportedInstructionError, "the emulator does not know interleaved layouts")
    return bound


@lru_cache(maxsize=1024)
def _problem(spec: TensorMapSpec) -> ArgumentError | ArgumentTypeError | None:
    """What `validate` has against a map, remembered: a map is checked at every use."""
    try:
        spec.validate()
    except (ArgumentError, ArgumentTypeError) as problem:
        return problem
    return None


def _padded(values: object, count: int, limit: int) -> list[int]:
    listed = [int(value) & limit for value in values]  # type: ignore[attr-defined]
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
