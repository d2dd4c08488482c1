"""Turns the arguments of a call into values of the entry's parameters, the same for both machines.

A kernel's program names its arrays; their sizes determine the grid, the scalars and the tensor maps. A foreign text
names nothing, so its arguments are its parameters in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError, WarploomError
from ..isa import arch as arches
from ..isa import dtypes
from ..isa.launch import broken_limit
from ..isa.tensor_map import MAP_BYTES
from ..plural import counted
from .arrays import ArrayView, is_array, view
from .machine import Machine
from .multimem import Multimem
from .program import Parameter, Program, stride_source
from .struct import Struct
from .tensor_map import TensorMap, bound, named
from .validate import check_writable, dims_of, scalar_of, three, whole

_wrong_arguments = partial(ArgumentError, code="wrong-arguments")
_wrong_layout = partial(ArgumentError, code="wrong-layout")
_wrong_shape = partial(ArgumentError, code="wrong-shape")
_wrong_type = partial(ArgumentTypeError, code="wrong-type")

Value: TypeAlias = "ArrayView | TensorMap | np.generic | Struct | Multimem"
"""A parameter's value: an address (of one array or several), a tensor map, bytes by value, or a structure of these."""


@dataclass(frozen=True)
class Bound:
    """A checked call with its parameter values.

    Attributes:
        values: one per parameter of the entry, in order.
        views: the arrays of the call, in order of the program's `arrays` (of a text: of the parameters).
        names: names of those arrays.
        dims: sizes by name.
        grid, block, cluster: (x, y, z).
        dynamic_smem: bytes.
    """

    program: Program
    values: tuple[Value, ...]
    views: tuple[ArrayView, ...]
    names: tuple[str, ...]
    dims: Mapping[str, int]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_smem: int

    def describe(self) -> str:
        """The arguments in words: `A` bf16 (128, 64) on cuda:0, …"""
        return ", ".join(
            f"`{name}` {array.dtype} {array.shape} on {array.place}"
            for name, array in zip(self.names, self.views, strict=True)
        )


@dataclass(frozen=True)
class Shape:
    """Launch shape given by a call instead of the program; None keeps the program's value."""

    grid: Any = None
    block: Any = None
    cluster: Any = None
    dynamic_smem: int | None = None


@dataclass
class Arguments:
    """The arguments of a call by role, before they are checked."""

    arrays: list[ArrayView] = field(default_factory=list)
    scalars: dict[str, Any] = field(default_factory=dict)
    rest: tuple[Any, ...] = ()


def bind(program: Program, arguments: Arguments, machine: Machine, shape: Shape | None = None) -> Bound:
    """Check a call and compute the values of its parameters.

    Raises ArgumentError or ArgumentTypeError that name the argument, the expectation and what was passed.
    """
    shape = shape or Shape()
    if program.arrays:
        dims = dims_of(program, arguments.arrays)
        views = {spec.name: array for spec, array in zip(program.arrays, arguments.arrays, strict=True)}
        values = tuple(_value(program, parameter, views, dims, arguments.scalars) for parameter in program.parameters)
    else:
        dims = dict(program.dims)
        values, views = _positional(program, arguments.rest)
    grid = _grid(program, shape, dims, machine)
    block = three(shape.block if shape.block is not None else program.block or _missing(program, "block"), "block")
    cluster = three(shape.cluster if shape.cluster is not None else program.cluster, "cluster")
    smem = program.dynamic_smem if shape.dynamic_smem is None else whole(shape.dynamic_smem, "dynamic_smem")
    broken = broken_limit(arches.get(machine.arch), block, cluster, grid, smem)
    if broken is not None:
        what, expected, got = broken
        raise ArgumentError(f"{program.title}: {what}", expected=expected, got=got, code="launch-shape")
    return Bound(program, values, tuple(views.values()), tuple(views), dims, grid, block, cluster, smem)


def _grid(program: Program, shape: Shape, dims: Mapping[str, int], machine: Machine) -> tuple[int, int, int]:
    rule = shape.grid if shape.grid is not None else program.grid
    if callable(rule):
        rule = rule(dims, machine)
    if isinstance(rule, int):
        rule = (rule,)
    return three(rule or _missing(program, "grid"), "grid")


def _missing(program: Program, what: str) -> Any:
    raise _wrong_arguments(f"{program.title} does not give its {what}", expected=f"{what}=(x, y, z)", got="nothing")


# -- a kernel's own parameters -----------------------------------------------------------------------------------


def _value(
    program: Program,
    parameter: Parameter,
    views: Mapping[str, ArrayView],
    dims: Mapping[str, int],
    scalars: Mapping[str, Any],
) -> Value:
    source = parameter.source
    if parameter.kind in ("pointer", "tensor_map"):
        if source not in views:
            raise ArgumentError(f"parameter `{parameter.name}` of {program.title} names an unknown array", got=source)
        array = views[source]
        return array if parameter.kind == "pointer" else _map(parameter, array, source)
    if parameter.value is not None:
        number: Any = parameter.value(dims)
    elif source in dims:
        number = dims[source]
    elif (stride := stride_source(source)) is not None and stride[0] in views:
        array = views[stride[0]]
        number = array.strides[stride[1]] // array.dtype.bytes
    elif source in scalars:
        number = scalars[source]
    else:
        raise _wrong_arguments(
            f"{program.title} needs a value for `{source}`", expected=str(parameter.dtype), got="nothing"
        )
    return scalar_of(number, parameter.dtype, source, program.title)


def _map(parameter: Parameter, array: ArrayView, name: str) -> TensorMap:
    if parameter.map is None:
        raise ArgumentError(f"parameter `{parameter.name}` has no rule that makes a tensor map of `{name}`")
    try:
        return bound(parameter.map(array.shape, array.strides, array.dtype), array, name)
    except WarploomError as error:
        raise named(error, name) from None


# -- a foreign text's parameters ---------------------------------------------------------------------------------


def _positional(program: Program, arguments: Sequence[Any]) -> tuple[tuple[Value, ...], dict[str, ArrayView]]:
    wanted = program.parameters
    if len(arguments) != len(wanted):
        listing = ", ".join(f"{parameter.name}: {_kind(parameter)}" for parameter in wanted)
        raise _wrong_arguments(
            f"entry `{program.entry}` takes {counted(len(wanted), 'argument')}",
            expected=f"({listing})",
            got=counted(len(arguments), "argument"),
        )
    values: list[Value] = []
    views: dict[str, ArrayView] = {}
    for parameter, argument in zip(wanted, arguments, strict=True):
        value = _foreign(program, parameter, argument)
        values.append(value)
        if isinstance(value, ArrayView):
            views[parameter.name] = value
        elif isinstance(value, TensorMap):
            views[parameter.name] = value.array
        elif isinstance(value, Struct):
            views |= dict(value.arrays(parameter.name))
        elif isinstance(value, Multimem):
            views |= dict(value.named(parameter.name))
    return tuple(values), views


def _kind(parameter: Parameter) -> str:
    if parameter.kind == "pointer":
        return "an array, or a 64-bit integer"
    if parameter.kind == "scalar":
        return str(parameter.dtype)
    return "TensorMap" if parameter.kind == "tensor_map" else counted(parameter.size, "byte")


def _foreign(program: Program, parameter: Parameter, argument: Any) -> Value:
    name, title = parameter.name, program.title
    if isinstance(argument, TensorMap):
        if parameter.kind != "tensor_map":
            raise _wrong_type(
                f"argument `{name}` of {title} is a tensor map, but its parameter is not",
                expected=f"{_kind(parameter)}; pass a tensor map by value, as .param .align 64 .b8 {name}[{MAP_BYTES}]",
                got="TensorMap",
            )
        return argument
    if isinstance(argument, Multimem):
        if parameter.kind != "pointer":
            raise _wrong_type(
                f"argument `{name}` of {title} is a multimem address, but its parameter is not a pointer",
                expected=_kind(parameter), got="Multimem",
            )  # fmt: skip
        return argument.bound(name)
    if isinstance(argument, Struct):
        return _structure(parameter, argument, title)
    if parameter.kind in ("tensor_map", "blob"):
        return _blob(parameter, argument, title)
    if is_array(argument) and not (isinstance(argument, np.ndarray) and argument.ndim == 0):
        if parameter.kind != "pointer":
            raise _wrong_type(
                f"argument `{name}` of {title} is an array, but its parameter is a value",
                expected=parameter.dtype,
                got=view(argument, name).describe(),
            )
        array = view(argument, name)
        if array.size == 0:
            raise _wrong_shape(
                f"argument `{name}` of {title} is empty", expected="at least one element", got=f"shape {array.shape}"
            )
        if array.pointer % array.dtype.bytes:
            raise _wrong_layout(
                f"argument `{name}` of {title} is misaligned",
                expected=f"an address that is a multiple of {array.dtype.bytes}, the bytes of a {array.dtype}",
                got=f"{counted(array.pointer % array.dtype.bytes, 'byte')} past one",
                consequence="the kernel's first access fails on the GPU",
                hint="copy it: np.array(…)",
            )
        if parameter.writes:
            check_writable(program, name, array)
        return array
    if parameter.kind == "pointer":
        return _word(argument, name, title)
    return scalar_of(argument, parameter.dtype, name, title)


def _structure(parameter: Parameter, argument: Struct, title: str) -> Struct:
    if parameter.kind == "scalar" or parameter.kind != "pointer" and parameter.size != argument.size:
        raise _wrong_type(
            f"argument `{parameter.name}` of {title} is a structure of {counted(argument.size, 'byte')}",
            expected=_kind(parameter), got="Struct",
        )  # fmt: skip
    return argument.bound(parameter.name)


def _word(argument: Any, name: str, title: str) -> np.generic:
    """A number for a 64-bit parameter."""
    if isinstance(argument, (np.generic, np.ndarray)) and argument.dtype.itemsize != 8:
        raise _wrong_type(
            f"argument `{name}` of {title} has the wrong width", expected="an array or 64 bits", got=str(argument.dtype)
        )
    return scalar_of(argument, dtypes.b64, name, title)


def _blob(parameter: Parameter, argument: Any, title: str) -> np.generic:
    data = bytes(argument) if isinstance(argument, (bytes, bytearray, memoryview)) else None
    if isinstance(argument, (np.generic, np.ndarray)):
        data = argument.tobytes()
    if data is None or len(data) != parameter.size:
        raise _wrong_type(
            f"argument `{parameter.name}` of {title} is {counted(parameter.size, 'byte')} by value",
            expected="TensorMap.tiled(array, box=…)"
            if parameter.kind == "tensor_map"
            else counted(parameter.size, "byte"),
            got=type(argument).__name__ if data is None else counted(len(data), "byte"),
        )
    return np.void(data)
