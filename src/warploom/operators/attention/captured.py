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

import dis
import enum
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError, SourceLocation
from ...isa.dtypes import bf16, f16, f32, pred, s8, s16, s32, s64, u8
from ...kernels.hopper.attention_functions import Function
from ...runtime.arrays import ArrayView, is_array, view
from ...runtime.launch_cache import bounded
from .limits import ELEMENTS, check_countable

PARAMETERS = {
    "score_mod": ("score", "batch", "head", "query", "key"), "mask_mod": ("batch", "head", "query", "key"),
}  # fmt: skip
"""The parameters with which the functions are called."""
TYPES = (f32, bf16, f16, s32, s64, s16, s8, u8, pred)
LIBRARIES = ("torch", "math", "numpy", "builtins", "operator")
"""Modules whose functions and types are the same in every run."""
OF_MODULE = ("__builtins__", "__name__", "__package__")
"""Globals that a function needs without naming them."""
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
    """A stand-in for an object, with the attributes that the function names."""

    def __init__(self, called: str) -> None:
        self._called = called

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._called} has no attribute {name!r} inside the kernel")


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
        if isinstance(function, functools.partial):
            names = _names(function.func)
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
            if _module(function.__func__) in LIBRARIES:
                raise ArgumentTypeError(
                    f"`{self.name}` calls a method of a library, which cannot become part of a kernel",
                    expected="a function of torch's functions", got=function.__qualname__,
                    hint="torch.autograd.Function.apply cannot be traced: write its forward pass",
                )  # fmt: skip
            own = self._kept(function.__self__, _names(function))
            called = self.read(function.__func__)
            return lambda making: functools.partial(called(making), own(making))
        return self._function(function)

    def _function(self, function: types.FunctionType) -> Give:
        if id(function) in self.reading:
            raise ArgumentError(f"`{self.name}` calls itself", expected="functions without recursion", got=function)
        self.reading.append(id(function))
        code, globals_ = function.__code__, function.__globals__
        names, loaded = _names_in(code)
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
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)) or _of_library(value):
            self.parts.append(_description(value))
            return lambda _: value
        if isinstance(value, types.BuiltinFunctionType):  # of an object: the `get` of a dict
            called = value.__name__
            self.parts.append(f"its {called}")
            own = self._kept(value.__self__, names)
            return lambda making: getattr(own(making), called)
        if is_array(value):
            number = self._array(value)
            return lambda making: making.stand_ins[number]
        if isinstance(value, (tuple, list)):
            kind = type(value) if type(value) in (tuple, list) else list
            self.parts.append(f"{kind.__name__} of {len(value)}")
            each = [self._kept(one, names) for one in value]
            return lambda making: kind(give(making) for give in each)
        if isinstance(value, dict):
            self.parts.append(f"{len(value)} by {list(value)!r}")
            pairs = {key: self._kept(one, names) for key, one in value.items()}
            return lambda making: {key: give(making) for key, give in pairs.items()}
        if isinstance(value, (types.FunctionType, types.MethodType, functools.partial, Contents)):
            return self.read(value)
        return self._object(value, names)

    def _object(self, value: Any, names: frozenset[str]) -> Give:
        """Read an object: the attributes that the function names."""
        key, called, known = (id(value), names), type(value).__name__, len(self.objects)
        number = self.objects.setdefault(key, len(self.objects))
        attributes: dict[str, Give] = {}
        if number < known:
            self.parts.append(f"object {number}")
        else:
            self.held.append(value)  # what a property has made would make room for another of the same id
            self.parts.append(f"object {number}: {called}")
            for name in sorted(names):
                found = inspect.getattr_static(value, name, None) is not None or hasattr(value, name)
                if found and not name.startswith("__"):
                    self.parts.append(f".{name}")
                    attributes[name] = self._kept(getattr(value, name), names)

        def make(making: Rebuild) -> Any:
            if number not in making.objects:
                made = making.objects[number] = Placeholder(called)
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


def _names(function: Any) -> frozenset[str]:
    """Return the names and strings in a function and in its nested functions; strings may name attributes."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return frozenset() if code is None else _names_in(code)[0]


@lru_cache(maxsize=1024)
def _names_in(code: types.CodeType) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names, and those that are loaded from globals, in alphabetical order: others are attributes."""
    found: set[str] = set()
    loaded: set[str] = set()
    pending = [code]
    while pending:
        code = pending.pop()
        found.update(code.co_names)
        loaded.update(step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
        found.update(each for each in code.co_consts if isinstance(each, str))
        pending += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return frozenset(found), tuple(sorted(loaded))


def _of_library(value: Any) -> bool:
    """True for a known library or a member of one: torch, torch.exp, float, torch.float32, and for functions in C."""
    if isinstance(value, enum.Enum):
        return True
    if isinstance(value, types.ModuleType):
        root = value.__name__.partition(".")[0]
        return root in LIBRARIES or root in sys.stdlib_module_names
    if isinstance(value, types.BuiltinFunctionType):  # not of an object
        return isinstance(value.__self__, (types.ModuleType, type, types.NoneType))
    if isinstance(value, types.FunctionType):
        return _module(value) in LIBRARIES and "flex_attention" not in _defined_in(value)
    if isinstance(value, (type, np.ufunc)):
        return _module(value) in LIBRARIES
    return type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device")


def _module(value: Any) -> str:
    """The name of the package that a function or type is from."""
    return _defined_in(value).partition(".")[0]


def _defined_in(value: Any) -> str:
    """The name of the module; of a function not `__module__`, which functools.wraps copies."""
    if isinstance(value, types.FunctionType):
        return str(value.__globals__.get("__name__"))
    return getattr(value, "__module__", None) or "builtins"


def _description(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__} {value!r} {value.value!r}"
    name = getattr(value, "__name__", None)
    return repr(value) if name is None else f"{_defined_in(value)} {getattr(value, '__qualname__', name)}"


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
    key = hashlib.sha256(repr(([*map(_spelled, contents.token)], arrays)).encode()).hexdigest()
    where = _line_of(contents.function)
    return Function(key, arrays, lambda values, stand_ins: make(Rebuild(stand_ins))(*values), where)


def _spelled(part: Any) -> Any:
    """A part of a token in a form that is the same in every process."""
    if isinstance(part, tuple):
        return [*map(_spelled, part)]
    if not isinstance(part, types.CodeType):
        return part
    signature = part.co_argcount, part.co_posonlyargcount, part.co_kwonlyargcount, part.co_flags
    names = part.co_names, part.co_varnames, part.co_cellvars, part.co_freevars  # code names them by their places here
    return part.co_code.hex(), part.co_exceptiontable.hex(), signature, names, [*map(_spelled, part.co_consts)]


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
