"""What a function of scores or masks captures: numbers become part of the kernel's text, arrays its arguments.

A function is made anew with a stand-in for each array among its closure and the globals that it names, and so are the
functions that it captures (the `and_masks` of two others). What is left must be the same for the same text: numbers,
strings, modules, functions of modules.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import ArgumentError, ArgumentTypeError
from ...isa.dtypes import bf16, f16, f32, s32, s64, u8
from ...kernels.hopper.attention_functions import Function
from ...runtime.arrays import ArrayView, is_array, view

PARAMETERS = {
    "score_mod": ("score", "batch", "head", "query", "key"), "mask_mod": ("batch", "head", "query", "key"),
}  # fmt: skip
"""What the functions are called with."""
TYPES = (f32, bf16, f16, s32, s64, u8)


@dataclass
class Captured:
    """A function for the kernel, and the arrays that it needs there, contiguous; `given`: as they were captured."""

    function: Function
    arrays: list[ArrayView]
    given: list[Any]


@dataclass
class _Reader:
    name: str
    views: list[ArrayView] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def read(self, function: Any) -> Callable[[Sequence[Any]], Any]:
        """What makes the function for the kernel out of the stand-ins."""
        if not isinstance(function, types.FunctionType):
            raise ArgumentTypeError(
                f"`{self.name}` is not a Python function", expected="def or lambda", got=type(function).__name__
            )
        code = function.__code__
        self.parts += [code.co_code.hex(), repr(_constants(code)), repr(code.co_names), repr(function.__defaults__)]
        names = [name for name in code.co_names if name in function.__globals__]
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        kept = [self._kept(value) for value in cells]
        named = {name: self._kept(function.__globals__[name]) for name in names}

        def make(stand_ins: Sequence[Any]) -> Any:
            closure = tuple(types.CellType(give(stand_ins)) for give in kept)
            globals_ = {**function.__globals__, **{name: give(stand_ins) for name, give in named.items()}}
            return types.FunctionType(code, globals_, function.__name__, function.__defaults__, closure or None)

        return make

    def _kept(self, value: Any) -> Callable[[Sequence[Any]], Any]:
        if isinstance(value, types.FunctionType) and not _of_library(value):
            return self.read(value)
        if is_array(value):
            number = self._array(value)
            return lambda stand_ins: stand_ins[number]
        if isinstance(value, (tuple, list)):
            self.parts.append(f"{len(value)} of")
            each = [self._kept(one) for one in value]
            return lambda stand_ins: [give(stand_ins) for give in each]
        plain = isinstance(value, (bool, int, float, str, type(None)))
        self.parts.append(repr(value) if plain else f"{type(value).__name__} {getattr(value, '__name__', '')}")
        return lambda _: value

    def _array(self, value: Any) -> int:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.views)
            found = view(value, f"{self.name}: a captured array")
            if found.dtype not in TYPES:
                raise ArgumentTypeError(
                    f"`{self.name}` captures an array of a type that it cannot read",
                    expected=", ".join(map(str, TYPES)), got=found.describe(),
                )  # fmt: skip
            if not found.contiguous:
                raise ArgumentError(
                    f"`{self.name}` captures an array that is not contiguous", got=found.describe(),
                    hint="call .contiguous()", code="wrong-layout"
                )  # fmt: skip
            self.views.append(found)
            self.given.append(value)
        self.parts.append(f"array {self.numbers[id(value)]}")
        return self.numbers[id(value)]


def _of_library(function: types.FunctionType) -> bool:
    root = (function.__module__ or "").partition(".")[0]
    return root in ("torch", "math", "numpy") and "flex_attention" not in (function.__module__ or "")


def _constants(code: types.CodeType) -> list[Any]:
    return [_constants(each) + [each.co_code] if isinstance(each, types.CodeType) else each for each in code.co_consts]


def captured(function: Any, name: str) -> Captured:
    """A function of scores or masks as the kernel takes it. Raises ArgumentError, ArgumentTypeError."""
    reader = _Reader(name)
    make = reader.read(function)
    try:
        inspect.signature(function).bind(*PARAMETERS[name])
    except TypeError as error:
        raise ArgumentTypeError(
            f"`{name}` does not take what it is called with",
            expected=f"({', '.join(PARAMETERS[name])})",
            got=str(error),
        ) from None
    arrays = tuple((each.dtype.name, each.shape) for each in reader.views)
    key = hashlib.sha256(repr((name, reader.parts, arrays)).encode()).hexdigest()
    return Captured(
        Function(key, arrays, lambda values, stand_ins: make(stand_ins)(*values)), reader.views, reader.given
    )
