"""A tensor map for the hardware: the 128 opaque bytes that cuTensorMapEncode… makes from a spec and an address.

Encoding does not access the GPU, so it may happen during a stream capture. Maps are cached by (spec, address); a
kernel gets them by value as `.param .align 64 .b8 name[128]`.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict

from ..errors import ArgumentError
from ..isa.im2col import MODES
from ..isa.tensor_map import MAP_BYTES, TensorMapSpec
from .library import Library, load
from .once import once

_ALIGN = 128
_KEPT = 4096


def encode(spec: TensorMapSpec, address: int, library: Library | None = None) -> bytes:
    """The map's 128 bytes. address: of the tensor in GPU memory, 16-byte aligned (32 with 32-byte interleave).

    Raises ArgumentError for a misaligned address, DriverError if the driver rejects the map.
    """
    if address % spec.address_alignment:
        raise ArgumentError(
            "TMA cannot address this array: its first byte is misaligned",
            expected=f"an address that is a multiple of {spec.address_alignment}",
            got=hex(address),
            code="wrong-layout",
        )
    return _maps().get(spec, address, library or load())


class _Maps:
    """Encoded maps; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[TensorMapSpec, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, spec: TensorMapSpec, address: int, library: Library) -> bytes:
        key = (spec, address)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made = Encoder(spec, library)(address).map
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return made


@once
def _maps() -> _Maps:
    return _Maps()


class EncodedMap:
    """Memory of one map, aligned as the driver requires.

    Attributes:
        address: where the map is in host memory.
        map: its bytes.
    """

    __slots__ = ("_held", "address")

    def __init__(self) -> None:
        self._held = (ctypes.c_uint8 * (MAP_BYTES + _ALIGN))()
        start = ctypes.addressof(self._held)
        self.address = start + -start % _ALIGN

    @property
    def map(self) -> bytes:
        return ctypes.string_at(self.address, MAP_BYTES)


class Encoder:
    """Encodes the maps of one spec: the driver's arguments are converted once.

    Args:
        spec: what all maps share.
    """

    def __init__(self, spec: TensorMapSpec, library: Library | None = None) -> None:
        self.spec, self.library = spec, library or load()
        rank = spec.rank
        wide, narrow = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        modes = [spec.driver_interleave, spec.driver_swizzle, spec.driver_l2_promotion, spec.driver_oob_fill]
        self.name, box = _box_of(spec)
        if spec.pixels is not None and spec.pixels.wide:
            modes.insert(1, MODES.index(spec.pixels.mode) - 1)
        self._kind = ctypes.c_int(spec.driver_element), ctypes.c_uint32(rank)
        self._rest = (
            wide(*spec.dims), wide(*spec.strides), *box, narrow(*spec.steps), *(ctypes.c_int(mode) for mode in modes),
        )  # fmt: skip
        self._call = getattr(self.library.native, self.name)

    def __call__(self, address: int) -> EncodedMap:
        """The map of a tensor at an aligned address. Raises DriverError if the driver rejects it."""
        encoded = EncodedMap()
        self.write(encoded.address, address)
        return encoded

    def write(self, place: int, address: int) -> None:
        """Encode the map of a tensor at an address into host memory. Raises DriverError."""
        status = self._call(ctypes.c_void_p(place), *self._kind, ctypes.c_void_p(address), *self._rest)
        if status:
            raise self.library.error(
                status,
                self.name,
                "a tensor map cannot be made",
                got=f"{self.spec} at {address:#x}",
                hint="check the box against the swizzle, and the strides",
            )


def _box_of(spec: TensorMapSpec) -> tuple[str, tuple[object, ...]]:
    """The driver's function for a map, and the arguments that describe one copy."""
    if spec.pixels is None:
        return "cuTensorMapEncodeTiled", ((ctypes.c_uint32 * spec.rank)(*spec.box),)
    moved = tuple(ctypes.c_uint32(extent) for extent in spec.box)
    corners = spec.pixels.lower, spec.pixels.upper
    if spec.pixels.wide:
        return "cuTensorMapEncodeIm2colWide", (*(ctypes.c_int(at) for (at,) in corners), *moved)
    return "cuTensorMapEncodeIm2col", (*((ctypes.c_int * len(at))(*at) for at in corners), *moved)
