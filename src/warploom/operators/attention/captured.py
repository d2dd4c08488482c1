"""Captured values of score and mask functions: numbers become part of the kernel's text, arrays become arguments.

A function is rebuilt with a stand-in for each array in its closure, its defaults and the globals that it names. So are
the functions that it captures (the `and_masks` of two others) and the object of a method. Of an object, only attributes
whose names occur in the function are kept. `Captured.function.key` holds all other captured values: functions with
the same key produce the same kernel text. Values from a library are identified by name.

Every call reads the function again, because nothing says that a captured number, list or attribute has changed. What it
reads is compared with earlier calls as a whole (`Contents.token`); only a new token is checked and spelled.
What is kept holds code, numbers and members of libraries, so it keeps neither arrays nor the caller's objects alive.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError, SourceLocation
from ...isa.dtypes import bf16, f16, f32, pred, s8, s16, s32, s64, u8
from ...kernels.hopper.attention_functions import Function
from ...runtime.arrays import ArrayView, is_array, view
from ...runtime.launch_cache import bounded
from .captured_names import (
    LIBRARIES,
    WHOLE,
    defined_in,
    description,
    module_of,
    names_in,
    names_of,
    of_library,
    spelled,
)
from .limits import ELEMENTS, check_countable

PARAMETERS = {
    "score_mod": ("score", "batch", "head", "query", "key"), "mask_mod": ("batch", "head", "query", "key"),
}  # fmt: skip
"""The parameters with which the functions are called."""
TYPES = (f32, bf16, f16, s32, s64, s16, s8, u8, pred)
OF_MODULE = ("__builtins__", "__name__", "__package__")
"""Globals that a function needs without naming them."""
CONTAINERS = (tuple, list, dict, set, frozenset)
Give = Callable[["Rebuild"], Any]
"""Makes the in-kernel form of a captured value."""


@dataclass
class Captured:
    """A function for the kernel and the arrays that it needs; `given`: the arrays as captured."""

    function: Function
    arrays: list[ArrayView]
    given: list[Any]


@dataclass(frozen=True)
class Contents:
    """A function as read in one call.

    Attributes:
        function: the function.
        name: "score_mod" or "mask_mod".
        token: everything that the kernel's text depends on but the arrays' types, shapes and strides; hashable.
        arrays: the captured arrays, by the kernel's names of them.
        make: rebuilds the function from the stand-ins.
    """

    function: Any
    name: str
    token: tuple[Any, ...]
    arrays: dict[str, Any]
    make: Give


@dataclass
class Rebuild:
    """One rebuild of a function for the kernel: the stand-ins of arrays, and objects already rebuilt."""

    stand_ins: Sequence[Any]
    objects: dict[int, Any] = field(default_factory=dict)


class Placeholder:
    """A stand-in for an object, with the attributes that the function names. `true`: its truth."""

    def __init__(self, called: str, true: bool = True) -> None:
        self._called, self._true = called, true

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._called} has no attribute {name!r} inside the kernel")

    def __bool__(self) -> bool:
        return self._true

    def __eq__(self, other: object) -> bool:
        return self is other or (other is not None and self._refuse("compare it by `is`, or its attributes"))

    __hash__ = object.__hash__

    def _refuse(self, hint: str) -> Any:
        raise TypeError(f"{self._called} has only attributes and methods inside the kernel: {hint}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        self._refuse("give what __call__ does a name, and call that")

    def __getitem__(self, _: Any) -> Any:
        self._refuse("only lists, tuples, dicts, sets and arrays have entries")

    __iter__ = __len__ = __contains__ = lambda self, *_: self[0]


@dataclass
class _Reader:
    name: str
    given: list[Any] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    objects: dict[tuple[int, frozenset[str]], int] = field(default_factory=dict)
    held: list[Any] = field(default_factory=list)
    reading: list[int] = field(default_factory=list)

    def read(self, function: Any) -> Give:
        """Return a callable that rebuilds the function from the stand-ins."""
        if isinstance(function, Contents):
            return self._read_before(function)
        if isinstance(function, functools._lru_cache_wrapper):  # a value in the kernel is a new one in each kernel
            return self.read(function.__wrapped__)
        if isinstance(function, types.FunctionType):  # that torch.compile was given
            function = getattr(function, "_torchdynamo_orig_callable", function)
        if isinstance(function, functools.partial):
            names = names_of(function.func)
            called = self._kept(function.func, names)
            self.parts.append("partial")
            first, named = self._kept(function.args, names), self._kept(function.keywords, names)
            return lambda making: functools.partial(called(making), *first(making), **named(making))
        if not isinstance(function, (types.FunctionType, types.MethodType)):
            method = inspect.getattr_static(type(function), "__call__", None)
            if not isinstance(method, types.FunctionType) or isinstance(function, type):
                raise ArgumentTypeError(
                    f"`{self.name}` is not a Python function", expected="def or lambda", got=type(function).__name__
                )
            function = types.MethodType(method, function)
        if isinstance(function, types.MethodType):
            if module_of(function.__func__) in LIBRARIES:
                raise ArgumentTypeError(
                    f"`{self.name}` calls a method of a library, which cannot become part of a kernel",
                    expected="a function of torch's functions", got=function.__qualname__,
                    hint="pass the `forward` of a module; of a torch.autograd.Function write the forward pass",
                )  # fmt: skip
            own = self._kept(function.__self__, names_of(function))
            called = self.read(function.__func__)
            return lambda making: functools.partial(called(making), own(making))
        return self._function(function)

    def _function(self, function: types.FunctionType) -> Give:
        if module_of(function) in LIBRARIES and "flex_attention" not in defined_in(function):
            raise ArgumentTypeError(
                f"`{self.name}` is, or calls, a function that a library has wrapped", expected="a function of your own",
                got=f"{function.__qualname__}, of {defined_in(function)}", hint="use it without its decorator",
            )  # fmt: skip
        if id(function) in self.reading:
            raise ArgumentError(f"`{self.name}` calls itself", expected="functions without recursion", got=function)
        self.reading.append(id(function))
        code, globals_ = function.__code__, function.__globals__
        names, loaded = names_in(code)
        used = tuple([name for name in loaded if name in globals_])
        self.parts += [code, used]
        try:
            contents = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:
            raise ArgumentError(f"`{self.name}` captures a variable without a value", got=code.co_freevars) from None
        cells = [self._kept(content, names) for content in contents]
        named = {name: self._kept(globals_[name], names) for name in used}
        defaults = self._kept(function.__defaults__ or (), names)
        by_name = self._kept(function.__kwdefaults__ or {}, names)
        self.reading.pop()
        others = {name: globals_[name] for name in OF_MODULE if name in globals_}

        def make(making: Rebuild) -> Any:
            closure = tuple(types.CellType(give(making)) for give in cells)
            globals_ = {**others, **{name: give(making) for name, give in named.items()}}
            made = types.FunctionType(code, globals_, code.co_name, tuple(defaults(making)), closure or None)
            made.__kwdefaults__ = dict(by_name(making))
            return made

        return make

    def _read_before(self, contents: Contents) -> Give:
        """Take a function as it was read, with the arrays that it captured then."""
        self.parts.append(contents.token)
        numbers = [self._array(array) for array in contents.arrays.values()]
        make = contents.make  # the contents hold the arrays
        return lambda making: make(Rebuild([making.stand_ins[number] for number in numbers]))

    def _kept(self, value: Any, names: frozenset[str]) -> Give:
        """Read a captured value; `names`: names in the function, some of which may be attributes."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, WHOLE) or of_library(value):
            self.parts.append(description(value))
            return lambda _: value
        if isinstance(value, types.BuiltinFunctionType):  # of an object: the `get` of a dict
            called = value.__name__
            self.parts.append(f"its {called}")
            own = self._kept(value.__self__, names)
            return lambda making: getattr(own(making), called)
        if isinstance(value, CONTAINERS):
            return self._container(value, names)
        if _is_array(value):
            number = self._array(value)
            return lambda making: making.stand_ins[number]
        if isinstance(
            value, (types.FunctionType, types.MethodType, functools.partial, functools._lru_cache_wrapper, Contents)
        ):
            return self.read(value)
        return self._object(value, names)

    def _container(self, value: Any, names: frozenset[str]) -> Give:
        """Read a container, and the attributes that a class of the caller's adds: the fields of a named tuple."""
        if id(value) in self.reading:
            raise ArgumentError(f"`{self.name}` captures what contains itself", got=type(value).__name__)
        self.reading.append(id(value))
        kind: Any = next(each for each in CONTAINERS if isinstance(value, each))
        plain, keys = type(value) is kind, list(value) if kind is dict else []
        self.parts += [f"{kind.__name__} of {len(value)}", repr(keys)]
        inside = value.values() if kind is dict else value if kind in (tuple, list) else sorted(value, key=repr)
        each = [self._kept(one, names) for one in inside]
        attributes = {} if plain else self._attributes(value, names, kind)
        made_of = kind if plain else type(type(value).__name__, (kind,), {})
        self.reading.pop()

        def make(making: Rebuild) -> Any:
            items = [give(making) for give in each]
            made = made_of(zip(keys, items, strict=True) if kind is dict else items)
            for name, give in attributes.items():
                setattr(made, name, give(making))
            return made

        return make

    def _attributes(self, value: Any, names: frozenset[str], without: type = object) -> dict[str, Give]:
        """Read the attributes that the function names, but those of a class that stays."""
        found = {}
        for name in sorted(names):
            if name.startswith("__") or hasattr(without, name):
                continue
            try:
                given = getattr(value, name)
            except Exception:  # a property; the name may be of something else
                continue
            self.parts.append(f".{name}")
            found[name] = self._kept(given, names)
        return found

    def _object(self, value: Any, names: frozenset[str]) -> Give:
        """Read an object: the attributes that the function names."""
        key, called, known = (id(value), names), type(value).__name__, len(self.objects)
        true = not any(hasattr(type(value), each) for each in ("__bool__", "__len__")) or bool(value)
        number = self.objects.setdefault(key, len(self.objects))
        attributes: dict[str, Give] = {}
        if number < known:
            self.parts.append(f"object {number}")
        else:
            self.held.append(value)  # what a property has made would make room for another of the same id
            self.parts.append(f"object {number}: {called}, {true}")
            attributes |= self._attributes(value, names)

        def make(making: Rebuild) -> Any:
            if number not in making.objects:
                made = making.objects[number] = Placeholder(called, true)
                for name, give in attributes.items():
                    setattr(made, name, give(making))
            return making.objects[number]

        return make

    def _array(self, value: Any) -> int:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.given)
            self.given.append(value)
        self.parts.append(f"array {self.numbers[id(value)]}")
        return self.numbers[id(value)]


def _is_array(value: Any) -> bool:
    """Also of an object whose attributes raise what they please."""
    try:
        return is_array(value)
    except Exception:
        return False


def read(function: Any, name: str) -> Contents:
    """Read a score or mask function and what it captures, unless it was read before.

    Raises ArgumentError, ArgumentTypeError.
    """
    if isinstance(function, Contents):
        return function
    reader = _Reader(name)
    make = reader.read(function)
    prefix = name.partition("_")[0]
    arrays = {f"{prefix}_{number}": array for number, array in enumerate(reader.given)}
    return Contents(function, name, (name, *reader.parts), arrays, make)


def captured(function: Any, name: str) -> Captured:
    """Prepare a score or mask function for the kernel. Raises ArgumentError, ArgumentTypeError."""
    return prepared(read(function, name))


def prepared(contents: Contents) -> Captured:
    """Prepare a function that was read for the kernel. Raises ArgumentError, ArgumentTypeError."""
    given = list(contents.arrays.values())
    views = [_view_of(array, contents.name) for array in given]
    arrays = tuple((each.dtype.name, each.shape, _steps(each)) for each in views)
    views = [replace(each, dtype=u8) if each.dtype is pred else each for each in views]
    known = _FUNCTIONS.get((contents.token, arrays))
    if known is None:
        known = bounded(_FUNCTIONS)[contents.token, arrays] = _new(contents, arrays)
    return Captured(known, views, given)


_FUNCTIONS: dict[Any, Function] = {}
"""By token, and by types, shapes and strides of arrays."""


def _new(contents: Contents, arrays: tuple[Any, ...]) -> Function:
    name, make = contents.name, contents.make
    try:
        inspect.signature(contents.function).bind(*PARAMETERS[name])
    except TypeError as error:
        raise ArgumentTypeError(
            f"`{name}` does not take what it is called with",
            expected=f"({', '.join(PARAMETERS[name])})",
            got=str(error),
        ) from None
    key = hashlib.sha256(repr(([*map(spelled, contents.token)], arrays)).encode()).hexdigest()
    where = _line_of(contents.function)
    return Function(key, arrays, lambda values, stand_ins: make(Rebuild(stand_ins))(*values), where)


def _view_of(array: Any, name: str) -> ArrayView:
    """View a captured array. Raises ArgumentError, ArgumentTypeError for one that a function cannot read."""
    found = view(array, f"{name}: a captured array")
    if found.dtype not in TYPES:
        raise ArgumentTypeError(
            f"`{name}` captures an array of a type that it cannot read", expected=", ".join(map(str, TYPES)),
            got=found.describe(),
        )  # fmt: skip
    if any(step < 0 or step % found.dtype.bytes for step in found.strides):
        raise ArgumentError(
            f"`{name}` captures an array whose strides are negative, or no whole elements", got=found.describe(),
            hint="call .contiguous(), or np.ascontiguousarray", code="wrong-layout",
        )  # fmt: skip
    check_countable(f"elements in an array that `{name}` captures", spanned(found), "capture parts of it", ELEMENTS)
    if not found.size:
        raise ArgumentError(f"`{name}` captures an array without elements", got=found.describe())
    return found


def spanned(array: ArrayView) -> int:
    """Elements from the first to the last one, with those between them."""
    return 1 + sum((length - 1) * (step // array.dtype.bytes)
                   for length, step in zip(array.shape, array.strides, strict=True))  # fmt: skip


def _steps(array: ArrayView) -> tuple[int, ...] | None:
    """Elements from one index to the next in each dimension; None for a contiguous array."""
    return None if array.contiguous else tuple(step // array.dtype.bytes for step in array.strides)


def _line_of(function: Any) -> SourceLocation | None:
    """Where a Python function is defined; None for other callables."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else SourceLocation(code.co_filename, code.co_firstlineno)
