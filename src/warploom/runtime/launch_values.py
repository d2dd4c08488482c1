"""Values of a launch description: arrays, tensor maps, scalars and structures, made from their tables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import index
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..errors import ArgumentError
from ..isa import dtypes
from ..isa.dtypes import DType, Kind
from ..isa.tensor_elements import PACKINGS, Packing
from ..near import near
from ..plural import counted
from .multimem import Multimem
from .program import Parameter
from .struct import Struct
from .tensor_map import TensorMap

misdescribed = partial(ArgumentError, code="launch-description")

FILLS = ("zeros", "ones", "normal", "uniform", "arange", "nan")
MAP_KEYS = ("box", "swizzle", "element_strides", "interleave", "oob_fill", "l2_promotion")
_PACKED = re.compile(r"x\d+$")
"""Names of types with several elements in a register."""
MOST_BYTES = 1 << 34
"""Maximum bytes of an array, so that a byte count given as a stride by mistake does not take all memory."""


Given: TypeAlias = "np.ndarray | list[np.ndarray]"
"""An array, or one per GPU, by rank."""
BY_RANK = ("value", "same_as", "fill", "file", "seed")
"""Keys whose values may be lists with one entry per GPU."""


@dataclass
class PeerArguments:
    """Arrays that are passed to all GPUs of a launch, by name, and the rank of the GPU that holds each."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    holders: dict[str, int] = field(default_factory=dict)


class Values:
    """Makes the values of one launch, or those of one GPU of several.

    Attributes:
        folder: where `file` is searched.
        arrays: the arrays made so far, by name.
        given: arrays to use instead of new ones, by name.
    """

    def __init__(
        self, folder: Path, given: Mapping[str, Given] | None = None, rank: int = 0, devices: int = 1,
        common: PeerArguments | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.given = given or {}
        self.rank, self.devices, self.common = rank, devices, common or PeerArguments()
        self.arrays: dict[str, np.ndarray] = dict(self.common.arrays)

    def argument(self, parameter: Parameter, described: Mapping[str, Any]) -> Any:
        """The value of a parameter. Raises ArgumentError, TypeError, ValueError or OSError."""
        self.arrays |= self.common.arrays
        usual = "tensor_map" if parameter.kind == "tensor_map" else "buffer"
        described = self._mine(described)
        if described.get("kind", usual) == "scalar":
            return _scalar(described, parameter.dtype)
        return self._value({"kind": usual, **described}, parameter.name, parameter.size)

    def share(self, parameter: Parameter, described: Mapping[str, Any]) -> None:
        """Make the arrays of a parameter that are in the memory of one GPU. Raises like `argument`."""
        self._share(described, parameter.name)

    def _share(self, described: Mapping[str, Any], name: str) -> None:
        for offset, part in described.get("at", {}).items():
            self._share(part, part_name(part, name, _offset(offset)))
        if "device" not in described or name in self.common.arrays:
            return
        holder = index(described["device"])
        if not 0 <= holder < self.devices:
            raise misdescribed(
                "`device` is not a GPU of this launch", expected=f"a rank below devices = {self.devices}", got=holder
            )
        of = Values(self.folder, self.given, holder, self.devices, self.common)
        self.common.arrays[name] = of._array(of._laid_out(described), name)
        self.common.holders[name] = holder

    def _mine(self, described: Mapping[str, Any]) -> Mapping[str, Any]:
        """The description with this GPU's values instead of lists by rank."""
        lists = {key: described[key] for key in BY_RANK if isinstance(described.get(key), list)}
        if self.devices == 1 or not lists:
            return described
        for key, listed in lists.items():
            if len(listed) != self.devices:
                raise misdescribed(
                    f"`{key}` is not one value per GPU", expected=f"one value, or a list of {self.devices}, by rank",
                    got=listed,
                )  # fmt: skip
        return {**described, **{key: listed[self.rank] for key, listed in lists.items()}}

    @staticmethod
    def _laid_out(described: Mapping[str, Any]) -> Mapping[str, Any]:
        """The description of the byte array behind a map of packed elements."""
        packed = described.get("dtype") if described.get("kind") == "tensor_map" else None
        return _in_bytes(described, PACKINGS[packed]) if packed in PACKINGS else described

    def _value(self, described: Mapping[str, Any], name: str, size: int) -> Any:
        kind, described = described.get("kind", "buffer"), self._mine(described)
        if kind == "scalar":
            return _scalar(described, None)
        if kind == "bytes":
            return self._bytes(described, name, size)
        if kind == "multimem":
            return Multimem([self._known(each, "of") for each in described.get("of", ())])
        options = {key: described[key] for key in MAP_KEYS if key in described}
        if described.get("dtype") in PACKINGS and kind == "tensor_map":
            options["dtype"] = described["dtype"]
        if "device" in described:
            array = self.common.arrays[name]
        else:
            array = self._new(self._laid_out(described), name)
        if kind == "buffer":
            return array
        if "box" not in options:
            raise misdescribed("a tensor map needs a box", expected="box = [innermost, …]")
        return TensorMap.tiled(array, **options)

    def _new(self, described: Mapping[str, Any], name: str) -> np.ndarray:
        """An array of this GPU, which later descriptions and expectations find by its name."""
        if name in self.arrays:
            raise misdescribed(
                f"two arrays are called `{name}`", expected='another name for one of them (name = "…")', got=name
            )
        array = self.arrays[name] = self._array(described, name)
        return array

    def _bytes(self, described: Mapping[str, Any], name: str, size: int) -> Any:
        data = bytes.fromhex(described.get("hex", ""))
        size = int(described.get("size", max(len(data), size)))
        if "at" not in described:
            return np.frombuffer(data.ljust(size, b"\0"), np.uint8).copy()
        parts, names = {}, {}
        for key, part in described["at"].items():
            offset = _offset(key)
            names[offset] = part_name(part, name, offset)
            parts[offset] = self._value(part, names[offset], 0)
        return Struct(size, parts, data, names)

    def _array(self, described: Mapping[str, Any], name: str) -> np.ndarray:
        if name in self.given:
            given = self.given[name]
            if isinstance(given, list) and ("device" in described or len(given) != self.devices):
                raise misdescribed(
                    f"`{name}` has one array per GPU",
                    expected=f"a launch on {counted(len(given), 'GPU')}",
                    got=self.devices,
                )
            return given[self.rank] if isinstance(given, list) else given
        if "same_as" in described:
            return _viewed(self._known(described["same_as"], "same_as"), described)
        if "file" in described:
            loaded = array_of_file(self.folder / described["file"])
            if "dtype" in described:
                # .npy cannot express bf16 and fp8: their bytes are stored as integers or voids.
                loaded = loaded.view(_element(described).numpy)
            return _strided(np.ascontiguousarray(loaded), described)
        if "values" in described and "dtype" in described:
            return _listed(described["values"], _element(described), described.get("shape"))
        if "dtype" not in described or "shape" not in described:
            raise misdescribed("an array needs a dtype and a shape", expected='dtype = "f32", shape = [128, 64]')
        dtype = _element(described)
        shape = _shape(described["shape"])
        # Without a seed, each parameter still gets different numbers.
        seed = int(described.get("seed", sum(name.encode())))
        mine = [seed, self.rank] if self.rank else seed
        return _strided(filled(shape, dtype, described.get("fill", "zeros"), mine), described)

    def _known(self, name: object, key: str) -> np.ndarray:
        if name not in self.arrays:
            raise misdescribed(
                f"`{key}` names no earlier array", expected=", ".join(self.arrays) or "none yet", got=name
            )
        return self.arrays[str(name)]


def array_of_file(path: Path) -> np.ndarray:
    """The array in a file of NumPy's. Raises ArgumentError for any other file."""
    try:
        loaded = np.load(path, allow_pickle=False)
    except OSError as error:
        raise misdescribed(f"`file` cannot be read: {error.strerror or error}", got=str(path)) from None
    except (ValueError, EOFError, MemoryError) as error:
        raise misdescribed(
            f"`file` holds no array: {error}", expected="a .npy file of numbers", got=str(path)
        ) from None
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise misdescribed("`file` holds several arrays", expected="a .npy file", got=str(path))
    return loaded.astype(loaded.dtype.newbyteorder("="), copy=False)


def _shape(given: object) -> tuple[int, ...]:
    sizes = given if isinstance(given, list | tuple) else [given]
    if any(isinstance(size, bool) or not isinstance(size, int) for size in sizes) or sizes is not given:
        raise misdescribed("a shape is a list of sizes, outermost first", expected="shape = [128, 64]", got=repr(given),
                           hint="a launch description has numbers: write the value of a symbolic size")  # fmt: skip
    return tuple(sizes)


def part_name(part: Mapping[str, Any], name: str, offset: int) -> str:
    """The name of the array at an offset of a structure: its own, by either key, or one made from the structure's."""
    return str(part.get("as", part.get("name", f"{name}+{offset}")))


def _element(described: Mapping[str, Any]) -> DType:
    """The type of an array's elements. Raises ArgumentError for one that only registers have."""
    dtype = dtypes.of(described["dtype"])
    if dtype.kind is Kind.PREDICATE or _PACKED.search(dtype.name):
        raise misdescribed(
            "an array has no such elements: the type is one of registers", expected="the type of one element in memory",
            got=dtype.name, hint="describe a packed pair as two elements, and predicates as u8",
        )  # fmt: skip
    return dtype


def _offset(key: str) -> int:
    try:
        return int(key, 0)
    except ValueError:
        raise misdescribed("`at` needs offsets in bytes", expected="[parameter.at.64]", got=key) from None


def _in_bytes(described: Mapping[str, Any], packing: Packing) -> dict[str, Any]:
    """The byte array behind a map of packed elements: shape and strides in elements, as for other arrays."""
    sizes: dict[str, Any] = {"dtype": "u8"}
    if "shape" in described:
        sizes["shape"] = [*described["shape"][:-1], packing.bytes(index(described["shape"][-1]))]
    if "strides" in described:
        sizes["strides"] = [packing.bytes(index(each)) for each in described["strides"][:-1]] + [1]
    if "offset" in described:
        sizes["offset"] = packing.bytes(index(described["offset"]))
    return {**described, **sizes}


def _viewed(array: np.ndarray, described: Mapping[str, Any]) -> np.ndarray:
    """A shared array: itself, or its memory from an element on with another shape, type and strides."""
    if not {"shape", "strides", "dtype", "offset"} & set(described):
        return array
    first = index(described.get("offset", 0))
    if first and not (array.flags.c_contiguous and 0 < first < array.size):
        raise misdescribed("an offset needs a dense array", expected=f"1 to {array.size - 1}", got=first)
    if first:
        array = array.reshape(-1)[first:]
    dtype = _element(described).numpy if "dtype" in described else array.dtype
    shape = tuple(index(size) for size in described.get("shape", array.shape))
    steps = [index(stride) * dtype.itemsize for stride in described.get("strides", ())]
    try:
        return np.ndarray(shape, dtype, array if array.flags.c_contiguous else array.base, 0, steps or None)
    except (TypeError, ValueError) as error:
        raise misdescribed(
            f"the shared array cannot be viewed this way: {error}", expected=f"inside {counted(array.nbytes, 'byte')}",
            got=f"shape {shape} of {np.dtype(dtype)}",
        ) from None  # fmt: skip


def _strided(array: np.ndarray, described: Mapping[str, Any]) -> np.ndarray:
    """The array's elements at the described strides, in elements, with zeros in the gaps."""
    if "strides" not in described:
        return array
    strides = tuple(index(stride) for stride in described["strides"])
    if len(strides) != array.ndim or any(stride < 0 for stride in strides):
        raise misdescribed(
            "strides are elements from one index to the next, one for each dimension",
            expected=f"{array.ndim} non-negative numbers", got=list(strides),
        )  # fmt: skip
    span = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True))
    if span * array.itemsize > MOST_BYTES:
        raise misdescribed("these strides need too much memory", got=f"{span * array.itemsize} bytes")
    room = np.zeros(span, array.dtype)
    view: np.ndarray = np.ndarray(array.shape, array.dtype, room, 0, [stride * array.itemsize for stride in strides])
    view[...] = array
    return view


def filled(shape: tuple[int, ...], dtype: DType, fill: object, seed: int | list[int]) -> np.ndarray:
    """A new array. "normal" and "uniform" are small integers for integer types. Raises ArgumentError."""
    if any(size < 0 for size in shape):
        raise misdescribed("sizes of a shape cannot be negative", got=shape)
    size = math.prod(shape) * dtype.numpy.itemsize
    if size > MOST_BYTES:
        raise misdescribed(
            "this array needs too much memory", expected=f"at most {MOST_BYTES >> 30} GiB",
            got=f"{size / (1 << 30):.4g} GiB: shape {list(shape)} of {dtype}",
        )  # fmt: skip
    random = np.random.default_rng(seed)
    if isinstance(fill, (int, float)) and not isinstance(fill, bool):
        values = np.full(shape, fill)
    elif fill not in FILLS:
        raise ArgumentError("unknown fill", expected=f"{', '.join(FILLS)} or a number", got=fill, code="unknown-name",
                            hint=near(str(fill), FILLS))  # fmt: skip
    elif fill == "nan":
        if not dtype.is_float:
            raise misdescribed("integers have no NaN", expected=", ".join(FILLS[:-1]), got=f"{fill} for {dtype}")
        values = np.full(shape, np.nan)
    elif fill == "arange":
        values = np.arange(int(np.prod(shape))).reshape(shape)
    elif fill in ("zeros", "ones"):
        values = np.full(shape, 0 if fill == "zeros" else 1)
    elif dtype.is_float:
        values = random.standard_normal(shape) if fill == "normal" else random.uniform(-1, 1, shape)
    else:
        values = random.integers(-8 if dtype.kind is Kind.SIGNED else 0, 8, shape)
    return np.ascontiguousarray(values.astype(dtype.numpy))


def _listed(values: object, dtype: DType, shape: Sequence[int] | None) -> np.ndarray:
    """A new array of listed elements. Raises ArgumentError for a number that its type cannot hold."""
    try:
        given = np.array(values, np.float64 if dtype.is_float else None)
        array = given.astype(dtype.numpy)
        if not dtype.is_float and (given != array).any():
            raise ValueError(f"{given[given != array].flat[0]} does not fit {dtype}")
        return array if shape is None else array.reshape([int(size) for size in shape])
    except (TypeError, ValueError) as error:
        raise misdescribed(
            f"these are not values of an array: {error}", expected="values = [1, 2, 3]", got=values
        ) from None


def _scalar(described: Mapping[str, Any], usual: DType | None) -> np.generic:
    dtype = dtypes.of(described["dtype"]) if "dtype" in described else usual or dtypes.u64
    if "value" not in described:
        raise misdescribed("a scalar needs a value", expected="value = 1")
    value = described["value"]
    if not isinstance(value, (int, float)) or isinstance(value, float) and not dtype.is_float:
        raise misdescribed(f"this is not a {dtype}", got=repr(value))
    try:
        with np.errstate(over="raise"):
            return dtype.numpy.type(value)
    except (OverflowError, FloatingPointError):
        raise misdescribed(f"the value does not fit {dtype}", got=value) from None
