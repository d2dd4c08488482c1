"""Checks of a kernel's declaration: a plain function, an entry name, specs of the right kinds, launch sizes."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import ArgumentError, SourceLocation, TraceError
from ..isa.tensor_map import TensorMapSpec

_ANY_EXTENT = 128
"""Stands for a named extent; also a multiple of all alignments of strides."""
misdeclared = partial(TraceError, code="kernel-declaration")


def where(function: Callable[..., None]) -> SourceLocation:
    code = function.__code__
    return SourceLocation(os.path.basename(code.co_filename), code.co_firstlineno)


def check_function(function: object) -> None:
    """Refuse anything but a plain function, which has source lines and runs to its end when called."""
    if not inspect.isfunction(function):
        raise misdeclared(
            "@kernel decorates a Python function",
            expected="def or lambda",
            got=f"{type(function).__name__} {function!r}"[:80],
        )
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise misdeclared(
            f"the kernel {function.__name__} is a generator or a coroutine, so calling it runs nothing",
            where=where(function),
            expected="a function without yield and await",
        )


def entry_name(function: Callable[..., None], name: str | None) -> str:
    """The entry name in the PTX: ptxas takes letters, digits, _ and $ (PTX ISA 4.4)."""
    chosen = function.__name__ if name is None else name
    if chosen == "<lambda>":
        return "kernel"
    if not isinstance(chosen, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_$]*|[_$%][A-Za-z0-9_$]+", chosen):
        raise misdeclared(
            "this is not an entry name in PTX",
            where=where(function),
            expected="letters, digits, _ and $, not beginning with a digit",
            got=repr(chosen),
            hint="pass name= to @kernel",
        )
    return chosen


def specs_of(function: Callable[..., None], what: str, specs: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """The declared in_specs or out_specs, in order. Raises TraceError unless all are of these kinds."""
    values = specs.values() if isinstance(specs, Mapping) else specs
    listed = tuple(values) if isinstance(specs, (tuple, list, Mapping)) else None
    if listed is None or not all(isinstance(spec, kinds) for spec in listed):
        raise misdeclared(
            f"{what} of the kernel {function.__name__} must hold {' and '.join(kind.__name__ for kind in kinds)}",
            where=where(function),
            expected=f'{what}=(Tile(...), ...), or by name {{"A": Tile(...), ...}}',
            got=repr(specs),
        )
    for index, spec in enumerate(listed):
        if getattr(spec, "box", None) is not None:
            _check_box(function, f"{what}[{index}]", spec)
    return listed


def _check_box(function: Callable[..., None], name: str, spec: Any) -> None:
    """Refuse a box that no tensor map can have, for any sizes of the array."""
    extents = [extent if isinstance(extent, int) else _ANY_EXTENT for extent in spec.shape]
    strides = [spec.dtype.bytes]
    for extent in extents[:0:-1]:
        strides.insert(0, -(-strides[0] * extent // _ANY_EXTENT) * _ANY_EXTENT)
    try:
        TensorMapSpec.tiled(extents, strides, spec.dtype, spec.box, swizzle=spec.swizzle, pixels=spec.pixels)
    except ArgumentError as error:
        raise misdeclared(
            f"{name} of the kernel {function.__name__}, {spec!r}: {error.what}", where=where(function),
            expected=error.expected, got=error.got, hint=error.hint,
        ) from None  # fmt: skip


def triple(function: Callable[..., None], what: str, value: int | Sequence[int]) -> tuple[int, int, int]:
    """Sizes along x, y and z, 1 if omitted. Raises TraceError unless they are positive ints."""
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise misdeclared(f"{what} is not one to three positive Python ints", where=where(function), got=repr(value))
    return (*sizes, 1, 1)[:3]
