"""Checks of declared variables and parameters: type, vector, alignment, size, initial value, place.

PTX ISA 5.1 to 5.4. The verdicts are those of ptxas 13.0, which tests/asm/test_declarations.py compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..isa import dtypes
from ..isa.dtypes import Kind
from ..plural import counted
from . import textures
from .cursor import constant_of
from .declarations import VECTORS
from .nodes import Integer, Variable
from .scopes import Scope

Complaint = tuple[str, str | None]
"""What is wrong, and what was expected."""

INSTRUCTION_TYPES = frozenset({"bf16", "tf32", "bf16x2", "e4m3", "e5m2", "e4m3x2", "e5m2x2"})
"""Types of instructions that no register and no variable may have."""
MOST_VECTOR_BITS = 128
_UNSET = ("f16", "f16x2")
_ADDRESS_TYPES = ("u8", "u32", "u64")
_FLOAT = re.compile(r"0[fFdD][0-9a-fA-F]+|[-+]?(\d*\.\d*([eE][-+]?\d+)?|\d+[eE][-+]?\d+)")
_EXPRESSION = re.compile(r"[()?]|.[-+*/]|WARP_SZ")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")


def wrong_type(name: str, type_name: str, vector: int = 1) -> Iterator[Complaint]:
    """Complaints about the type of a register or variable."""
    if type_name in INSTRUCTION_TYPES:
        bits = dtypes.ALL[type_name].register_bits
        yield f"{name} is declared .{type_name}, a type of instructions only", f".b{bits}"
    elif type_name == "pred" and vector > 1:
        yield f"{name} is a vector of predicates", "a single .pred register"
    elif type_name in dtypes.ALL and vector > 1 and dtypes.ALL[type_name].bits * vector > MOST_VECTOR_BITS:
        bits = dtypes.ALL[type_name].bits * vector
        yield f"{name} is a vector of {bits} bits", f"at most {MOST_VECTOR_BITS} bits"


def wrong_variable(variable: Variable, place: str, module: Scope, independent: bool = False) -> Iterator[Complaint]:
    """Complaints about a variable.

    Args:
        place: where it is declared: "module", "entry" or "func" (a parameter or result of one), or "body".
        module: the names of the module, which an initial value may contain.
        independent: whether samplers are separate from textures.
    """
    name, vector = f"the variable {variable.name}", lanes(variable)
    yield from wrong_type(name, variable.type, vector)
    if variable.type == "pred" and variable.space != "reg":
        yield f"{name} is a predicate in .{variable.space} memory", "a .pred register"
    if vector > 1 and (variable.space == "param" or vector > 4):
        yield f"{name} is a .v{vector} in .{variable.space}", "an array, or .v2 or .v4 in another state space"
    alignments = [variable.align, *(int(word.split()[1], 0) for word in variable.attributes if word[:6] == ".align")]
    for align in alignments:
        if align is not None and (align <= 0 or align & (align - 1)):
            yield f"{name} is aligned to {align} bytes", "a power of two"
    if place == "module" and variable.space in ("local", "param"):
        yield f"{name} is in .{variable.space} and outside a function", f".{variable.space} inside a function"
    if place == "entry" and variable.space != "param":
        yield f"the parameter {variable.name} of a kernel is in .{variable.space}", ".param"
    if variable.linkage == "common" and variable.space != "global":
        yield f"{name} is declared .common in .{variable.space}", ".common .global"
    if variable.space != "global" and any(".managed" in word for word in variable.attributes):
        yield f"{name} is managed and in .{variable.space}", ".global"
    if place == "body" and variable.linkage:
        yield f"{name} is declared .{variable.linkage} inside a function", f".{variable.linkage} outside of functions"
    first, inner = variable.dims[:1], variable.dims[1:]
    sized = variable.linkage == "extern" or variable.initializer or place == "func"
    if 0 in first or -1 in inner or (-1 in first and not sized):
        yield f"{name} has no size", "a number of elements of at least 1, or .extern"
    if variable.type in textures.OPAQUE:
        yield from textures.wrong_variable(variable, place, independent)
    elif variable.initializer:
        yield from _wrong_value(variable, name, module)


def lanes(variable: Variable) -> int:
    """Elements of a vector variable, 1 for a scalar."""
    return next((int(word[2:]) for word in variable.attributes if word in VECTORS), 1)


# -- initial values ----------------------------------------------------------------------------------------------


def _wrong_value(variable: Variable, name: str, module: Scope) -> Iterator[Complaint]:
    if variable.space not in ("global", "const") or variable.linkage == "extern":
        why = "extern" if variable.linkage == "extern" else variable.space
        yield f"{name} is .{why} and has an initial value", "a .global or .const variable of this module"
        return
    dims = (*variable.dims, lanes(variable)) if lanes(variable) > 1 else variable.dims
    text, open_braces = variable.initializer, 0
    counts = [0] * (len(dims) + 1)
    for part in re.findall(r"[{}]|[^{},]+", text):
        if part == "{":
            counts[open_braces] += 1
            open_braces += 1
            if open_braces > len(dims):
                yield f"the initial value of {name} has too many braces", counted(len(dims), "pair")
                return
            counts[open_braces] = 0
        elif part == "}":
            size, exact = dims[open_braces - 1], open_braces == len(dims) and lanes(variable) > 1
            count = counts[open_braces]
            if count > size >= 0 or (exact and count != size):
                yield f"the initial value of {name} has {counted(count, 'element')}", f"{size}"
                return
            open_braces -= 1
        elif part.strip():
            counts[open_braces] += 1
            if open_braces != len(dims):
                yield f"the initial value of {name} lacks braces", counted(len(dims), "pair")
                return
            wrong = _wrong_element(part.strip(), variable, module)
            if wrong is not None:
                yield f"`{part.strip()}` in the initial value of {name} does not fit .{variable.type}", wrong
                return


def _wrong_element(text: str, variable: Variable, module: Scope) -> str | None:
    """The expected element if one of an initial value does not fit, or None."""
    dtype = dtypes.ALL[variable.type]
    if variable.type in _UNSET:
        return "no initial value: ptxas has none of this type"
    expression = constant_of(text) if _EXPRESSION.search(text) else None
    if isinstance(expression, Integer):
        return "a floating-point number" if dtype.is_float else None
    if expression is not None or _FLOAT.fullmatch(text):
        return None if dtype.is_float or dtype.kind is Kind.BITS else "an integer"
    names = [word for word in _NAME.findall(re.sub(r"\b\d\w*", "", text)) if word != "generic"]
    if not names:
        return "a floating-point number" if dtype.is_float else None
    meaning = module.names.get(names[0])
    if meaning is None or (meaning.kind == "variable" and meaning.space not in ("global", "const")):
        return "a .global or .const variable, or a function"
    if variable.type not in _ADDRESS_TYPES or (variable.type == "u8" and "(" not in text.replace("generic(", "")):
        return "a variable of type .u64 for an address, or .u8 for a byte of one: 0xFF(name)"
    return None
