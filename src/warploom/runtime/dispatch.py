"""Chooses the machine for a call: the one its arrays are on.

Arrays on one GPU run there, arrays in host memory run in the emulator, a mixture is refused. This module also assigns
positional arguments to roles, and creates outputs that a call omits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any

from ..errors import ArgumentError, ArgumentTypeError
from ..plural import counted
from .arrays import ArrayView, empty_like_kind, is_array, view
from .bind import Arguments
from .multimem import Multimem
from .program import WORKSPACE, Program
from .struct import Struct
from .tensor_map import TensorMap
from .validate import dims_of

_wrong_arguments = partial(ArgumentTypeError, code="wrong-arguments")
_wrong_device = partial(ArgumentError, code="wrong-device")
_wrong_shape = partial(ArgumentError, code="wrong-shape")


@dataclass(frozen=True)
class Call:
    """The arguments of a call, by role.

    Attributes:
        given: the arrays as passed, in the order of the program's `arrays`; None for an output to be created, and for a
            workspace.
        scalars: values by parameter name.
        rest: the positional arguments of a foreign text.
    """

    program: Program
    given: tuple[Any, ...]
    scalars: Mapping[str, Any]
    rest: tuple[Any, ...] = ()


def sort_out(program: Program, args: Sequence[Any], out: Any, scalars: Mapping[str, Any]) -> Call:
    """Assign arguments to roles. Positional: inputs, then optionally outputs, then scalars.

    Raises ArgumentTypeError for a wrong number of arguments or an unknown keyword.
    """
    if not program.arrays:
        if out is not None or scalars:
            raise _wrong_arguments(
                f"{program.title} is a PTX text: its arguments are its parameters, in order",
                got=f"keyword {next(iter(scalars), 'out')}=",
            )
        return Call(program, (), {}, tuple(args))
    args = flat_peers(program, args)
    names = [parameter.source for parameter in program.scalars]
    if unknown := [name for name in scalars if name not in names]:
        raise _wrong_arguments(
            f"{program.title} takes no argument `{unknown[0]}`", expected=_signature(program), got=f"{unknown[0]}="
        )
    missing = list(dict.fromkeys(name for name in names if name not in scalars))
    outs = [spec for spec in program.arrays if spec.role == "out"]
    passed = [spec for spec in program.arrays if spec.role != WORKSPACE]
    inputs = len(passed) - len(outs)
    outputs: list[Any] = [None] * len(outs) if out is None else list(out) if isinstance(out, (tuple, list)) else [out]
    if len(outputs) != len(outs):
        raise _wrong_arguments(
            f"{program.title} has {len(outs)} outputs", expected=_signature(program), got=f"out= with {len(outputs)}"
        )
    values = dict(scalars)
    if len(args) == inputs + len(missing):
        arrays, last = list(args[:inputs]), args[inputs:]
    elif len(args) == len(passed) + len(missing) and out is None:
        in_order, last = iter(args[: len(passed)]), args[len(passed) :]
        every = tuple(None if spec.role == WORKSPACE else next(in_order) for spec in program.arrays)
        return Call(program, every, {**values, **dict(zip(missing, last, strict=True))})
    else:
        raise _wrong_arguments(
            f"{program.title} is called with the wrong arguments",
            expected=_signature(program),
            got=f"{len(args)} positional arguments",
        )
    source, sink = iter(arrays), iter(outputs)
    sources = {"out": sink, WORKSPACE: repeat(None)}
    given = tuple(next(sources.get(spec.role, source)) for spec in program.arrays)
    return Call(program, given, {**values, **dict(zip(missing, last, strict=True))})


def flat_peers(program: Program, args: Sequence[Any]) -> Sequence[Any]:
    """The positional arguments with the arrays of a group of GPUs flattened; they are passed as a list by rank.

    Raises ArgumentTypeError for a list of another length.
    """
    if not any(spec.peers for spec in program.arrays):
        return args
    inputs = [spec for spec in program.arrays if spec.role in ("in", "inout")]
    if len(args) >= len(inputs) and not any(isinstance(argument, (list, tuple)) for argument in args):
        return args  # already flat
    flat: list[Any] = []
    for argument in args:
        spec = inputs[len(flat)] if len(flat) < len(inputs) else None
        if spec is None or not spec.peers:
            flat.append(argument)
            continue
        if not isinstance(argument, (list, tuple)) or len(argument) != spec.peers:
            raise _wrong_arguments(
                f"{program.title} takes one array for each GPU of a group",
                expected=f"a list of {counted(spec.peers, 'array')}, by rank",
                got=f"a list of {len(argument)}" if isinstance(argument, (list, tuple)) else type(argument).__name__,
            )
        flat += argument
    return flat


def _signature(program: Program) -> str:
    outs = [spec.name for spec in program.arrays if spec.role == "out"]
    words = [spec.name for spec in program.arrays if spec.role not in ("out", WORKSPACE)]
    words += [f"[{name}]" for name in outs] + [parameter.source for parameter in program.scalars]
    return f"{program.title}({', '.join(words)})"


def look(call: Call) -> list[ArrayView | None]:
    """The views of a call's arrays; None for an output to be created."""
    return [
        None if value is None and spec.role in ("out", WORKSPACE) else view(value, spec.name)
        for spec, value in zip(call.program.arrays, call.given, strict=True)
    ]


def place(program: Program, named: Sequence[tuple[str, ArrayView]]) -> tuple[str, int]:
    """("cpu", 0) or ("cuda", index): where all arrays are. Raises ArgumentError for a mixture, naming each."""
    peers = {spec.name for spec in program.arrays if spec.peers}  # these may be on other GPUs
    places = {(array.device, array.index) for name, array in named if name not in peers}
    if len(places) > 1:
        listing = ", ".join(f"`{name}` on {array.place}" for name, array in named)
        raise _wrong_device(
            f"the arguments of {program.title} are on different devices",
            expected="all on one GPU, or all on the CPU",
            got=listing,
            hint="move them with .to(device), or cupy.asarray / .cpu()",
        )
    return next(iter(places)) if places else ("cpu", 0)


def named_views(call: Call, views: Sequence[ArrayView | None]) -> list[tuple[str, ArrayView]]:
    """Names and views of the passed arrays, including those in tensor maps of a foreign text."""
    if call.program.arrays:
        return [(spec.name, array) for spec, array in zip(call.program.arrays, views, strict=True) if array is not None]
    found = []
    for parameter, value in zip(call.program.parameters, call.rest, strict=False):
        if isinstance(value, TensorMap):
            found.append((parameter.name, value.array))
        elif isinstance(value, Multimem):
            found += [(name, view(array, name)) for name, array in value.named(parameter.name)]
        elif isinstance(value, Struct):
            found += [(name, view(array, name)) for name, array in value.arrays(parameter.name)]
        elif parameter.kind == "pointer" and is_array(value) and getattr(value, "shape", None) != ():
            found.append((parameter.name, view(value, parameter.name)))
    return found


def complete(
    call: Call, views: list[ArrayView | None], workspaces: dict[Any, Any] | None = None
) -> tuple[Arguments, tuple[Any, ...]]:
    """The arguments with all outputs in place, and the out arrays in the caller's own framework.

    A missing output is created on the device of the first array, with the shape that the inputs' sizes give. A
    workspace is created likewise, zeroed, unless `workspaces` has one of that name and shape. Raises ArgumentError if
    one of its sizes is not known from the inputs.
    """
    program = call.program
    if not program.arrays:
        return Arguments(rest=call.rest), ()
    given = list(call.given)
    if any(array is None for array in views):
        present = [(spec, array) for spec, array in zip(program.arrays, views, strict=True) if array is not None]
        if not present:
            raise _wrong_device(
                f"{program.title} has no input, so the device of its output is unknown", hint="pass out="
            )
        inputs = replace(program, arrays=tuple(spec for spec, _ in present), check_dims=None)
        dims = dims_of(inputs, [array for _, array in present])
        model = present[0][1]
        for at, spec in enumerate(program.arrays):
            if views[at] is None:
                shape = tuple(_size(program, spec.name, size, dims) for size in spec.shape)
                if spec.role == WORKSPACE:
                    kept = {} if workspaces is None else workspaces
                    if (spec.name, shape) not in kept:
                        kept[spec.name, shape] = empty_like_kind(model, shape, spec.dtype, zero=True)
                    given[at] = kept[spec.name, shape]
                else:
                    given[at] = empty_like_kind(model, shape, spec.dtype)
                views[at] = replace(view(given[at], spec.name), writable=True)
    outs = tuple(given[at] for at, spec in enumerate(program.arrays) if spec.role == "out")
    return Arguments([array for array in views if array is not None], dict(call.scalars)), outs


def _size(program: Program, name: str, size: int | str, dims: Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    if size not in dims:
        raise _wrong_shape(
            f"{program.title}: the size `{size}` of its output `{name}` is not a size of any input", hint="pass out="
        )
    return dims[size]


def result_of(outs: Sequence[Any]) -> Any:
    """The return value of a call: the output, a tuple of outputs, or None."""
    if not outs:
        return None
    return outs[0] if len(outs) == 1 else tuple(outs)
