"""The arguments of several emulated GPUs: one call in which each argument is a list by rank.

    warploom.emulate(kernel, [a0, a1], [b0, b1], out=[c0, c1], devices=2, rank=[0, 1])

A number shared by all GPUs may be given once. The arrays of a group (`Tile(…, peers=2)`) are a list by rank for a call
on one GPU too; every GPU gets the same list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..plural import counted
from .arrays import ArrayView, is_array
from .dispatch import Call, look, sort_out
from .tensor_map import TensorMap
from .validate import whole

if TYPE_CHECKING:
    from .program import Program

MOST = 64
"""Maximum number of GPUs in one emulation."""
_wrong_arguments = partial(ArgumentTypeError, code="wrong-arguments")

Looked = tuple[Call, list[ArrayView | None]]
"""A call and the views of its arrays."""


def count_of(devices: object, calls: object) -> tuple[int, int]:
    """The number of GPUs and of launches on each. Raises ArgumentError."""
    for value, name in ((devices, "devices"), (calls, "calls")):
        if not 1 <= whole(value, name) <= MOST:
            raise ArgumentError(f"{name} is out of range", expected=f"1 to {MOST}", got=value)
    return whole(devices, "devices"), whole(calls, "calls")


def calls_of(program: Program, args: Sequence[Any], out: Any, scalars: Mapping[str, Any], devices: int) -> list[Looked]:
    """The call of each device. Raises ArgumentTypeError for an argument that does not have one value for each."""
    if devices == 1:
        call = sort_out(program, args, out, scalars)
        return [(call, look(call))]
    inputs = iter([spec for spec in program.arrays if spec.role in ("in", "inout")])
    shared: list[bool] = []
    for _ in args:
        spec = next(inputs, None)
        shared.append(spec is not None and spec.peers > 0)
        for _ in range(spec.peers - 1 if spec is not None and spec.peers else 0):
            next(inputs)
    made = []
    for rank in range(devices):
        mine = [
            value if common else _of_rank(program, value, rank, devices)
            for value, common in zip(args, shared, strict=True)
        ]
        numbers = {name: _of_rank(program, value, rank, devices) for name, value in scalars.items()}
        call = sort_out(program, mine, None if out is None else _of_rank(program, out, rank, devices), numbers)
        made.append((call, look(call)))
    return made


def _of_rank(program: Program, value: Any, rank: int, devices: int) -> Any:
    if isinstance(value, (list, tuple, range)) and len(value) == devices:
        return value[rank]
    alone = isinstance(value, TensorMap) or is_array(value) and getattr(value, "shape", None) != ()
    if isinstance(value, (list, tuple, range)) or alone:
        raise _wrong_arguments(
            f"{program.title} runs on {counted(devices, 'GPU')}, but an argument does not have one value for each",
            expected=f"a list of {devices}, by rank",
            got=f"a list of {len(value)}" if not alone else "one array",
        )
    return value


def owners_of(
    programs: Sequence[Program], hosts: Sequence[Sequence[np.ndarray]], together: Sequence[Sequence[np.ndarray]] = ()
) -> dict[int, int]:
    """The rank that holds each array, by its id.

    hosts: the arrays passed to each device, in order. together: lists by rank, from multimem addresses.
    """
    owners: dict[int, int] = {}
    for rank, (program, arrays) in enumerate(zip(programs, hosts, strict=True)):
        before = 0
        for at, array in enumerate(arrays):
            peers = program.arrays[at].peers if program.arrays else 0
            if peers:
                owners[id(array)] = before % peers
                before += 1
            else:
                owners.setdefault(id(array), rank)
    for arrays in together:
        owners |= {id(array): rank for rank, array in enumerate(arrays)}
    return owners
