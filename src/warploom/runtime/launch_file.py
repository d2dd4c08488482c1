"""Launch descriptions: what a PTX text is run with, as a TOML file that lies beside it.

    entry = "gemm"                  # optional where the text has one kernel
    grid = [2, 2, 1]
    block = [128, 1, 1]             # optional where the text says .reqntid
    cluster = [1, 1, 1]
    dynamic_smem = 0                # bytes
    guessed = true                  # written by `warploom check --init`, until somebody has looked at the values

    [[parameter]]                   # one for each .param, in order
    name = "A"                      # optional; checked against the text
    kind = "tensor_map"             # "buffer", "scalar", "tensor_map" or "bytes"
    dtype = "bf16"
    shape = [128, 64]               # outermost first
    fill = "normal"                 # "zeros", "ones", "normal", "uniform", "arange", "nan", a number, or file = "a.npy"
    seed = 1
    box = [64, 64]                  # innermost first, as in PTX
    swizzle = "128B"

`values = [0, 65536]` in place of shape and fill lists the elements of a small array. `same_as = "A"` in a buffer or
tensor map names an earlier parameter whose array it shares. A scalar has `value`. "bytes" is a structure by value:
`size`, and what `hex` says of its first bytes; the rest are zeros.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from .. import asm
from ..errors import ArgumentError
from ..isa import dtypes
from ..isa.dtypes import DType, Kind
from .program import Parameter, Program, program_of, read_text
from .tensor_map import TensorMap

_misdescribed = partial(ArgumentError, code="launch-description")

FILLS = ("zeros", "ones", "normal", "uniform", "arange", "nan")
_TOP = ("entry", "grid", "block", "cluster", "dynamic_smem", "guessed", "parameter")
_ARRAY = ("name", "kind", "dtype", "shape", "fill", "values", "seed", "file", "same_as")
_MAP = ("box", "swizzle", "element_strides", "interleave", "oob_fill", "l2_promotion")
_KEYS = {
    "buffer": _ARRAY,
    "tensor_map": (*_ARRAY, *_MAP),
    "scalar": ("name", "kind", "dtype", "value"),
    "bytes": ("name", "kind", "size", "hex"),
}


@dataclass(frozen=True)
class LaunchFile:
    """A launch description that was read and whose keys are known; values are looked at by `arguments`.

    `guessed`: the values are those `template` wrote; nobody has put in what the kernel expects.
    """

    path: Path
    entry: str | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    dynamic_smem: int = 0
    parameters: tuple[Mapping[str, Any], ...] = field(default=())
    guessed: bool = False

    def program(self, text: str, name: str = "") -> Program:
        """The text with this launch. Raises PtxSyntaxError and ArgumentError as `Program.from_text` does."""
        return Program.from_text(
            text, entry=self.entry, name=name, grid=self.grid, block=self.block, cluster=self.cluster,
            dynamic_smem=self.dynamic_smem,
        )  # fmt: skip

    def arguments(self, program: Program) -> list[Any]:
        """The values of the program's parameters, in order, made anew.

        Raises ArgumentError, naming file and parameter.
        """
        if len(self.parameters) != len(program.parameters):
            names = ", ".join(parameter.name for parameter in program.parameters) or "none"
            raise _misdescribed(
                f"the launch description has another number of parameters than `{program.entry}`", where=str(self.path),
                expected=f"{len(program.parameters)}: {names}", got=len(self.parameters),
            )  # fmt: skip
        made: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for parameter, described in zip(program.parameters, self.parameters, strict=True):
            made[parameter.name] = self._argument(parameter, described, arrays)
        return list(made.values())

    def _argument(self, parameter: Parameter, described: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        name = described.get("name", parameter.name)
        if name != parameter.name:
            raise self.error(
                "a parameter has another name in the text", parameter.name, expected=parameter.name, got=name
            )
        kind = described.get("kind", "tensor_map" if parameter.kind == "tensor_map" else "buffer")
        try:
            if kind == "scalar":
                return _scalar(described, parameter)
            if kind == "bytes":
                data = bytes.fromhex(described.get("hex", ""))
                size = int(described.get("size", len(data) or parameter.size))
                return np.frombuffer(data.ljust(size, b"\0"), np.uint8)
            array = arrays[parameter.name] = self._array(described, parameter.name, arrays)
            if kind == "buffer":
                return array
            options = {key: described[key] for key in _MAP if key in described}
            if "box" not in options:
                raise _misdescribed("a tensor map needs a box", expected="box = [innermost, …]")
            return TensorMap.tiled(array, **options)
        except ArgumentError as error:
            raise self.error(
                error.what, parameter.name, expected=error.expected, got=error.got, hint=error.hint
            ) from None
        except (TypeError, ValueError, OSError, MemoryError) as error:
            raise self.error(f"this value cannot be used: {error}", parameter.name, got=dict(described)) from None

    def _array(self, described: Mapping[str, Any], name: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        if "same_as" in described:
            other = described["same_as"]
            if other not in arrays:
                raise _misdescribed(
                    "`same_as` names no earlier array", expected=", ".join(arrays) or "none yet", got=other
                )
            return arrays[other]
        if "file" in described:
            loaded = np.load(self.path.parent / described["file"], allow_pickle=False)
            if "dtype" in described:
                # .npy has no word for bf16 and fp8: their bytes are stored as integers or voids.
                loaded = loaded.view(dtypes.of(described["dtype"]).numpy)
            return np.ascontiguousarray(loaded)
        if "values" in described and "dtype" in described:
            return _listed(described["values"], dtypes.of(described["dtype"]), described.get("shape"))
        if "dtype" not in described or "shape" not in described:
            raise _misdescribed("an array needs a dtype and a shape", expected='dtype = "f32", shape = [128, 64]')
        dtype = dtypes.of(described["dtype"])
        shape = tuple(index(size) for size in described["shape"])
        # Without a seed each parameter still gets numbers of its own.
        seed = described.get("seed", sum(name.encode()))
        return filled(shape, dtype, described.get("fill", "zeros"), int(seed))

    def error(self, what: str, parameter: str, **parts: Any) -> ArgumentError:
        return ArgumentError(f"parameter `{parameter}`: {what}", where=str(self.path), **parts)


def beside(text: Path, entry: str = "") -> Path:
    """Where the launch description of a text is looked for: gemm.launch.toml beside gemm.ptx.

    entry: of a text with several kernels, the one that gemm.ENTRY.launch.toml describes.
    """
    return text.with_suffix(f".{entry}.launch.toml" if entry else ".launch.toml")


def text_of(description: Path) -> Path:
    """The text that a launch description stands beside: the reverse of `beside`."""
    stem = description.name.removesuffix(".launch.toml")
    names = (stem, stem.rpartition(".")[0])
    return next((path for name in names if (path := description.with_name(f"{name}.ptx")).is_file()),
                description.with_name(f"{stem}.ptx"))  # fmt: skip


def read(path: Path) -> LaunchFile:
    """Read a launch description. Raises ArgumentError for what is no TOML, an unknown key or an unknown kind."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ArgumentError(
            f"the launch description cannot be read: {error.strerror or error}", got=str(path), code="file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _misdescribed(f"the launch description is no TOML: {error}", where=str(path)) from None
    _only(document, _TOP, "the launch description", path)
    parameters = document.get("parameter", [])
    if not isinstance(parameters, list) or not all(isinstance(item, dict) for item in parameters):
        raise _misdescribed("parameters are tables", where=str(path), expected="[[parameter]]")
    for at, parameter in enumerate(parameters):
        kind = parameter.get("kind", "buffer")
        if kind not in _KEYS:
            raise _misdescribed(
                f"parameter {at} has an unknown kind", where=str(path), expected=", ".join(_KEYS), got=kind
            )
        _only(parameter, _KEYS[kind], f"parameter {parameter.get('name', at)}", path)
    return LaunchFile(
        path=path,
        entry=document.get("entry"),
        grid=_sizes(document, "grid", path),
        block=_sizes(document, "block", path),
        cluster=_sizes(document, "cluster", path),
        dynamic_smem=_integer(document.get("dynamic_smem", 0), "dynamic_smem", path),
        parameters=tuple(parameters),
        guessed=_flag(document.get("guessed", False), "guessed", path),
    )


def programs(text: Path, entry: str = "") -> dict[Path, Program]:
    """The kernels of a text, or the one of that name, by the place of its launch description.

    Raises ArgumentError and PtxSyntaxError.
    """
    names = [function.name for function in asm.parse(read_text(text), name=text.name).entries]
    if entry or len(names) < 2:
        return {beside(text, entry if len(names) > 1 else ""): program_of(text, entry=entry or None)}
    return {beside(text, name): program_of(text, entry=name) for name in names}


def template(program: Program) -> str:
    """A launch description of a program, to be filled in: kinds are read off the text, sizes are guesses."""
    block = program.block or (128, 1, 1)
    lines = [
        f"# How `warploom check` runs the kernel `{program.entry}`. Sizes, types and values below are guesses:",
        "# put in what the kernel expects, then delete the next line.",
        "guessed = true",
        f'entry = "{program.entry}"',
        "grid = [1, 1, 1]",
        f"block = {list(block)}" + ("" if program.block else "             # not said by the text"),
        f"cluster = {list(program.cluster)}",
        f"dynamic_smem = {program.dynamic_smem}                # bytes" + _EXTERN * has_extern_shared(program.text),
    ]
    for parameter in program.parameters:
        lines += ["", "[[parameter]]", f'name = "{parameter.name}"', *_template_of(parameter)]
    return "\n".join(lines) + "\n"


_EXTERN = "; the text has .extern .shared memory, so put in how much the launch gives it"


def has_extern_shared(text: str) -> bool:
    """Whether the text has shared memory whose size the launch gives (PTX ISA 5.4, .extern .shared)."""
    return re.search(r"\.extern\s+\.shared\b", text) is not None


def _template_of(parameter: Parameter) -> list[str]:
    array = [
        "shape = [1024]                 # outermost first",
        f'fill = "normal"                # {", ".join(FILLS)}, a number',
    ]
    if parameter.kind == "tensor_map":
        return [
            'kind = "tensor_map"', 'dtype = "bf16"', "shape = [128, 64]              # outermost first", array[1],
            "box = [64, 64]                 # innermost first", 'swizzle = "128B"               # NONE, 32B, 64B, 128B',
        ]  # fmt: skip
    if parameter.kind == "scalar":
        return ['kind = "scalar"', f'dtype = "{parameter.dtype or "u32"}"', "value = 1"]
    if parameter.kind == "blob":
        return ['kind = "bytes"', f"size = {parameter.size}", f'hex = "{"00" * parameter.size}"']
    return [
        'kind = "buffer"                # or "scalar", dtype "u64", if it is a number',
        'dtype = "f32"',
        *array,
    ]


def filled(shape: tuple[int, ...], dtype: DType, fill: object, seed: int) -> np.ndarray:
    """A new array. "normal" and "uniform" are small whole numbers for integer types. Raises ArgumentError."""
    if any(size < 0 for size in shape):
        raise _misdescribed("a shape has no negative sizes", got=shape)
    random = np.random.default_rng(seed)
    if isinstance(fill, (int, float)) and not isinstance(fill, bool):
        values = np.full(shape, fill)
    elif fill not in FILLS:
        raise ArgumentError("unknown fill", expected=f"{', '.join(FILLS)} or a number", got=fill, code="unknown-name")
    elif fill == "nan":
        if not dtype.is_float:
            raise _misdescribed("integers have no NaN", expected=", ".join(FILLS[:-1]), got=f"{fill} for {dtype}")
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
    """A new array of listed elements. Raises ArgumentError for a number its type does not hold."""
    try:
        given = np.array(values, np.float64 if dtype.is_float else None)
        array = given.astype(dtype.numpy)
        if not dtype.is_float and (given != array).any():
            raise ValueError(f"{given[given != array].flat[0]} does not fit {dtype}")
        return array if shape is None else array.reshape([int(size) for size in shape])
    except (TypeError, ValueError) as error:
        raise _misdescribed(
            f"these are not values of an array: {error}", expected="values = [1, 2, 3]", got=values
        ) from None


def _scalar(described: Mapping[str, Any], parameter: Parameter) -> np.generic:
    dtype = dtypes.of(described["dtype"]) if "dtype" in described else parameter.dtype or dtypes.u64
    if "value" not in described:
        raise _misdescribed("a scalar needs a value", expected="value = 1")
    value = described["value"]
    if not isinstance(value, (int, float)) or isinstance(value, float) and not dtype.is_float:
        raise _misdescribed(f"this is no {dtype}", got=repr(value))
    try:
        return dtype.numpy.type(value)
    except OverflowError:
        raise _misdescribed(f"the value does not fit {dtype}", got=value) from None


def _only(table: Mapping[str, Any], known: tuple[str, ...], what: str, path: Path) -> None:
    if unknown := [key for key in table if key not in known]:
        raise _misdescribed(f"{what} has an unknown key", where=str(path), expected=", ".join(known), got=unknown[0])


def _sizes(document: Mapping[str, Any], name: str, path: Path) -> tuple[int, ...]:
    value = document.get(name, [])
    values = [value] if isinstance(value, int) else value
    if not isinstance(values, list) or len(values) > 3:
        raise _misdescribed(f"{name} is one to three sizes", where=str(path), expected=f"{name} = [x, y, z]", got=value)
    return tuple(_integer(size, name, path) for size in values)


def _flag(value: object, name: str, path: Path) -> bool:
    if not isinstance(value, bool):
        raise _misdescribed(f"{name} is yes or no", where=str(path), expected=f"{name} = true", got=repr(value))
    return value


def _integer(value: object, name: str, path: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _misdescribed(f"{name} is not a size", where=str(path), expected="a whole number", got=repr(value))
    return value


__all__ = ["FILLS", "LaunchFile", "beside", "filled", "read", "template"]
