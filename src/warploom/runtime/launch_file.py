"""Launch descriptions: how to run a PTX text, as a TOML file next to it.

    entry = "gemm"                  # optional if the text has one kernel
    grid = [2, 2, 1]
    block = [128, 1, 1]             # optional if the text has .reqntid
    cluster = [1, 1, 1]
    dynamic_smem = 0                # bytes
    guessed = true                  # written by `warploom check --init`, until somebody has reviewed the values

    [[parameter]]                   # one for each .param, in order
    name = "A"                      # optional; checked against the text
    kind = "tensor_map"             # "buffer", "scalar", "tensor_map" or "bytes"
    dtype = "bf16"
    shape = [128, 64]               # outermost first
    fill = "normal"                 # "zeros", "ones", "normal", "uniform", "arange", "nan", a number, or file = "a.npy"
    seed = 1
    box = [64, 64]                  # innermost first, as in PTX
    swizzle = "128B"

    as = "weights"                  # optional: the name of its array in messages and [[expect]]

    [[expect]]                      # optional: what an array must hold after the run
    name = "C"
    value = "A @ B.T"               # of the arrays before the run; or file = "c.npy", or kernel = "reference.ptx"
    rtol = 0.01                     # optional, like atol

`values = [0, 65536]` instead of shape and fill lists the elements of a small array; `strides`, in elements, outermost
first, gives the array of a buffer or map gaps. `same_as = "A"` shares an earlier array, optionally from element
`offset` on, or with another shape, type or strides. A scalar has `value`. "bytes" is a structure by value: `size`, its
first bytes as `hex`, and parts at some of its offsets, each described like a parameter:

    [parameter.at.64]               # a tensor map, a scalar, a buffer (its address) or bytes (their address)
    name = "A"
    kind = "buffer"
    dtype = "f32"
    shape = [64]

`devices = 4` at the top runs the grid on four GPUs, and `calls = 2` twice on each. Each GPU then has its own
parameters, with the same shape and other random numbers; `value`, `fill`, `file`, `seed` and `same_as` may be lists by
rank. An array with `device = 1` is in the memory of GPU 1 and passed to all:

    [[parameter]]
    name = "inbox_of_1"
    dtype = "f32"
    shape = [64]
    device = 1

    [[parameter]]
    name = "rank"
    kind = "scalar"
    value = [0, 1, 2, 3]

kind = "multimem" is the address of several such arrays, `of = ["x_of_0", "x_of_1"]`. In [[expect]] an array that each
GPU has separately gets one more outermost dimension, the rank: `value = "A.sum(0)"` is the result of an all-reduce.

A tensor map whose dtype is "b4x16", "b4x16_p64" or "b6x16_p32" counts packed elements of an array of bytes.
`[[shared]]` names arrays in shared memory, see `launch_shared`.

`multiprocessors = 2` at the top emulates a GPU of that size, so that a grid does not fit at once, and
`launch_control = "random"` sets the answer to requests for clusters that have not started (`Machine.launch_control`).

For a parameter that is a pointer, "bytes" are in global memory. `dependent = true` at the top launches the kernel
so that it may overlap the end of the preceding grid (programmatic dependent launch); `dependent = ["x"]` also names
the arrays that that grid writes, and `dependent = false` says that it has finished.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import asm
from ..errors import ArgumentError, ArgumentTypeError
from ..near import near
from . import launch_shared
from .devices import count_of
from .launch_guess import guesses, has_extern_shared, template
from .launch_keys import check_values
from .launch_values import FILLS, MAP_KEYS, Given, PeerArguments, Values, filled, misdescribed
from .machine import for_arch
from .program import Parameter, Program, program_of, read_text

_NOT_IN_FILE_NAMES = re.compile(r"[^\w.$%@-]")
"""Characters that only names in quotes have."""
LONGEST = 120
"""Characters of a kernel's name in a file name; C++ templates are longer than file systems allow."""
_TOP = ("entry", "grid", "block", "cluster", "dynamic_smem", "guessed", "dependent", "parameter", "expect",
        "shared", "devices", "calls", "multiprocessors", "launch_control")  # fmt: skip
_ARRAY = ("name", "as", "kind", "dtype", "shape", "strides", "fill", "values", "seed", "file", "same_as", "offset",
          "device")  # fmt: skip
_EXPECT = ("name", "value", "file", "kernel", "rtol", "atol")
_KEYS = {
    "buffer": _ARRAY,
    "tensor_map": (*_ARRAY, *MAP_KEYS),
    "scalar": ("name", "as", "kind", "dtype", "value"),
    "bytes": ("name", "as", "kind", "size", "hex", "at"),
    "multimem": ("name", "as", "kind", "of"),
}


@dataclass(frozen=True)
class LaunchValues:
    """The values made from a launch description.

    Attributes:
        arguments: of the program's parameters, in order; on several GPUs, each a list by rank.
        arrays: by name; a list by rank if each GPU has its own.
        launch: further arguments of `emulate`: `devices`, `calls` and `held`, and `machine` if it is described.
    """

    arguments: list[Any]
    arrays: dict[str, Given]
    launch: dict[str, Any]


@dataclass(frozen=True)
class LaunchFile:
    """A launch description whose keys have been checked; `arguments` checks the values.

    `guessed`: the values are those written by `template`; nobody has entered what the kernel expects. `guesses`: the
    lines that are guesses, each with its parameter in front: "n.value = 1".
    """

    path: Path
    entry: str | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    dynamic_smem: int = 0
    parameters: tuple[Mapping[str, Any], ...] = field(default=())
    guessed: bool = False
    dependent: bool | None = None
    written_in_front: tuple[str, ...] = ()
    expect: tuple[Mapping[str, Any], ...] = ()
    shared: tuple[Mapping[str, Any], ...] = ()
    guesses: tuple[str, ...] = ()
    devices: int = 1
    calls: int = 1
    machine: Mapping[str, Any] = field(default_factory=dict)

    def program(self, text: str, name: str = "") -> Program:
        """The text with this launch. Raises PtxSyntaxError and ArgumentError like `Program.from_text`."""
        program = Program.from_text(
            text, entry=self.entry, name=name, grid=self.grid, block=self.block, cluster=self.cluster,
            dynamic_smem=self.dynamic_smem, pdl=self.dependent,
        )  # fmt: skip
        called = [described.get("as", "") for described in self.parameters]
        called += [""] * (len(program.parameters) - len(called))
        named = zip(program.parameters, called, strict=False)
        return replace(
            program, parameters=tuple(replace(one, argument=name) for one, name in named),
            shared_parts=launch_shared.parts(text, self.shared, self.path),
            guessed=self.path.name if self.guessed else "", written_in_front=self.written_in_front,
        )  # fmt: skip

    def arguments(self, program: Program) -> list[Any]:
        """New values of the program's parameters, in order; on several GPUs, each a list by rank.

        Raises ArgumentError, naming file and parameter.
        """
        return self.made(program).arguments

    def made(self, program: Program, given: Mapping[str, Given] | None = None) -> LaunchValues:
        """Like `arguments`, with their arrays by name, including those in structures, and what else a launch needs.

        given: arrays to use instead of new ones, by name.
        """
        if len(self.parameters) != len(program.parameters):
            names = ", ".join(parameter.name for parameter in program.parameters) or "none"
            raise misdescribed(
                f"the number of parameters in the launch description is not `{program.entry}`'s", where=str(self.path),
                expected=f"{len(program.parameters)}: {names}", got=len(self.parameters),
            )  # fmt: skip
        pairs = list(zip(program.parameters, self.parameters, strict=True))
        common = PeerArguments()
        gpus = [Values(self.path.parent, given, rank, self.devices, common) for rank in range(self.devices)]
        for parameter, described in pairs:  # arrays passed to all GPUs come before any GPU's own
            self._each(parameter, described, gpus[0].share)
        by_rank = [[self._argument(*pair, gpu) for pair in pairs] for gpu in gpus]
        arguments = by_rank[0] if self.devices == 1 else [list(each) for each in zip(*by_rank, strict=True)]
        own = {name: [gpu.arrays[name] for gpu in gpus] for name in gpus[0].arrays}
        arrays = {name: each[0] if self.devices == 1 or name in common.arrays else each for name, each in own.items()}
        if unknown := [name for name in self.written_in_front if name not in arrays]:
            raise misdescribed(
                "`dependent` names an unknown array of the launch", where=str(self.path),
                expected=", ".join(arrays) or "arrays", got=unknown[0],
            )  # fmt: skip
        held = [[common.arrays[name] for name, at in common.holders.items() if at == rank] for rank in
                range(self.devices if common.holders else 0)]  # fmt: skip
        machine = {"machine": replace(for_arch(program.arch), **self.machine)} if self.machine else {}
        return LaunchValues(arguments, arrays, {"devices": self.devices, "calls": self.calls, "held": held, **machine})

    def _argument(self, parameter: Parameter, described: Mapping[str, Any], values: Values) -> Any:
        return self._each(parameter, described, values.argument)

    def _each(
        self, parameter: Parameter, described: Mapping[str, Any], make: Callable[[Parameter, Mapping[str, Any]], Any]
    ) -> Any:
        name = parameter.source
        try:
            if described.get("name", parameter.name) not in (parameter.name, name):
                raise misdescribed(
                    "a parameter has a different name in the text", expected=parameter.name, got=described["name"],
                    hint=call_it(described["name"]),
                )  # fmt: skip
            return make(replace(parameter, name=name), described)
        except ArgumentError as error:
            raise self.error(error.what, name, expected=error.expected, got=error.got, hint=error.hint) from None
        except (TypeError, ValueError, OSError, MemoryError) as error:
            raise self.error(f"this value cannot be used: {error}", name, got=dict(described)) from None

    def error(self, what: str, parameter: str, **parts: Any) -> ArgumentError:
        return misdescribed(f"parameter `{parameter}`: {what}", where=str(self.path), **parts)


def call_it(name: str) -> str:
    """The hint for an array that shall have another name than its parameter."""
    return f'`as = "{name}"` in a [[parameter]] calls its array so, whatever the parameter is called'


def beside(text: Path, entry: str = "") -> Path:
    """The path of a text's launch description: gemm.launch.toml next to gemm.ptx.

    entry: for a text with several kernels, the one that gemm.ENTRY.launch.toml describes. A mangled name that is too
        long for a file name, or has other characters, is changed and made unique by a hash.
    """
    if len(entry) > LONGEST or _NOT_IN_FILE_NAMES.search(entry):
        shown = _NOT_IN_FILE_NAMES.sub("_", entry[: LONGEST - 9])
        entry = f"{shown}~{hashlib.sha256(entry.encode()).hexdigest()[:8]}"
    return text.with_suffix(f".{entry}.launch.toml" if entry else ".launch.toml")


def text_of(description: Path) -> Path:
    """The text to which a launch description belongs: the reverse of `beside`."""
    stem = description.name.removesuffix(".launch.toml")
    names = (stem, stem.rpartition(".")[0])
    return next((path for name in names if (path := description.with_name(f"{name}.ptx")).is_file()),
                description.with_name(f"{stem}.ptx"))  # fmt: skip


def read(path: Path) -> LaunchFile:
    """Read a launch description. Raises ArgumentError for what is not TOML, an unknown key or an unknown kind."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except OSError as error:
        raise ArgumentError(
            f"the launch description cannot be read: {error.strerror or error}", got=str(path), code="file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise misdescribed(f"the launch description is not TOML: {error}", where=str(path)) from None
    _only(document, _TOP, "the launch description", path)
    parameters = _tables(document, "parameter", path)
    for at, parameter in enumerate(parameters):
        _known(parameter, f"parameter {parameter.get('name', at)}", path)
    expect = _tables(document, "expect", path)
    shared = _tables(document, "shared", path)
    for one in shared:
        _only(one, launch_shared.KEYS, "[[shared]]", path)
    for one in expect:
        _only(one, _EXPECT, "[[expect]]", path)
        _strings(one, ("name", "file", "kernel"), "[[expect]]", path)
        for key in ("rtol", "atol"):
            _tolerance(one.get(key, 0), key, path)
        if "name" not in one or sum(key in one for key in ("value", "file", "kernel")) != 1:
            raise misdescribed(
                "[[expect]] names an array and says what it must hold", where=str(path),
                expected="name, and one of value, file and kernel", got=dict(one),
            )  # fmt: skip
    try:
        devices, calls = count_of(document.get("devices", 1), document.get("calls", 1))
    except (ArgumentError, ArgumentTypeError) as error:
        raise misdescribed(error.what, where=str(path), expected=error.expected, got=error.got) from None
    _strings(document, ("entry",), "the launch description", path)
    dependent, in_front = _dependent(document.get("dependent"), path)
    return LaunchFile(
        path=path,
        entry=document.get("entry"),
        grid=_sizes(document, "grid", path),
        block=_sizes(document, "block", path),
        cluster=_sizes(document, "cluster", path),
        dynamic_smem=_integer(document.get("dynamic_smem", 0), "dynamic_smem", path),
        parameters=tuple(parameters),
        guessed=_flag(document.get("guessed", False), "guessed", path),
        dependent=dependent,
        written_in_front=in_front,
        expect=tuple(expect),
        shared=tuple(shared),
        guesses=guesses(text) if document.get("guessed") else (),
        devices=devices,
        calls=calls,
        machine=_machine(document, path),
    )


def _machine(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """What the description says about the GPU to emulate, by the names of `Machine`'s attributes."""
    named = {"multiprocessors": "sms", "launch_control": "launch_control"}
    given = {name: document[key] for key, name in named.items() if key in document}
    try:
        replace(for_arch("sm_100a"), **given)
    except (ArgumentError, ArgumentTypeError) as error:
        raise misdescribed(error.what, where=str(path), expected=error.expected, got=error.got) from None
    return given


def _tables(document: Mapping[str, Any], name: str, path: Path) -> list[Any]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise misdescribed(f"{name} is not a list of tables", where=str(path), expected=f"[[{name}]]")
    return found


def programs(text: Path, entry: str = "") -> dict[Path, Program]:
    """The kernels of a text, or the one of that name, by the path of its launch description.

    Raises ArgumentError and PtxSyntaxError.
    """
    names = [function.name for function in asm.parse(read_text(text), name=text.name).entries]
    if entry or len(names) < 2:
        found = program_of(text, entry=entry or None)
        return {beside(text, found.entry if len(names) > 1 else ""): found}
    return {beside(text, name): program_of(text, entry=name) for name in names}


def _known(described: Mapping[str, Any], what: str, path: Path) -> None:
    """Raise ArgumentError for an unknown kind or key of a parameter, or of a part of one."""
    _strings(described, ("name", "as", "kind"), what, path)
    kind = described.get("kind", "buffer")
    if kind not in _KEYS:
        raise misdescribed(f"{what} has an unknown kind", where=str(path), expected=", ".join(_KEYS), got=kind,
                           hint=near(kind, _KEYS))  # fmt: skip
    _only(described, _KEYS[kind], what, path)
    check_values(described, what, path)
    parts = described.get("at", {})
    if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        raise misdescribed(f"`at` of {what} is not by offset", where=str(path), expected="[parameter.at.64]", got=parts)
    for offset, part in parts.items():
        _known(part, f"{what} at {offset}", path)


def _only(table: Mapping[str, Any], known: tuple[str, ...], what: str, path: Path) -> None:
    if unknown := [key for key in table if key not in known]:
        raise misdescribed(f"{what} has an unknown key", where=str(path), expected=", ".join(known), got=unknown[0],
                           hint=near(unknown[0], known))  # fmt: skip


def _strings(table: Mapping[str, Any], keys: tuple[str, ...], what: str, path: Path) -> None:
    for key in keys:
        if not isinstance(table.get(key, ""), str):
            raise misdescribed(f"`{key}` of {what} is not a name", where=str(path), expected=f'{key} = "..."',
                               got=repr(table[key]))  # fmt: skip


def _tolerance(value: object, name: str, path: Path) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise misdescribed(f"{name} of [[expect]] is not a tolerance", where=str(path), expected="a number from 0 on",
                           got=repr(value))  # fmt: skip


def _sizes(document: Mapping[str, Any], name: str, path: Path) -> tuple[int, ...]:
    value = document.get(name, [])
    values = [value] if isinstance(value, int) else value
    if not isinstance(values, list) or len(values) > 3:
        raise misdescribed(f"{name} is one to three sizes", where=str(path), expected=f"{name} = [x, y, z]", got=value)
    return tuple(_integer(size, name, path) for size in values)


def _flag(value: object, name: str, path: Path) -> bool:
    if not isinstance(value, bool):
        raise misdescribed(f"{name} is not true or false", where=str(path), expected=f"{name} = true", got=repr(value))
    return value


def _dependent(value: object, path: Path) -> tuple[bool | None, tuple[str, ...]]:
    """True if the launch overlaps the preceding grid, and the arrays that that grid writes, if they are named. None if
    nothing is said."""
    if value is None:
        return None, ()
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return True, tuple(value)
    return _flag(value, "dependent", path), ()


def _integer(value: object, name: str, path: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise misdescribed(f"{name} is not a size", where=str(path), expected="an integer, at least 0", got=repr(value))
    return value


__all__ = ["FILLS", "LaunchFile", "beside", "filled", "has_extern_shared", "read", "template"]
