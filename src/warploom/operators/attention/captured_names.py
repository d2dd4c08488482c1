"""What captured functions and values are called: all that tells them apart, in the same form in every process."""

from __future__ import annotations

import dis
import enum
import sys
import types
from functools import lru_cache
from typing import Any

import numpy as np

LIBRARIES = ("torch", "math", "numpy", "builtins", "operator")
"""Modules whose functions and types are the same in every run."""
WHOLE = (bool, int, float, complex, str, bytes, range, slice, types.NoneType, types.EllipsisType)
"""Types whose values are the same if their representations are."""


def names_of(function: Any) -> frozenset[str]:
    """Return the names and strings in a function, in its nested functions and in what it wraps; strings may name
    attributes.
    """
    found: frozenset[str] = frozenset()
    function = getattr(function, "__func__", function)
    while function is not None:
        code = getattr(function, "__code__", None)
        found |= frozenset() if code is None else names_in(code)[0]
        function = getattr(function, "__wrapped__", None)
    return found


@lru_cache(maxsize=1024)
def names_in(code: types.CodeType) -> tuple[frozenset[str], tuple[str, ...]]:
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


def of_library(value: Any) -> bool:
    """True for a known library or a member of one: torch, torch.exp, float, torch.float32, and for functions in C."""
    if isinstance(value, enum.Enum):
        return True
    if isinstance(value, types.ModuleType):
        root = value.__name__.partition(".")[0]
        return root in LIBRARIES or root in sys.stdlib_module_names
    if isinstance(value, types.BuiltinFunctionType):  # not of an object
        return isinstance(value.__self__, (types.ModuleType, type, types.NoneType))
    if isinstance(value, types.FunctionType):
        return module_of(value) in LIBRARIES and "flex_attention" not in defined_in(value) and _is_found(value)
    if isinstance(value, (type, np.ufunc)):
        return module_of(value) in LIBRARIES
    return type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device")


def _is_found(function: types.FunctionType) -> bool:
    """True if its module has it under its name: torch.no_grad()(function), which is torch's, too, is found nowhere."""
    found: Any = sys.modules.get(defined_in(function))
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def module_of(value: Any) -> str:
    """The name of the package that a function or type is from."""
    return defined_in(value).partition(".")[0]


def defined_in(value: Any) -> str:
    """The name of the module; of a function not `__module__`, which functools.wraps copies."""
    if isinstance(value, types.FunctionType):
        return str(value.__globals__.get("__name__"))
    return getattr(value, "__module__", None) or "builtins"


def description(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__} {value!r} {value.value!r}"
    name = getattr(value, "__name__", None)
    return repr(value) if name is None else f"{defined_in(value)} {getattr(value, '__qualname__', name)}"


def spelled(part: Any) -> Any:
    """A part of a token in a form that is the same in every process."""
    if isinstance(part, tuple):
        return [*map(spelled, part)]
    if not isinstance(part, types.CodeType):
        return part
    signature = part.co_argcount, part.co_posonlyargcount, part.co_kwonlyargcount, part.co_flags
    names = part.co_names, part.co_varnames, part.co_cellvars, part.co_freevars  # code names them by their places here
    return part.co_code.hex(), part.co_exceptiontable.hex(), signature, names, [*map(spelled, part.co_consts)]
